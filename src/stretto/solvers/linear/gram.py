"""Gram matrix: inner products of the columns that were in a working set, kept between rounds.

A column that enters a working set gets a slot. G holds the products of all slots. Along a path the same columns return
at every penalty, so most of G is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import gram as kernels
from stretto.kernels.newton import block_products
from stretto.runtime.blocks.step import parts as row_parts

from .columns import ColumnPasses

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TURNS = 4  # partial conversions to row order before all data are converted
_PANEL_BYTES = 1 << 30  # limit for packed columns of sparse data
# Slots that are not requested, as a share of those that are, above which they are dropped: a new dense column is
# multiplied with every slot, and on correlated columns most of those that leave a working set never return.
_UNUSED = 0.25
_VISITS, _ENTRIES = 64, 1 << 16  # visits over the rows of a few columns, and entries of a visit, at least
_AT_ONCE = 16  # products of dense columns that take as long as one of a sparse column
_STEP = 64  # slots are added in multiples of this: whole panels, whole tiles


def _up(count: int) -> int:
    return -(-count // _STEP) * _STEP


class Gram:
    """G[a, b] = Σ_i weight_i (x_ia − mean_a)(x_ib − mean_b) for the columns that have a slot.

    changing : the weights are renewed for every set of columns
    limit : number of slots kept; when more are needed, slots that are not requested are dropped, and those of dense
        columns also when they are many
    """

    def __init__(
        self, columns: ColumnPasses, weight: Floats, mean: Floats, centred: bool, limit: int, *, changing: bool = False
    ) -> None:
        self.columns, self.centred, self.limit = columns, centred, limit
        # Panels pay where columns are added to them under the same weights.
        self._few = block_products.MOST if changing else kernels.FEW
        self._changing = changing
        self._slot = np.full(columns.p, -1, np.int64)
        self._all_rows: tuple[Any, ...] | None = None
        self._turned = 0  # entries converted to row order so far
        self._G = np.zeros((0, 0))
        self._panels = np.zeros((0, columns.n, kernels.PANEL))
        self.renew(weight, mean)

    def renew(self, weight: Floats, mean: Floats) -> None:
        """Drop all products and set other weights and the means [p] under them; the memory is reused."""
        self.weight, self.mean = weight, mean
        self._mass = float(np.sum(weight)) if self.centred else 0.0
        self._clear()

    def _clear(self) -> None:
        self._slot[:] = -1
        self._column = np.empty(0, np.int64)  # [used] column of each slot
        self._packed = True  # whether every slot is stored in a panel

    def state(self, *, keep: bool) -> dict[str, NDArray[Any]]:
        """Everything that decides later products. keep: include known products, valid for the next model too."""
        used = len(self._column) if keep else 0
        counts = np.array([self._packed, self._turned, self._all_rows is not None], np.int64)
        found: dict[str, NDArray[Any]] = {"counts": counts, "column": self._column[:used]}
        return found | {"G": self._G[:used, :used], "mean": self.mean} if keep else found

    def restore(self, state: Mapping[str, NDArray[Any]], weight: Floats) -> None:
        """Continue from a saved `state`. weight : sample weights under which the products are valid"""
        columns, column = self.columns, np.array(state["column"])
        packed, self._turned, all_rows = state["counts"].tolist()
        if all_rows:
            self._turned = max(self._turned, _TURNS * columns.nnz + 1)
            self._by_rows()
            self._turned = int(state["counts"][1])
        if "G" not in state:
            return
        self.renew(weight, np.array(state["mean"]))
        used = len(column)
        columns.need(np.sort(column))
        self._column, self._packed = column, bool(packed)
        self._slot[column] = np.arange(used)
        self._G = np.zeros((_up(used), _up(used)))
        self._G[:used, :used] = state["G"]
        if self._packed and self._paneled(used):
            self._pack(0, used)

    def known(self, which: Ints) -> float:
        """The share of these columns whose products with one another are kept."""
        return float(np.mean(self._slot[which] >= 0)) if len(which) else 0.0

    def of(self, which: Ints) -> Floats:
        """[k, step] products of these k columns; rows are padded with zeros to a multiple of sixteen."""
        fresh = which[self._slot[which] < 0]
        if len(fresh):
            unused = len(self._column) + len(fresh) - len(which)
            if unused + len(which) > self.limit:
                self._clear()
                fresh = which
            elif self._packed and unused > _UNUSED * len(which):
                self._keep(which)
            try:
                self._enter(fresh)
            except BaseException:
                self._clear()  # slots without products would be taken as valid
                raise
        k = len(which)
        made = np.zeros((k, -(-k // 16) * 16))
        if np.array_equal(which, self._column):
            made[:, :k] = self._G[:k, :k]
        else:
            slots = self._slot[which]
            made[:, :k] = self._G[np.ix_(slots, slots)]
        return made

    def _keep(self, which: Ints) -> None:
        """Drop the slots of all other columns."""
        slots = self._slot[which]
        slots = np.sort(slots[slots >= 0])
        used = len(slots)
        kept = np.zeros((_up(used), _up(used)))
        kept[:used, :used] = self._G[np.ix_(slots, slots)]
        self._slot[self._column] = -1
        self._G, self._column = kept, self._column[slots]
        self._slot[self._column] = np.arange(used)
        if self._paneled(used):
            self._pack(0, used)

    def _paneled(self, count: int) -> bool:
        """Whether so many columns, multiplied as dense ones, are stored in panels."""
        return count > self._few or (count > 0 and self.columns.sparse and not self._changing)

    def _enter(self, fresh: Ints) -> None:
        used, count = len(self._column), len(self._column) + len(fresh)
        self._slot[fresh] = np.arange(used, count)
        self._column = np.concatenate([self._column, fresh])
        if count > len(self._G):
            room = _up(min(max(count, 2 * used), max(count, self.limit)))
            wider = np.zeros((room, room))
            wider[:used, :used] = self._G[:used, :used]
            self._G = wider
        self._packed = self._packed and self._full_enough()
        if self._packed and not self._paneled(count):
            self._multiply_few(used, count)
        elif self._packed:
            self._multiply_dense(used if self._paneled(used) else 0, count)
        else:
            self._multiply_sparse(used, count)

    def _full_enough(self) -> bool:
        """Whether the columns in slots are multiplied as dense columns.

        Multiplying sixteen numbers at a time, zeros included, is faster when at least a fifth of them is not zero.
        """
        columns = self.columns
        size = columns.n * len(self._column)
        full = int(columns.entries[self._column].sum()) >= 0.2 * size
        return not columns.sparse or (full and 8 * size <= _PANEL_BYTES)

    def _by_rows(self) -> tuple[Any, ...]:
        """The entries in row order: of the columns in slots or, after many partial conversions, of all columns.

        A single fit uses few columns a few times; a path adds a few new columns at every penalty.
        """
        columns = self.columns
        if self._all_rows is not None:
            return self._all_rows
        which = self._column
        self._turned += int(columns.entries[which].sum())
        if whole := columns.complete and self._turned > _TURNS * columns.nnz:
            which = np.arange(columns.p, dtype=np.int64)
        entries = int(columns.entries[which].sum())
        start = np.empty(columns.n + 1, np.int64)
        whose, value = np.empty(entries, np.int32), np.empty(entries)
        kernels.by_rows[columns.profile](*columns.parts, which, len(which), np.arange(len(which)), start, whose, value)
        if whole:
            self._all_rows = start, whose, value
        return start, whose, value

    def _multiply_sparse(self, used: int, count: int) -> None:
        columns = self.columns
        by_rows = self._by_rows()
        bounds = np.unique(np.linspace(used, count, min(64, count - used) + 1).astype(np.int64))
        columns.run(
            "products", kernels.sparse_worker, bounds, *columns.parts, self._column, self._slot,
            self._all_rows is None, self.weight, self._mass, self.mean, *by_rows, self._G,
            work=int(columns.entries[self._column].sum()) * (count - used),
        )  # fmt: skip

    def _multiply_few(self, used: int, count: int) -> None:
        """Products of so few columns that they need no panels. Panels of more columns replace them."""
        columns = self.columns
        pairs = (count * (count + 1) - used * (used + 1)) // 2
        bounds = row_parts(columns.n, _VISITS, max(1, _ENTRIES // count))
        if self._changing:
            width = -(-count // 4) * 4
            parts = np.zeros((len(bounds) - 1) * width * width)
            args = (*columns.parts, self._column, used, self.mean, self.weight, width, parts)
            multiply = block_products.block_sparse_worker if columns.sparse else block_products.block_worker
            columns.run("products", multiply, bounds, *args, work=columns.n * (pairs // _AT_ONCE + count))
            block_products.merge[columns.profile](parts, width, used, count, self._G)
            return
        parts = np.zeros((len(bounds) - 1, count, count))
        args = (*columns.parts, self._column, used, self.mean, self.weight, parts)
        columns.run("products", kernels.few_worker, bounds, *args, work=columns.n * pairs)
        made = np.add.reduce(parts, axis=0)
        for r in range(used, count):
            self._G[r, : r + 1] = self._G[: r + 1, r] = made[r, : r + 1]

    def _multiply_dense(self, used: int, count: int) -> None:
        first, last = self._pack(used, count)
        work = (last - first) * last * kernels.PANEL**2 * self.columns.n // _AT_ONCE
        args = (self._panels, self._G)
        self.columns.run("products", kernels.dense_worker, np.arange(first, last + 1), *args, work=work)

    def _pack(self, used: int, count: int) -> tuple[int, int]:
        """Pack the columns of slots used … count − 1 into panels; return the range of changed panels, end exclusive."""
        columns = self.columns
        # Start at the pair of panels that holds the first new slot, so that tiles on the diagonal are complete.
        first, last = used // (2 * kernels.PANEL) * 2, -(-count // (2 * kernels.PANEL)) * 2
        if len(self._panels) < last:
            wider = np.empty((max(last, min(2 * first, len(self._G) // kernels.PANEL)), columns.n, kernels.PANEL))
            wider[:first] = self._panels[:first]
            self._panels = wider
        column = np.full(last * kernels.PANEL, -1, np.int64)
        column[:count] = self._column
        pack = kernels.pack_sparse_worker if columns.sparse else kernels.pack_worker
        args = (*columns.parts, column, self.mean, np.sqrt(self.weight), self._panels)
        work = (last - first) * kernels.PANEL * columns.n
        columns.run("pack", pack, np.arange(first, last + 1), *args, work=work)
        return first, last
