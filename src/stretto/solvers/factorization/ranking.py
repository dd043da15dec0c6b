"""Ranking losses by SGD: what a pass draws its items from, its step, and its description in a plan.

Every block of columns must hold enough items to compare with, so an axis is cut more coarsely than for ratings, and a
popular column counts as a few: else a block of one popular item would be compared with nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition, cut
from stretto.kernels.factorization.ranking import METHODS, ranking_worker
from stretto.kernels.numeric.lanes import unrolled
from stretto.plan.arrays import Array, constant, number
from stretto.runtime.blocks.step import BlockStep, make_step
from stretto.runtime.blocks.survey import Survey
from stretto.schedule.orders.order import Ints, Order

from .problem import RANKING_REGS, FactorizationProblem

# Columns of an average block, at least; small sets have some blocks of fewer, so that two workers have something to do.
_NARROWEST, _FEW_BLOCKS, _FEWEST = 256, 4, 16
# Entries for which a column counts in the cut, in units of the mean.
_HEAVIEST = 4
NUMBERS = ("step", "lam", "lam_bias", "confidence", "mean_weight", "method", "draws", "seed", "epoch", "count")
POOL = ("pool", "pool_first", "pool_end")


@dataclass(frozen=True, eq=False)
class Ranked:
    """What a pass of a ranking loss reads besides ratings and factors."""

    pool: NDArray[np.int32]  # [n] columns with entries, as positions in the plan's order, ascending
    first: Ints  # [V] where the columns of each visit begin in `pool`
    end: Ints  # [V] where they end
    confidence: float  # what a value of 1 adds to the weight of a value
    mean_weight: float
    seed: int

    @classmethod
    def of(cls, problem: FactorizationProblem, seen: Survey, cols: BlockPartition, order: Order, seed: int) -> Ranked:
        """From the counts of the ratings."""
        pool = np.sort(cols.place[seen.col_counts > 0]).astype(np.int32)
        at = np.searchsorted(pool, cols.bounds)
        size = math.hypot(seen.mean, seen.std)
        confidence = problem.alpha / size if size > 0 else 0.0
        mean_weight = 1.0 + confidence * max(seen.mean, 0.0)
        first, end = at[order.col_block], at[order.col_block + 1]
        return cls(pool, first.astype(np.int64), end.astype(np.int64), confidence, mean_weight, seed)


def cut_columns(counts: Ints, blocks: int, seed: int) -> BlockPartition:
    """Cut the columns by their entries, each counted as the mean at least and `_HEAVIEST` times as much at most."""
    mean = int(counts.sum()) // max(1, len(counts)) + 1
    return cut(np.clip(counts, mean, _HEAVIEST * mean), blocks, seed=seed, axis=1)


def ranked_side(columns: int) -> int:
    """The most blocks of columns.

    >>> ranked_side(100), ranked_side(3449), ranked_side(100_000)
    (4, 13, 390)
    """
    return max(1, columns // _NARROWEST, min(_FEW_BLOCKS, columns // _FEWEST))


def ranking_penalties(problem: FactorizationProblem, step: float) -> tuple[float, float]:
    """The penalties of factors and biases for one step; at most what shrinks a number to zero."""
    reg = RANKING_REGS[problem.loss] if problem.reg is None else problem.reg
    bias_reg = reg if problem.bias_reg is None else problem.bias_reg
    return min(reg, 1.0 / step), min(bias_reg, 1.0 / step)


def ranking_step(
    problem: FactorizationProblem,
    order: Order,
    epoch: int,
    arrays: tuple[Any, ...],
    states: tuple[Any, ...],
    ranked: Ranked,
) -> BlockStep:
    """One pass of a ranking loss; arrays and states as of `sgd_step`."""
    step = problem.step_at(epoch)
    numbers = (step, *ranking_penalties(problem, step), ranked.confidence, ranked.mean_weight)
    settings = tuple(np.float32(each) for each in numbers)
    draws = (METHODS[problem.loss], problem.draws, ranked.seed, problem.epochs_before + epoch)
    pool = (ranked.pool, ranked.first, ranked.end)
    tail = (*pool, *settings, *draws, unrolled(states[0].shape[1]))
    return make_step(problem.loss, ranking_worker, order, np.diff(arrays[0]), *arrays, *states, *tail)


def ranking_arguments() -> tuple[Array, ...]:
    """Descriptions of the arguments of `ranking_worker` after the states."""
    return (*map(constant, POOL), *map(number, NUMBERS))
