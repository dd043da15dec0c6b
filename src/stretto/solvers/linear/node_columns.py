"""A design matrix whose columns are on cluster nodes: nodes run the passes, the driver fetches working-set columns.

    design = NodeDesign.sent(matrix, crew.parts())          # a matrix in the driver's memory, partitioned by columns
    design = NodeDesign.read(files, crew.parts())           # svmlight files that the nodes read
    columns = columns_of(design, crew, "exact")             # what solvers take

A pass computes the same bits for a column wherever it runs (`columns`), so the partition does not change results. The
number of parts follows from the data. The driver holds vectors of samples and features, and every column that was in a
working set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design, index_type
from stretto.data.design.design_files import DesignFiles
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.cluster.parts.driver import RemoteParts, RemoteValues

from . import column_parts as nodes
from .column_store import ColumnStore, DenseStore, SparseStore
from .columns import ColumnPasses
from .regression import AnyDesign

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PARTS = 64  # parts of the columns; fewer if there are fewer columns


def cut_columns(entries: Ints) -> Ints:
    """[P + 1] bounds of the parts: neighbouring columns with about the same number of entries together.

    >>> cut_columns(np.ones(100, np.int64))[:4], len(cut_columns(np.array([5, 1, 1]))) - 1
    (array([0, 2, 4, 5]), 3)
    """
    p = len(entries)
    count = max(1, min(_PARTS, p))
    before = np.concatenate([[0.0], np.cumsum(entries + 1.0)])
    inside = np.searchsorted(before, np.linspace(0.0, before[-1], count + 1)[1:-1])
    # Each part has at least one column.
    inside = np.maximum.accumulate(np.maximum(inside - np.arange(1, count), 0)) + np.arange(1, count)
    inside = np.minimum(inside, p - np.arange(count - 1, 0, -1))
    return np.concatenate([[0], inside, [p]]).astype(np.int64)


class NodeDesign:
    """A design partitioned by columns.

    held : the parts, a `Design` each
    bounds : [P + 1] first column of each part
    dtype : of the values
    """

    def __init__(self, held: RemoteValues, bounds: Ints, shape: tuple[int, int], dtype: Any, *, sparse: bool) -> None:
        self.held, self.bounds, self.shape, self.dtype, self.sparse = held, bounds, shape, np.dtype(dtype), sparse
        if sparse:
            self.entries: Ints = np.concatenate(list(held.map(nodes.entries).values()))
            self._store: ColumnStore = SparseStore(self.entries, index_type(shape[0]), self.dtype)
        else:
            self.entries = np.full(shape[1], shape[0], np.int64)
            self._store = DenseStore(shape, self.dtype)
        self.nnz = int(self.entries.sum())

    @staticmethod
    def sent(design: Design, parts: RemoteParts) -> NodeDesign:
        """Send each node its columns."""
        bounds = cut_columns(design.entries)
        pieces = [design.between(first, last) for first, last in pairwise(bounds.tolist())]
        held = parts.make(nodes.receive, pieces)
        return NodeDesign(held, bounds, design.shape, design.dtype, sparse=design.sparse)

    @staticmethod
    def read(files: DesignFiles, parts: RemoteParts) -> NodeDesign:
        """Make each node read its columns."""
        bounds = cut_columns(files.entries)
        ranges = [(first, last) for first, last in pairwise(bounds.tolist())]
        held = parts.make(nodes.read, ranges, files, items=float(files.nbytes))
        return NodeDesign(held, bounds, files.shape, files.dtype, sparse=True)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The matrix as kernels take it; columns that were not fetched are empty."""
        return self._store.parts

    def has(self, which: Ints) -> bool:
        """Whether all these columns were fetched."""
        return bool(self._store.has[which].all())

    def fetch(self, which: Ints) -> None:
        """Fetch these columns to the driver."""
        fresh = np.unique(which[~self._store.has[which]])
        if not len(fresh):
            return
        each = {part: nodes.pack(mine, self._size(part)) for part, mine, _ in self.split(fresh)}
        self._store.add(fresh, list(self.held.map(nodes.fetch, each=each).values()))

    def split(self, which: Ints) -> Iterator[tuple[int, Ints, slice]]:
        """Group ascending columns by part: part number, columns relative to its first, positions in `which`."""
        at = np.searchsorted(which, self.bounds)
        for part in np.flatnonzero(np.diff(at)).tolist():
            mine = slice(int(at[part]), int(at[part + 1]))
            yield part, which[mine] - self.bounds[part], mine

    def _size(self, part: int) -> int:
        return int(self.bounds[part + 1] - self.bounds[part])

    def price(self, which: Ints, v: Floats, profile: str) -> Floats:
        """[k] products of ascending columns with v."""
        where = list(self.split(which))
        each = {part: nodes.pack(mine, self._size(part)) for part, mine, _ in where}
        found = self.held.map(nodes.price, profile, v, each=each, items=float(self.entries[which].sum()))
        return np.concatenate([np.empty(0), *found.values()])

    def survey(
        self, profile: str, weight: Floats, centred: bool, v: Floats, mass: float
    ) -> tuple[Floats, Floats, Floats]:
        """`ColumnPasses.survey`."""
        found = self.held.map(nodes.survey, profile, weight, centred, v, mass, items=3.0 * self.nnz)
        mean, norm, product = (np.concatenate(one) for one in zip(*found.values(), strict=True))
        return mean, norm, product

    def spread(self, weight: Floats) -> Floats:
        """`Design.spread`."""
        return np.concatenate(list(self.held.map(nodes.spread, weight, items=2.0 * self.nnz).values()))

    def take(self, rows: NDArray[np.integer[Any]]) -> NodeDesign:
        """`Design.take`, on the nodes."""
        mask = np.zeros(self.shape[0], bool)
        mask[rows] = True
        held = self.held.derive(nodes.take, np.packbits(mask), items=float(self.nnz))
        return NodeDesign(held, self.bounds, (int(mask.sum()), self.shape[1]), self.dtype, sparse=self.sparse)

    def pick(self, which: Ints) -> Design:
        """`Design.pick`: these columns, in the driver's memory."""
        self.fetch(which)
        if not self.sparse:
            return Design(self.shape, dense=self.parts[0].T).pick(which)
        indptr, indices, values = self.parts
        return Design(self.shape, indptr=indptr, indices=indices, values=values).pick(which)


