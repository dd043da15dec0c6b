"""Cut the iterations of a loop into blocks by its strategy, order the blocks, and lay out the records by visit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition, straight
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.space import Space
from stretto.loops.emit.visit_form import VisitForm
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import lay_out, tally
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import independent, rotation
from stretto.schedule.orders.wavefront import chain, wavefront

from .block_counts import parts, square
from .cut_nests import rotated, stepped, transformed
from .loop_visits import LoopVisits, even, fields_of, ragged_arrays
from .visit_forms import by_visit, field_arrays, grid_box, grid_form, visits_of_entries


def cut_by_strategy(analysis: Analysis, crew: Crew) -> LoopVisits:
    """The visits of a loop whose strategy needs nothing but its space and records."""
    space, strategy = analysis.space, analysis.strategy
    if strategy.name == "2d transformed":
        return transformed(analysis)
    if strategy.name == "nd unordered":
        return rotated(analysis)
    if strategy.name == "stepped":
        return stepped(analysis)
    two = strategy.name.startswith("2d")
    if space.kind in ("grid", "dense"):
        visits = _grid(analysis, two)
    elif space.kind == "ragged":
        visits = _ragged(analysis)
    elif two:
        visits = _sparse_two(analysis, crew)
    else:
        visits = _sparse_one(analysis)
    return _in_waves(visits, analysis.options.width) if strategy.waves or strategy.name == "buffered" else visits


def _in_waves(visits: LoopVisits, width: int) -> LoopVisits:
    """Group visits that could run together into waves of at most `width`.

    A wave is taken from one step of a rotation or one diagonal of a wavefront. Visits of a wave that share a block
    still run in order.
    """
    order = visits.order
    every = np.arange(len(visits), dtype=np.int64)
    step = order.row_block + order.col_block if order.name == "wavefront" else every // max(1, order.rows)
    waves = tuple(
        together[at : at + width]
        for together in np.split(every[np.argsort(step, kind="stable")], np.cumsum(np.bincount(step))[:-1])
        for at in range(0, len(together), width)
        if len(together)
    )
    return LoopVisits(visits.order, visits.weight, visits.form, visits.rows, visits.cols, visits.arrays, waves)


def _order(analysis: Analysis, rows: int, cols: int) -> Order:
    """The order of a two-dimensional grid of blocks."""
    if analysis.strategy.name == "2d ordered":
        return wavefront(rows, cols)
    if rows == cols and rows & (rows - 1) == 0:
        return rotation(rows)
    return ring(rows, cols)


def ring(rows: int, cols: int) -> Order:
    """A rotation over a grid that is not square: in step s row block r meets column block r·⌊cols/rows⌋ + s."""
    step, row = np.divmod(np.arange(rows * cols, dtype=np.int64), rows)
    col = (row * max(1, cols // rows) + step) % cols
    return Order("rotation/ring", rows, cols, row, col)


# --- grids ----------------------------------------------------------------------------------------------------------


def _grid(analysis: Analysis, two: bool) -> LoopVisits:
    space, dims = analysis.space, analysis.strategy.dims or (0,)
    if two:
        first, second = dims
        rows, cols = square(analysis, (space.dims[first].extent, space.dims[second].extent))
        order = _order(analysis, rows, cols)
        row_cut, col_cut = even(space.dims[first].extent, rows), even(space.dims[second].extent, cols)
        cuts = {first: (row_cut, order.row_block), second: (col_cut, order.col_block)}
    else:
        extent = space.dims[dims[0]].extent
        count = parts(analysis, extent)
        order = chain(count) if analysis.strategy.name == "chain" else independent(count)
        row_cut, col_cut = even(extent, count), even(1, 1)
        cuts = {dims[0]: (row_cut, np.arange(count))}
    lo, hi, weight = grid_box(space.dims, cuts, len(order))
    return LoopVisits(
        order, weight, grid_form(space), row_cut, col_cut, {("lo", ""): lo, ("hi", ""): hi, **field_arrays(space)}
    )


# --- records --------------------------------------------------------------------------------------------------------


def _ragged(analysis: Analysis) -> LoopVisits:
    """Ranges of records with equal work: 1 for each record and 1 for each entry of its ragged fields."""
    space = analysis.space
    work = np.ones(len(space), np.int64)
    for _, column in space.ragged:
        work += np.diff(column.ptr)
    count = parts(analysis, max(1, len(space)))
    cut = straight(work, count)
    order = chain(count) if analysis.strategy.name == "chain" else independent(count)
    lo, hi = cut.bounds[:-1, None].copy(), cut.bounds[1:, None].copy()
    running = np.concatenate([[0], np.cumsum(work)])
    weight = running[cut.bounds[1:]] - running[cut.bounds[:-1]]
    arrays = {("lo", ""): lo, ("hi", ""): hi, **fields_of(space, None), **ragged_arrays(space)}
    return LoopVisits(order, weight, VisitForm("range"), cut, even(1, 1), arrays)


def _sparse_one(analysis: Analysis) -> LoopVisits:
    """Sparse records cut along one index, or in their own order if no index is cut."""
    space, dims = analysis.space, analysis.strategy.dims
    assert space.records is not None
    n = len(space)
    if not dims:
        count = parts(analysis, max(1, n))
        cut = even(n, count)
        order = chain(count) if analysis.strategy.name == "chain" else independent(count)
        return visits_of_entries(space, order, cut.sizes, None, cut, even(1, 1))
    index = space.records.index[dims[0]]
    extent = space.dims[dims[0]].extent
    count = parts(analysis, max(1, extent))
    cut = straight(np.bincount(index, minlength=extent), count)
    block = cut.block_of()[index]
    order = chain(count) if analysis.strategy.name == "chain" else independent(count)
    which = by_visit(analysis, block)
    return visits_of_entries(space, order, np.bincount(block, minlength=count), which, cut, even(1, 1))


def _sparse_two(analysis: Analysis, crew: Crew) -> LoopVisits:
    """Sparse records over a grid of blocks."""
    space = analysis.space
    records = space.records
    assert records is not None
    first, second = analysis.strategy.dims
    shape = (space.dims[first].extent, space.dims[second].extent)
    rows, cols = square(analysis, shape)
    order = _order(analysis, rows, cols)
    row_cut = straight(np.bincount(records.index[first], minlength=shape[0]), rows)
    col_cut = straight(np.bincount(records.index[second], minlength=shape[1]), cols)
    if analysis.strategy.name == "2d unordered" and len(space.dims) == 2 and _simple(space):
        return _sparse_fast(space, order, row_cut, col_cut, (first, second), crew)
    table = np.zeros((rows, cols), np.int64)
    table[order.row_block, order.col_block] = np.arange(len(order))
    visit = table[row_cut.block_of()[records.index[first]], col_cut.block_of()[records.index[second]]]
    weight = np.bincount(visit, minlength=len(order))
    return visits_of_entries(space, order, weight, by_visit(analysis, visit), row_cut, col_cut)


def _simple(space: Space) -> bool:
    return len(space.fields) == 1 and not space.ragged and space.fields[0][1].values.dtype == np.float32


@dataclass(frozen=True, eq=False)
class _Triples:
    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[Any]


def _sparse_fast(
    space: Space, order: Order, rows: BlockPartition, cols: BlockPartition, dims: tuple[int, int], crew: Crew
) -> LoopVisits:
    """One float32 value for each record: the layout of the factorization models, with indices local to a block."""
    assert space.records is not None
    triples = _Triples(space.records.index[dims[0]], space.records.index[dims[1]], space.fields[0][1].values)
    tallied = tally((triples.rows, triples.cols, triples.values), rows, cols, order, crew)
    blocks = lay_out(triples, rows, cols, order, tallied, crew)  # type: ignore[arg-type]
    arrays: dict[tuple[str, str], NDArray[Any]] = {
        ("ptr", ""): blocks.ptr,
        (f"base{dims[0]}", ""): np.ascontiguousarray(blocks.row_base),
        (f"base{dims[1]}", ""): np.ascontiguousarray(blocks.col_base),
        (f"index{dims[0]}", ""): blocks.u,
        (f"index{dims[1]}", ""): blocks.i,
        ("field", space.fields[0][0]): blocks.r,
    }
    return LoopVisits(order, blocks.weight, VisitForm("entries"), rows, cols, arrays)
