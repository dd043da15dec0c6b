"""Passes over the columns of a design matrix: `ColumnPasses` calls the kernel for dense or sparse storage.

Every pass is divided into visits by the amount of data, never by the number of workers. The result for a column does
not depend on the other columns, so nodes that hold some of the columns compute the same bits (`node_columns`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import column_statistics, columns
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import equal_work, make_step
from stretto.runtime.blocks.step import parts as equal_parts
from stretto.schedule.orders.rotation import independent

from .regression import AnyDesign

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_VISITS = 256
_ENTRIES = 1 << 16  # entries of a visit: some tens of microseconds
_SHORT, _LONG = 64, 512  # rows of a visit that adds dense columns, at least


def column_bounds(entries: Ints) -> Ints:
    """Bounds that divide columns with these numbers of entries into visits."""
    return equal_work(entries, _VISITS, _ENTRIES)


class ColumnPasses:
    """Passes over the columns of a design, run by a crew.

    Attributes
    ----------
    n, p : int
        Samples and features.
    sparse : bool
        How columns are stored.
    entries : array of int64 [p]
        Number of stored entries of each column.
    complete : bool
        Whether all columns are in local memory. Then `parts` is the whole matrix.
    """

    complete = True

    def __init__(self, design: AnyDesign, crew: Crew, profile: str) -> None:
        self.design, self.crew, self.profile = design, crew, profile
        self.n, self.p = design.shape
        self.sparse, self.nnz, self.entries = design.sparse, design.nnz, design.entries
        self._parts: dict[tuple[int, int], Ints] = {}
        self._last: tuple[Ints, Ints, int] | None = None  # columns of the last long pass, their bounds and entries
        kind = "sparse" if design.sparse else "dense"
        modules = {"survey": column_statistics, "square": column_statistics, "price": columns, "price_both": columns}
        modules["add"] = columns
        self._kernels = {name: getattr(module, f"{name}_{kind}_worker") for name, module in modules.items()}

    @property
    def parts(self) -> tuple[Any, ...]:
        """The matrix as kernels take it. Columns that were not requested with `need` may be empty."""
        return self.design.parts

    def need(self, which: Ints) -> None:
        """Make these columns available in `parts`."""

    def run(self, name: str, kernel: Any, bounds: Ints, *args: Any, work: int) -> Floats:
        """Run one pass of a kernel over len(bounds) − 1 visits; return the result of each visit.

        work : multiplications of all visits
        """
        step = make_step(name, kernel, independent(len(bounds) - 1), np.diff(bounds), bounds, *args)
        self.crew.run_pass(step, self.profile, work)
        return step.out

    def survey(
        self, weight: Floats, centred: bool, v: Floats, mass: float | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Mean (zero unless centred), norm about it and product with v of every column, in one pass over the data.

        mass : the sum of the weights, if known
        """
        mean, norm, product = np.empty(self.p), np.empty(self.p), np.empty(self.p)
        mass = float(weight.sum()) if mass is None else mass
        alike = float(weight[0]) if self.sparse and len(weight) and np.all(weight == weight[0]) else -1.0
        args = (*self.parts, weight, alike, mass, centred, v, mean, norm, product)
        self.run("survey", self._kernels["survey"], column_bounds(self.entries), *args, work=self.nnz)
        return mean, norm, product

    def _divided(self, which: Ints) -> tuple[Ints, int]:
        """Bounds of the visits over these columns, and the number of their entries."""
        if self.sparse:
            return self._divided_by_entries(which)
        # Columns of equal length need no sums.
        bounds = self._equal_parts(len(which), max(1, _ENTRIES // max(1, self.n)))
        return bounds if len(which) else bounds[:1], self.n * len(which)

    def _divided_by_entries(self, which: Ints) -> tuple[Ints, int]:
        """`_divided` of sparse columns. The last answer is kept: along a path the columns are often the same."""
        if self._last is not None and np.array_equal(self._last[0], which):
            return self._last[1:]
        entries = self.entries[which]
        bounds, work = column_bounds(entries), int(entries.sum())
        if 2 * len(which) > self.p:
            self._last = which.copy(), bounds, work
        return bounds, work

    def _equal_parts(self, count: int, least: int) -> Ints:
        """Bounds of at most `_VISITS` visits over `count` items, kept: finding them takes as long as a short pass."""
        if (count, least) not in self._parts:
            self._parts[count, least] = equal_parts(count, _VISITS, least)
        return self._parts[count, least]

    def price(self, which: Ints, v: Floats, product: Floats) -> None:
        """product[j] = x_j · v for the columns of `which`."""
        bounds, work = self._divided(which)
        self.run("price", self._kernels["price"], bounds, which, *self.parts, v, product, work=work)

    def price_both(self, which: Ints, v: Floats, d: Floats, product: Floats, other: Floats) -> None:
        """product[j] = x_j · v and other[j] = x_j · d for the columns of `which`, in one pass over them."""
        self.need(which)
        bounds, work = self._divided(which)
        args = (which, *self.parts, v, d, product, other)
        self.run("price", self._kernels["price_both"], bounds, *args, work=2 * work)

    def squares(self, which: Ints, weight: Floats, mean: Floats, square: Floats) -> None:
        """square[k] = Σ weight (x − mean[k])² for the columns which[k]."""
        self.need(which)
        mass = float(np.sum(weight))
        bounds, work = self._divided(which)
        self.run("square", self._kernels["square"], bounds, which, *self.parts, weight, mass, mean, square, work=work)

    def add(self, which: Ints, coef: Floats, z: Floats) -> None:
        """z += Σ coef_j x_j over the columns of `which`."""
        self.need(which)
        rows, work = np.array([0, self.n]), self.n * len(which)
        if self.sparse:
            work = int(self.entries[which].sum())
        else:
            # A visit reads a part of each column. Of a short one, the first line takes longer to fetch than the rest.
            least = max(_SHORT, min(_LONG, self.n // 4), _ENTRIES // max(1, len(which)))
            rows = self._equal_parts(self.n, least)
        self.run("add", self._kernels["add"], rows, which, coef, *self.parts, z, work=work)
