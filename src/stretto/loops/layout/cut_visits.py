"""Cut the iterations of a loop into blocks by its strategy, order the blocks, and lay out the records by visit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import FEWEST_PER_VISIT, BlockPartition, choose_blocks, straight
from stretto.errors import PlanError
from stretto.loops.analyse import unimodular
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.facts import Dim
from stretto.loops.analyse.space import Space
from stretto.loops.emit.visit_form import VisitForm
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import lay_out, tally
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent, rotation, several
from stretto.schedule.orders.wavefront import chain, wavefront

from .loop_visits import LoopVisits, entries, even, fields_of, ragged_arrays

PER_STALE_VISIT = 32  # iterations of a visit in a buffered loop
FEWEST_WAVES, MOST_WAVES = 32, 256
FEWEST_IN_STEP = 1024  # iterations of a visit of one step of outer indices
MOST_VISITS = 2**16  # of all steps: the order of visits takes some microseconds for each
LEAST_OF_SEVERAL = 64  # iterations of a visit of a rotation along three axes or more, on average


def cut_by_strategy(analysis: Analysis, crew: Crew) -> LoopVisits:
    """The visits of a loop whose strategy needs nothing but its space and records."""
    space, strategy = analysis.space, analysis.strategy
    if strategy.name == "2d transformed":
        return _transformed(analysis)
    if strategy.name == "nd unordered":
        return _several(analysis)
    if strategy.name == "stepped":
        return _stepped(analysis)
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


def _wanted(analysis: Analysis, axis: int, most: int) -> int:
    """Number of blocks along the first or second cut axis: the user's, or the one for the plan's width."""
    asked = analysis.options.blocks
    if axis < len(asked):
        if asked[axis] < 1:
            raise PlanError(f"blocks={asked}: there is at least one block along an axis")
        return min(asked[axis], most)
    return most


def _parts(analysis: Analysis, extent: int) -> int:
    """Blocks along a single axis."""
    if analysis.options.blocks:
        return max(1, _wanted(analysis, 0, extent))
    if analysis.strategy.name == "buffered":
        return _stale(analysis, extent)
    return max(1, min(2 * analysis.options.width, extent, len(analysis.space) // FEWEST_PER_VISIT or 1))


def _stale(analysis: Analysis, extent: int) -> int:
    """Number of visits of a buffered loop, whose visits read the state as of the start of their wave.

    The visits of a wave together add `width` times one step to an element that all of them access. So waves must be
    short for an ordinary learning rate to converge: a few iterations for each visit, or some dozens of waves. On the
    other hand, a wave takes 0.1 to 0.2 ms to begin and to merge, and every visit copies the arrays behind the buffers.
    """
    n, width = len(analysis.space), analysis.options.width
    work = n + sum(len(column.parts[0]) for _, column in analysis.space.ragged if column.parts)
    wanted = max(n // PER_STALE_VISIT, FEWEST_WAVES * width)
    affordable = max(4 * work // max(1, analysis.behind), 2 * width)
    return max(1, min(wanted, affordable, MOST_WAVES * width, extent))


def _square(analysis: Analysis, shape: tuple[int, int]) -> tuple[int, int]:
    """Blocks along the two axes of a grid: 2 × width, or width with waves, which wait for the slowest visit anyway."""
    width = max(1, analysis.options.width // 2) if analysis.strategy.waves else analysis.options.width
    blocks = choose_blocks(max(1, len(analysis.space)), (max(1, shape[0]), max(1, shape[1])), width)
    if analysis.options.blocks:
        first = _wanted(analysis, 0, max(1, shape[0]))
        return first, _wanted(analysis, 1, max(1, shape[1])) if len(analysis.options.blocks) > 1 else first
    return blocks, blocks


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


def _box(dims: tuple[Dim, ...], cuts: dict[int, tuple[BlockPartition, Ints]], visits: int) -> tuple[Ints, Ints, Ints]:
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


def _form(space: Space) -> VisitForm:
    return VisitForm("grid", tuple(dim.step for dim in space.dims), dense=space.kind == "dense")


def _extents(space: Space) -> dict[tuple[str, str], NDArray[Any]]:
    found: dict[tuple[str, str], NDArray[Any]] = {("field", name): column.values for name, column in space.fields}
    if space.kind == "dense":
        found["extents", ""] = np.array([dim.extent for dim in space.dims], np.int64)
    return found


def _grid(analysis: Analysis, two: bool) -> LoopVisits:
    space, dims = analysis.space, analysis.strategy.dims or (0,)
    if two:
        first, second = dims
        rows, cols = _square(analysis, (space.dims[first].extent, space.dims[second].extent))
        order = _order(analysis, rows, cols)
        row_cut, col_cut = even(space.dims[first].extent, rows), even(space.dims[second].extent, cols)
        cuts = {first: (row_cut, order.row_block), second: (col_cut, order.col_block)}
    else:
        extent = space.dims[dims[0]].extent
        count = _parts(analysis, extent)
        order = chain(count) if analysis.strategy.name == "chain" else independent(count)
        row_cut, col_cut = even(extent, count), even(1, 1)
        cuts = {dims[0]: (row_cut, np.arange(count))}
    lo, hi, weight = _box(space.dims, cuts, len(order))
    return LoopVisits(
        order, weight, _form(space), row_cut, col_cut, {("lo", ""): lo, ("hi", ""): hi, **_extents(space)}
    )


def _several(analysis: Analysis) -> LoopVisits:
    """A rotation of blocks along three dimensions or more."""
    space, dims = analysis.space, analysis.strategy.dims
    extents = [space.dims[d].extent for d in dims]
    first, _ = _square(analysis, (min(extents), min(extents)))
    if not analysis.options.blocks:
        most = min(MOST_VISITS, len(space) / LEAST_OF_SEVERAL) ** (1 / len(dims))
        first = max(min(first, 4), min(first, int(most)))
    blocks = max(1, min(first, *extents))
    order, block = several(blocks, len(dims))
    if space.records is None or space.kind == "dense":
        cuts = [even(extent, blocks) for extent in extents]
        lo, hi, weight = _box(space.dims, {d: (cuts[k], block[:, k]) for k, d in enumerate(dims)},
                              len(order))  # fmt: skip
        arrays = {("lo", ""): lo, ("hi", ""): hi, **_extents(space)}
        visits = LoopVisits(order, weight, _form(space), cuts[0], cuts[1], arrays)
    else:
        index = space.records.index
        cuts = [
            straight(np.bincount(index[d], minlength=extent), blocks) for d, extent in zip(dims, extents, strict=True)
        ]
        table = np.zeros((blocks,) * len(dims), np.int64)
        table[tuple(block.T)] = np.arange(len(order))
        visit = table[tuple(cut.block_of()[index[d]] for d, cut in zip(dims, cuts, strict=True))]
        weight = np.bincount(visit, minlength=len(order))
        visits = _entries(space, order, weight, _sorted(analysis, visit), cuts[0], cuts[1])
    return _in_steps_of_passes(visits, analysis, blocks) if analysis.strategy.waves else visits


def _in_steps_of_passes(visits: LoopVisits, analysis: Analysis, blocks: int) -> LoopVisits:
    """Waves of a rotation along several axes: the visits of one step share no block."""
    width = analysis.options.width
    every = np.arange(len(visits), dtype=np.int64)
    waves = tuple(every[at : min(at + width, step + blocks)] for step in range(0, len(every), blocks)
                  for at in range(step, step + blocks, width))  # fmt: skip
    return replace(visits, waves=waves)


def _stepped(analysis: Analysis) -> LoopVisits:
    """Blocks of one dimension or two within each combination of values of the outer ones.

    With turns, a block waits for the visits before it of its row and of its column, also of the value before. Without,
    the visits of a diagonal are a wave.
    """
    space, strategy = analysis.space, analysis.strategy
    outer = [dim.extent for dim in space.dims[: strategy.outer]]
    steps = math.prod(outer)
    rows, cols = _blocks_within(analysis, steps)
    step, row, col = np.unravel_index(np.arange(steps * rows * cols, dtype=np.int64), (steps, rows, cols))
    cuts = {d: (even(extent, extent), value) for d, (extent, value) in enumerate(
        zip(outer, np.unravel_index(step, outer), strict=True))}  # fmt: skip
    ends = [space.dims[d].extent for d in strategy.dims]
    row_cut, col_cut = even(ends[0], rows), even(ends[1], cols) if len(ends) == 2 else even(1, 1)
    for d, cut, block in zip(strategy.dims, (row_cut, col_cut), (row, col), strict=False):
        cuts[d] = (cut, block)
    lo, hi, weight = _box(space.dims, cuts, len(step))
    arrays = {("lo", ""): lo, ("hi", ""): hi, **_extents(space)}
    if strategy.tiled:
        return LoopVisits(
            Order("wavefront, stepped", rows, cols, row, col), weight, _form(space), row_cut, col_cut, arrays
        )
    diagonal = step * (rows + cols - 1) + (row + col if len(ends) == 2 else 0)
    by_wave = np.argsort(diagonal, kind="stable").astype(np.int64)
    waves = tuple(part for part in np.split(by_wave, np.cumsum(np.bincount(diagonal))[:-1]) if len(part))
    return LoopVisits(independent(len(step)), weight, _form(space), row_cut, col_cut, arrays, waves)


def _blocks_within(analysis: Analysis, steps: int) -> tuple[int, int]:
    """Blocks along the cut dimensions of one step: fewer where a step has few iterations."""
    extents = [analysis.space.dims[d].extent for d in analysis.strategy.dims]
    asked, each = analysis.options.blocks, max(1, len(analysis.space) // max(1, steps))
    if len(extents) == 1:
        most = min(2 * analysis.options.width, extents[0], max(1, each // FEWEST_PER_VISIT))
        return min(asked[0], extents[0]) if asked else max(1, most), 1
    if asked:
        return min(asked[0], extents[0]), min(asked[-1], extents[1])
    most = min(analysis.options.width, max(2, math.isqrt(MOST_VISITS // max(1, steps))))
    side = max(1, min(most, math.isqrt(each // FEWEST_IN_STEP) or 1, *extents))
    return side, side


def _transformed(analysis: Analysis) -> LoopVisits:
    """Tiles of the new coordinates: a wavefront of tiles, or one wave for each value of the first.

    The dimensions that are not transformed run whole in every visit, inside the others.
    """
    space, matrix = analysis.space, analysis.strategy.transform
    first, second = analysis.strategy.dims
    extents = [space.dims[first].extent, space.dims[second].extent]
    corners = np.array([[a, b] for a in (0, extents[0] - 1) for b in (0, extents[1] - 1)])
    reach = corners @ np.array(matrix).T
    low, high = reach.min(axis=0), reach.max(axis=0) + 1
    spans = high - low
    if analysis.strategy.tiled:
        rows, cols = _square(analysis, (int(spans[0]), int(spans[1])))
        order = wavefront(rows, cols)
    else:
        rows, cols = int(spans[0]), _parts(analysis, int(spans[1]))
        order = independent(rows * cols)
    row_cut, col_cut = even(int(spans[0]), rows), even(int(spans[1]), cols)
    block = np.divmod(np.arange(rows * cols), cols)
    lo = np.stack([low[0] + row_cut.bounds[block[0]], low[1] + col_cut.bounds[block[1]]], axis=1)
    hi = np.stack([low[0] + row_cut.bounds[block[0] + 1], low[1] + col_cut.bounds[block[1] + 1]], axis=1)
    box = np.array([[dim.start, dim.step, dim.extent] for dim in space.dims], np.int64)
    steps, inverse = tuple(dim.step for dim in space.dims), unimodular.inverse(matrix)
    form = VisitForm("skewed", steps, inverse, dense=space.kind == "dense", pair=(first, second))
    arrays = {("lo", ""): lo, ("hi", ""): hi, ("box", ""): box, **_extents(space)}
    weight = np.prod(hi - lo, axis=1) * (len(space) // max(1, math.prod(extents)))
    waves: tuple[Ints, ...] = ()
    if not analysis.strategy.tiled:
        waves = tuple(np.arange(cols, dtype=np.int64) + step * cols for step in range(rows))
    return LoopVisits(order, weight, form, row_cut, col_cut, arrays, waves)


# --- records --------------------------------------------------------------------------------------------------------


def _ragged(analysis: Analysis) -> LoopVisits:
    """Ranges of records with equal work: 1 for each record and 1 for each entry of its ragged fields."""
    space = analysis.space
    work = np.ones(len(space), np.int64)
    for _, column in space.ragged:
        work += np.diff(column.ptr)
    count = _parts(analysis, max(1, len(space)))
    cut = straight(work, count)
    order = chain(count) if analysis.strategy.name == "chain" else independent(count)
    lo, hi = cut.bounds[:-1, None].copy(), cut.bounds[1:, None].copy()
    running = np.concatenate([[0], np.cumsum(work)])
    weight = running[cut.bounds[1:]] - running[cut.bounds[:-1]]
    arrays = {("lo", ""): lo, ("hi", ""): hi, **fields_of(space, None), **ragged_arrays(space)}
    return LoopVisits(order, weight, VisitForm("range"), cut, even(1, 1), arrays)


def _entries(
    space: Space, order: Order, weight: Ints, which: NDArray[Any] | None, rows: BlockPartition, cols: BlockPartition
) -> LoopVisits:
    assert space.records is not None
    arrays = entries(space, space.records.index, weight, which)
    return LoopVisits(order, weight, VisitForm("entries"), rows, cols, arrays)


def _sparse_one(analysis: Analysis) -> LoopVisits:
    """Sparse records cut along one index, or in their own order if no index is cut."""
    space, dims = analysis.space, analysis.strategy.dims
    assert space.records is not None
    n = len(space)
    if not dims:
        count = _parts(analysis, max(1, n))
        cut = even(n, count)
        order = chain(count) if analysis.strategy.name == "chain" else independent(count)
        return _entries(space, order, cut.sizes, None, cut, even(1, 1))
    index = space.records.index[dims[0]]
    extent = space.dims[dims[0]].extent
    count = _parts(analysis, max(1, extent))
    cut = straight(np.bincount(index, minlength=extent), count)
    block = cut.block_of()[index]
    order = chain(count) if analysis.strategy.name == "chain" else independent(count)
    which = _sorted(analysis, block)
    return _entries(space, order, np.bincount(block, minlength=count), which, cut, even(1, 1))


def _sorted(analysis: Analysis, visit: NDArray[Any]) -> NDArray[Any]:
    """Positions of the records by visit; inside a visit in their own order, or in index order for an ordered loop."""
    assert analysis.space.records is not None
    if analysis.options.ordered or analysis.strategy.name == "2d ordered":
        return np.lexsort((*reversed(analysis.space.records.index), visit))
    narrow = visit.astype(np.int16) if len(visit) and int(visit.max()) < 2**15 else visit
    return np.argsort(narrow, kind="stable")


def _sparse_two(analysis: Analysis, crew: Crew) -> LoopVisits:
    """Sparse records over a grid of blocks."""
    space = analysis.space
    records = space.records
    assert records is not None
    first, second = analysis.strategy.dims
    shape = (space.dims[first].extent, space.dims[second].extent)
    rows, cols = _square(analysis, shape)
    order = _order(analysis, rows, cols)
    row_cut = straight(np.bincount(records.index[first], minlength=shape[0]), rows)
    col_cut = straight(np.bincount(records.index[second], minlength=shape[1]), cols)
    if analysis.strategy.name == "2d unordered" and len(space.dims) == 2 and _simple(space):
        return _sparse_fast(space, order, row_cut, col_cut, (first, second), crew)
    table = np.zeros((rows, cols), np.int64)
    table[order.row_block, order.col_block] = np.arange(len(order))
    visit = table[row_cut.block_of()[records.index[first]], col_cut.block_of()[records.index[second]]]
    weight = np.bincount(visit, minlength=len(order))
    return _entries(space, order, weight, _sorted(analysis, visit), row_cut, col_cut)


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