class NodeColumns(ColumnPasses):
    """Passes over columns that nodes hold. Products with an unchanged vector are not requested twice."""

    complete = False

    def __init__(self, design: NodeDesign, crew: Crew, profile: str) -> None:
        super().__init__(design, crew, profile)
        self._nodes = design
        self._v = np.empty(0)  # the last vector that nodes multiplied with
        self._product = np.empty(self.p)  # products of the columns with it
        self._known = np.zeros(self.p, bool)  # which of these products are known

    def need(self, which: Ints) -> None:
        """Fetch the columns that the driver does not hold."""
        self._nodes.fetch(which)

    def survey(
        self, weight: Floats, centred: bool, v: Floats, mass: float | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """As `ColumnPasses.survey`, on the nodes."""
        mass = float(weight.sum()) if mass is None else mass
        return self._nodes.survey(self.profile, weight, centred, v, mass)

    def price(self, which: Ints, v: Floats, product: Floats) -> None:
        """As `ColumnPasses.price`: on the nodes, unless the driver holds all these columns."""
        if self._nodes.has(which):
            super().price(which, v, product)
            return
        if not _same_bits(v, self._v):
            self._v = v.copy()
            self._known[:] = False
        fresh = np.unique(which[~self._known[which]])
        self._product[fresh] = self._nodes.price(fresh, v, self.profile)
        self._known[fresh] = True
        product[which] = self._product[which]


def columns_of(design: AnyDesign, crew: Crew, profile: str) -> ColumnPasses:
    """The passes over a design, on this machine or on nodes."""
    return NodeColumns(design, crew, profile) if isinstance(design, NodeDesign) else ColumnPasses(design, crew, profile)


def _same_bits(one: Floats, other: Floats) -> bool:
    return len(one) == len(other) and bool(np.array_equal(one.view(np.int64), other.view(np.int64)))
