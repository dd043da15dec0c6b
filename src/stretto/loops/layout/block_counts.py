"""Number of blocks along the dimensions that a loop cuts: the user's, or one that fits the plan's width."""

from __future__ import annotations

import math

from stretto.data.partition import FEWEST_PER_VISIT, choose_blocks
from stretto.errors import PlanError
from stretto.loops.analyse.analysis import Analysis

from .body_cost import operations

PER_STALE_VISIT = 32  # iterations of a visit in a buffered loop
FEWEST_WAVES, MOST_WAVES = 32, 256
MOST_VISITS = 2**16
SMALL_ACCUMULATOR = 256  # elements of accumulators, all together, that visits may hold at no cost
PER_ELEMENT = 128  # operations of a loop for each element of an accumulator that a further visit begins and folds


def wanted(analysis: Analysis, axis: int, most: int) -> int:
    """Number of blocks along the first or second cut axis: the user's, or the one for the plan's width."""
    asked = analysis.options.blocks
    if axis < len(asked):
        if asked[axis] < 1:
            raise PlanError(f"blocks={asked}: there is at least one block along an axis")
        return min(asked[axis], most)
    return most


def parts(analysis: Analysis, extent: int) -> int:
    """Blocks along a single axis."""
    if analysis.options.blocks:
        return max(1, wanted(analysis, 0, extent))
    if analysis.strategy.name == "buffered":
        return stale(analysis, extent)
    most = min(2 * analysis.options.width, affordable(analysis))
    return max(1, min(most, extent, len(analysis.space) // FEWEST_PER_VISIT or 1))


def affordable(analysis: Analysis) -> int:
    """Most visits of a loop that folds into accumulators.

    Every visit has a part of its own of each accumulator, which is filled before and folded after it. Where the parts
    are large and the loop computes little, that would take longer than the loop.
    """
    size = sum(math.prod(extent or 1 for extent in array.shape) for array in analysis.body.arrays
               if array.role == "accumulator")  # fmt: skip
    return MOST_VISITS if size <= SMALL_ACCUMULATOR else 1 + int(operations(analysis) / (PER_ELEMENT * size))


def stale(analysis: Analysis, extent: int) -> int:
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


def square(analysis: Analysis, shape: tuple[int, int]) -> tuple[int, int]:
    """Blocks along the two axes of a grid: 2 × width, or width with waves, which wait for the slowest visit anyway."""
    width = max(1, analysis.options.width // 2) if analysis.strategy.waves else analysis.options.width
    blocks = choose_blocks(max(1, len(analysis.space)), (max(1, shape[0]), max(1, shape[1])), width)
    blocks = max(1, min(blocks, math.isqrt(affordable(analysis))))
    if analysis.options.blocks:
        first = wanted(analysis, 0, max(1, shape[0]))
        return first, wanted(analysis, 1, max(1, shape[1])) if len(analysis.options.blocks) > 1 else first
    return blocks, blocks
