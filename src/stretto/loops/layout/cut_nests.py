"""Cut loops with many or transformed indices: rotations along several, steps of outer ones, skewed tiles."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stretto.data.partition import FEWEST_PER_VISIT, straight
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.strategy import unimodular
from stretto.loops.emit.visit_form import VisitForm
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent, several
from stretto.schedule.orders.wavefront import wavefront

from .block_counts import parts, square
from .loop_visits import LoopVisits, even
from .visit_forms import by_visit, field_arrays, grid_box, grid_form, visits_of_entries

FEWEST_IN_STEP = 1024  # iterations of a visit of one step of outer indices
MOST_VISITS = 2**16  # of all steps: the order of visits takes some microseconds for each
LEAST_OF_SEVERAL = 64  # iterations of a visit of a rotation along three axes or more, on average


def rotated(analysis: Analysis) -> LoopVisits:
    """A rotation of blocks along three dimensions or more."""
    space, dims = analysis.space, analysis.strategy.dims
    extents = [space.dims[d].extent for d in dims]
    first, _ = square(analysis, (min(extents), min(extents)))
    if not analysis.options.blocks:
        most = min(MOST_VISITS, len(space) / LEAST_OF_SEVERAL) ** (1 / len(dims))
        first = max(min(first, 4), min(first, int(most)))
    blocks = max(1, min(first, *extents))
    order, block = several(blocks, len(dims))
    if space.records is None or space.kind == "dense":
        cuts = [even(extent, blocks) for extent in extents]
        lo, hi, weight = grid_box(space.dims, {d: (cuts[k], block[:, k]) for k, d in enumerate(dims)},
                              len(order))  # fmt: skip
        arrays = {("lo", ""): lo, ("hi", ""): hi, **field_arrays(space)}
        visits = LoopVisits(order, weight, grid_form(space), cuts[0], cuts[1], arrays)
    else:
        index = space.records.index
        cuts = [
            straight(np.bincount(index[d], minlength=extent), blocks) for d, extent in zip(dims, extents, strict=True)
        ]
        table = np.zeros((blocks,) * len(dims), np.int64)
        table[tuple(block.T)] = np.arange(len(order))
        visit = table[tuple(cut.block_of()[index[d]] for d, cut in zip(dims, cuts, strict=True))]
        weight = np.bincount(visit, minlength=len(order))
        visits = visits_of_entries(space, order, weight, by_visit(analysis, visit), cuts[0], cuts[1])
    return _in_steps_of_passes(visits, analysis, blocks) if analysis.strategy.waves else visits


def _in_steps_of_passes(visits: LoopVisits, analysis: Analysis, blocks: int) -> LoopVisits:
    """Waves of a rotation along several axes: the visits of one step share no block."""
    width = analysis.options.width
    every = np.arange(len(visits), dtype=np.int64)
    waves = tuple(every[at : min(at + width, step + blocks)] for step in range(0, len(every), blocks)
                  for at in range(step, step + blocks, width))  # fmt: skip
    return replace(visits, waves=waves)


def stepped(analysis: Analysis) -> LoopVisits:
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
    lo, hi, weight = grid_box(space.dims, cuts, len(step))
    arrays = {("lo", ""): lo, ("hi", ""): hi, **field_arrays(space)}
    if strategy.tiled:
        return LoopVisits(
            Order("wavefront, stepped", rows, cols, row, col), weight, grid_form(space), row_cut, col_cut, arrays
        )
    diagonal = step * (rows + cols - 1) + (row + col if len(ends) == 2 else 0)
    by_wave = np.argsort(diagonal, kind="stable").astype(np.int64)
    waves = tuple(part for part in np.split(by_wave, np.cumsum(np.bincount(diagonal))[:-1]) if len(part))
    return LoopVisits(independent(len(step)), weight, grid_form(space), row_cut, col_cut, arrays, waves)


def _blocks_within(analysis: Analysis, steps: int) -> tuple[int, int]:
    """Blocks along the cut dimensions of one step: fewer where a step has few iterations."""
    extents = [analysis.space.dims[d].extent for d in analysis.strategy.dims]
    asked, each = analysis.options.blocks, max(1, len(analysis.space) // max(1, steps))
    if len(extents) == 1:
        most = min(2 * analysis.options.width, extents[0], max(1, each // FEWEST_PER_VISIT))
        most = min(most, max(2, MOST_VISITS // max(1, steps)))
        return min(asked[0], extents[0]) if asked else max(1, most), 1
    if asked:
        return min(asked[0], extents[0]), min(asked[-1], extents[1])
    most = min(analysis.options.width, max(2, math.isqrt(MOST_VISITS // max(1, steps))))
    side = max(1, min(most, math.isqrt(each // FEWEST_IN_STEP) or 1, *extents))
    return side, side


def transformed(analysis: Analysis) -> LoopVisits:
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
        rows, cols = square(analysis, (int(spans[0]), int(spans[1])))
        order = wavefront(rows, cols)
    else:
        rows, cols = int(spans[0]), parts(analysis, int(spans[1]))
        order = independent(rows * cols)
    row_cut, col_cut = even(int(spans[0]), rows), even(int(spans[1]), cols)
    block = np.divmod(np.arange(rows * cols), cols)
    lo = np.stack([low[0] + row_cut.bounds[block[0]], low[1] + col_cut.bounds[block[1]]], axis=1)
    hi = np.stack([low[0] + row_cut.bounds[block[0] + 1], low[1] + col_cut.bounds[block[1] + 1]], axis=1)
    box = np.array([[dim.start, dim.step, dim.extent] for dim in space.dims], np.int64)
    steps, inverse = tuple(dim.step for dim in space.dims), unimodular.inverse(matrix)
    form = VisitForm("skewed", steps, inverse, dense=space.kind == "dense", pair=(first, second))
    arrays = {("lo", ""): lo, ("hi", ""): hi, ("box", ""): box, **field_arrays(space)}
    weight = np.prod(hi - lo, axis=1) * (len(space) // max(1, math.prod(extents)))
    waves: tuple[Ints, ...] = ()
    if not analysis.strategy.tiled:
        waves = tuple(np.arange(cols, dtype=np.int64) + step * cols for step in range(rows))
    return LoopVisits(order, weight, form, row_cut, col_cut, arrays, waves)
