"""The start of a fit with many samples: the solution for a sixteenth of them.

It is about as far from the solution for all samples as chance allows, and saves most of the passes over all of them.
Blocks of samples are taken at equal distances, so that data sorted by class or time give samples of all parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design

from ..regression import RegressionProblem

_BLOCK, _EVERY = 64, 16  # samples of a block; one block in so many is taken
_LEAST = 1 << 14  # samples from which on a pass over all of them takes longer than a fit to some
_PER_FEATURE = 10  # samples of each class for a feature, at least: fewer say little about the solution
_CLOSE = 0.25  # of what chance leaves of the objective, features / samples: the sampled fit is solved to that gap


def sampled_problem(problem: RegressionProblem) -> RegressionProblem | None:
    """The problem with some of the samples, whose weights stand for all; None if they are too few."""
    design, (n, p) = problem.design, problem.design.shape
    if n < _LEAST or design.sparse or not isinstance(design, Design):
        return None
    count = n // (_BLOCK * _EVERY)

    def some(values: NDArray[Any]) -> NDArray[Any]:
        rows = values.shape[:-1]
        blocks = values[..., : count * _BLOCK * _EVERY].reshape(*rows, count, _BLOCK * _EVERY)
        return np.ascontiguousarray(blocks[..., :_BLOCK]).reshape(*rows, count * _BLOCK)

    y, weight = some(problem.y), some(problem.weight)
    up = int(np.count_nonzero((y > 0.0) & (weight > 0.0)))
    down = int(np.count_nonzero((y < 0.0) & (weight > 0.0)))
    if min(up, down) < _PER_FEATURE * p:
        return None
    weight = weight * (float(problem.weight.sum()) / float(weight.sum()))
    X = Design((count * _BLOCK, p), dense=some(design.parts[0]).T)
    return replace(problem, design=X, y=y, weight=weight)


def sampled_gap(problem: RegressionProblem, loss: float, gap: float, share: float) -> float:
    """The duality gap to which the sampled problem is solved, for this gap and share of the objective of all samples.

    loss : at β = 0
    """
    n, p = problem.design.shape
    return max(min(gap, share * loss), _CLOSE * p / n * loss)
