"""Boxes of a grid and records in the order of visits, as the arrays that compiled code reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.facts import Dim
from stretto.loops.analyse.space import Space
from stretto.loops.emit.visit_form import VisitForm
from stretto.schedule.orders.order import Ints, Order

from .loop_visits import LoopVisits, entries


def grid_box(
    dims: tuple[Dim, ...], cuts: dict[int, tuple[BlockPartition, Ints]], visits: int
) -> tuple[Ints, Ints, Ints]:
    """lo, hi [V, n] of the indices, and the iterations in each visit."""
    lo, hi = np.zeros((visits, len(dims)), np.int64), np.zeros((visits, len(dims)), np.int64)
    weight = np.ones(visits, np.int64)
    for d, dim in enumerate(dims):
        if d in cuts:
            cut, block = cuts[d]
            first, last = cut.bounds[block], cut.bounds[block + 1]
        else:
            first, last = np.zeros(visits, np.int64), np.full(visits, dim.extent)
        lo[:, d], hi[:, d] = dim.start + dim.step * first, dim.start + dim.step * last
        weight *= last - first
    return lo, hi, weight


def grid_form(space: Space) -> VisitForm:
    return VisitForm("grid", tuple(dim.step for dim in space.dims), dense=space.kind == "dense")


def field_arrays(space: Space) -> dict[tuple[str, str], NDArray[Any]]:
    found: dict[tuple[str, str], NDArray[Any]] = {("field", name): column.values for name, column in space.fields}
    if space.kind == "dense":
        found["extents", ""] = np.array([dim.extent for dim in space.dims], np.int64)
    return found


def visits_of_entries(
    space: Space, order: Order, weight: Ints, which: NDArray[Any] | None, rows: BlockPartition, cols: BlockPartition
) -> LoopVisits:
    assert space.records is not None
    arrays = entries(space, space.records.index, weight, which)
    return LoopVisits(order, weight, VisitForm("entries"), rows, cols, arrays)


def by_visit(analysis: Analysis, visit: NDArray[Any]) -> NDArray[Any]:
    """Positions of the records by visit; inside a visit in their own order, or in index order for an ordered loop."""
    assert analysis.space.records is not None
    if analysis.options.ordered or analysis.strategy.name == "2d ordered":
        return np.lexsort((*reversed(analysis.space.records.index), visit))
    narrow = visit.astype(np.int16) if len(visit) and int(visit.max()) < 2**15 else visit
    return np.argsort(narrow, kind="stable")
