"""Inner products of the columns a working set has met, kept from one round to the next.

A column that enters gets a slot; G holds the products of all slots. Along a path the same columns come back at every
penalty, so most of G is worked out once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.kernels import gram as kernels

from .columns import Columns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEP = 64  # slots are added in these numbers: whole panels, whole tiles


def _up(count: int) -> int:
    return -(-count // _STEP) * _STEP


class Gram:
    """G[a, b] = Σ_i weight_i (x_ia − mean_a)(x_ib − mean_b) for the columns that have a slot.

    limit: slots that may be kept; when more are asked for, those not asked for are forgotten.
    """

    def __init__(self, columns: Columns, weight: Floats, mean: Floats, centred: bool, limit: int) -> None:
        self.columns, self.weight, self.mean, self.limit = columns, weight, mean, limit
        self._mass = float(weight.sum()) if centred else 0.0
        self._root = np.sqrt(weight)
        self._slot = np.full(columns.p, -1, np.int64)
        self._clear()

    def _clear(self) -> None:
        self._slot[:] = -1
        self._column = np.empty(0, np.int64)  # [used] column of each slot
        self._G = np.zeros((0, 0))
        self._panels = np.zeros((0, self.columns.n, kernels.PANEL)) if not self.columns.design.sparse else None

    def of(self, which: Ints) -> Floats:
        """[k, step] products of these k columns, rows padded with zeros to a multiple of sixteen."""
        fresh = which[self._slot[which] < 0]
        if len(fresh):
            if len(self._column) + len(fresh) > self.limit:
                self._clear()
                fresh = which
            self._enter(fresh)
        slots = self._slot[which]
        k = len(which)
        made = np.zeros((k, -(-k // 16) * 16))
        made[:, :k] = self._G[np.ix_(slots, slots)]
        return made

    def _enter(self, fresh: Ints) -> None:
        used, count = len(self._column), len(self._column) + len(fresh)
        self._slot[fresh] = np.arange(used, count)
        self._column = np.concatenate([self._column, fresh])
        if count > len(self._G):
            room = _up(min(max(count, 2 * used), max(count, self.limit)))
            wider = np.zeros((room, room))
            wider[:used, :used] = self._G[:used, :used]
            self._G = wider
        if self._panels is None:
            self._multiply_sparse(used, count)
        else:
            self._multiply_dense(used, count)

    def _multiply_sparse(self, used: int, count: int) -> None:
        columns = self.columns
        indptr, indices, values = columns.parts
        entries = int(columns.entries[self._column].sum())
        start = np.empty(columns.n + 1, np.int64)
        slot, value = np.empty(entries, np.int32), np.empty(entries)
        kernels.by_rows[columns.profile](indptr, indices, values, self._column, count, start, slot, value)
        bounds = np.unique(np.linspace(used, count, min(64, count - used) + 1).astype(np.int64))
        columns.run(
            "products", kernels.sparse_worker, bounds, indptr, indices, values, self._column, self.weight, self._mass,
            self.mean, start, slot, value, self._G,
        )  # fmt: skip

    def _multiply_dense(self, used: int, count: int) -> None:
        columns = self.columns
        assert self._panels is not None
        panels = len(self._G) // kernels.PANEL
        if len(self._panels) < panels:
            wider = np.empty((panels, columns.n, kernels.PANEL))
            wider[: len(self._panels)] = self._panels
            self._panels = wider
        # From the pair of panels that holds the first new slot, so that tiles on the diagonal are made whole.
        first, last = used // (2 * kernels.PANEL) * 2, -(-count // (2 * kernels.PANEL)) * 2
        column = np.full(last * kernels.PANEL, -1, np.int64)
        column[:count] = self._column
        columns.run("pack", kernels.pack_worker, np.arange(first, last + 1), columns.parts[0], column, self.mean,
                    self._root, self._panels)  # fmt: skip
        columns.run("products", kernels.dense_worker, np.arange(first, last + 1), self._panels, self._G)
