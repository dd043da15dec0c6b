"""Newton steps of softmax regression with an L2 penalty alone and sparse rows, by conjugate gradients.

The gradient of the quadratic model at its approximate minimum, in the norm of the penalty, is what the step would leave
of the duality gap if the model were exact. So the iterations end where that is a small share of what it is before the
step, or of the gap that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.newton import softmax_ridge as kernels

from .point import SoftmaxPoint, SoftmaxProblem

Floats = NDArray[np.float64]

MOST = 60  # iterations of a step; where more are needed, quasi-Newton steps continue
_FORCING = 0.02  # share of the gradient's square that a step may leave to the next one
_ENOUGH = 0.3  # share of the wanted gap that a step may leave


def suits_ridge(problem: SoftmaxProblem) -> bool:
    """Whether a problem is sparse, and every feature has an L2 penalty and no other."""
    return problem.rows.sparse and not np.any(problem.l1 > 0.0) and bool(np.all(problem.ridge[:-1] > 0.0))


@dataclass(frozen=True)
class Moments:
    """What steps need of the features: with intercepts, they are centred."""

    mean: Floats  # [p] means under the weights, 0 without intercepts
    square: Floats  # [p + 1] Σ weight·(x − mean)², and Σ weight for the intercept

    @staticmethod
    def of(point: SoftmaxPoint) -> Moments:
        """Two passes over the data."""
        square = point.passes.squares()
        mean = point.mass[:-1] / square[-1]
        square[:-1] = np.maximum(square[:-1] - mean * mean * square[-1], 0.0)
        return Moments(mean, square)


def ridge_step(point: SoftmaxPoint, moments: Moments, wanted: float) -> tuple[Floats, int]:
    """[p + 1, K] a step towards the minimum of the quadratic model, and the iterations made.

    wanted : the gap that is wanted
    """
    problem, passes = point.problem, point.passes
    product, move, turn = (one[passes.profile] for one in (kernels.product, kernels.move, kernels.turn))
    ridge, mean = problem.ridge, moments.mean
    curved = moments.square[:, None] * passes.unsure()[None] + ridge[:, None]
    even = 1.0 / np.maximum(curved, 1e-12 * float(curved.max()))
    even[:, problem.classes :] = 0.0
    if not problem.intercept:
        even[-1] = 0.0
    left = -point.G
    left[:-1] -= mean[:, None] * left[-1]
    left -= ridge[:, None] * point.W
    way, step, bent = np.zeros_like(left), np.zeros_like(left), np.zeros_like(left)
    size, beyond = move(0.0, step, bent, even, ridge, way, left)
    enough = max(2.0 * _ENOUGH * wanted, _FORCING * beyond)
    turn(0.0, even, left, step)
    made = 0
    while made < MOST and size > 0.0 and not passes.crew.asked:
        bent = passes.curve(_plain(step, mean).astype(point.dtype, copy=False))
        bent[:-1] -= mean[:, None] * bent[-1]
        made += 1
        bend = product(step, bent, ridge)
        if not bend > 0.0:
            break
        now, beyond = move(size / bend, step, bent, even, ridge, way, left)
        if beyond <= enough:
            break
        turn(now / size, even, left, step)
        size = now
    if problem.intercept:
        # The dual point needs residuals that add up to zero in each class.
        k, change = problem.classes, np.empty(problem.classes)
        rest = left[-1, :k].copy()
        kernels.intercepts[passes.profile](passes.probabilities(), passes.weight, rest, np.empty((k, k)), change)
        way[-1, :k] += change
    return _plain(way, mean), made


def _plain(V: Floats, mean: Floats) -> Floats:
    """Weights of centred features as weights of the features as they are."""
    made = V.copy()
    made[-1] -= np.einsum("j,jk->k", mean, V[:-1])
    return made
