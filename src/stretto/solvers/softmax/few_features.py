"""Softmax regression of few dense features and classes: Newton steps, a whole fit in one compiled call.

The call (`kernels/newton/softmax_fit.py`) runs in the calling thread. With callbacks or checkpoints, each step is a
call of its own, with the same results. Where the steps make no more progress, the quasi-Newton solver continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.kernels.linear.column_statistics import clear_constant
from stretto.kernels.linear.softmax_tiles import strips
from stretto.kernels.newton import logistic_step, softmax_bound, softmax_fit, softmax_rows
from stretto.kernels.newton.block_products import ROWS
from stretto.runtime.blocks.crew import Crew

from .point import SoftmaxProblem

Floats = NDArray[np.float64]

_STEPS = 50  # a usual fit takes fewer than ten
_STATE = "scores", "samples", "packed", "coef", "small", "column", "H", "numbers", "count"

# Estimated nanoseconds, measured on one core of an AMD EPYC (AVX-512): a product of two values under the weights of two
# classes, the other passes over a value for each class, those over a sample for each class, and an element of a factor.
# The choice depends on the shape alone: results do not depend on the machine.
_PRODUCT, _VALUE, _CHANCE, _FACTOR = 0.07, 0.25, 6.0, 0.06
_STEPS_USUAL = 5
_LONGEST = 30e6  # a longer fit takes less time with quasi-Newton steps, which use threads
_LONGEST_L1 = 300e6  # the same with an L1 penalty, for which quasi-Newton steps take longer
_MOST_FEATURES, _MOST = 127, 512  # features whose products fit in the L2 cache; coefficients that one thread factorises


def suits_newton(samples: int, features: int, classes: int, l1: bool = False) -> bool:
    """Whether a fit of a dense matrix of this shape is short enough for one thread.

    l1 : there is an L1 penalty, so that models are smaller

    >>> suits_newton(7_000, 28, 4), suits_newton(100, 7_000, 3), suits_newton(7_000, 28, 50)
    (True, False, False)
    >>> suits_newton(3_000, 100, 4), suits_newton(3_000, 100, 4, l1=True)
    (False, True)
    """
    size = (features + 1) * classes
    if not (0 < features <= _MOST_FEATURES and size <= _MOST):
        return False
    pairs = classes * (classes - 1) / 2
    sample = _PRODUCT * pairs * features * (features + 3) / 2 + classes * (_VALUE * features + _CHANCE)
    if l1:
        return samples * sample * _STEPS_USUAL <= _LONGEST_L1
    return (samples * sample + _FACTOR * size**3) * _STEPS_USUAL <= _LONGEST


class NewtonFit:
    """A fit in progress."""

    def __init__(self, problem: SoftmaxProblem, profile: str) -> None:
        self.problem, self.profile = problem, profile
        n, p = problem.rows.shape
        k = problem.classes
        lead = (p + 2) // 2 * 2
        span = lead + (k + 3) // 4 * 4
        blocks, size = -(-n // ROWS), (p + 1) * k
        self._shape = n, p, k, span, lead
        self.packed = np.empty(blocks * span * ROWS)
        self.scores = np.zeros((softmax_rows.SCORES, blocks * k * ROWS))
        self.samples = np.zeros((softmax_rows.SAMPLES, blocks * ROWS))
        self.classes = np.empty((softmax_bound.CLASSES + k + 1, k))
        self.mean, square, self.first = np.empty(p), np.empty(p), np.empty(size)
        self.coef, self.numbers = np.zeros(size), np.zeros(softmax_bound.SIZE)
        self._tile = np.empty(8)
        mass = softmax_fit.prepare[profile](
            problem.rows.dense, problem.y, problem.weight, problem.intercept, k, span, lead, self.mean, square,
            self.packed, self.scores, self.samples, self.classes, self._tile, self.first, self.numbers,
        )  # fmt: skip
        norm = np.sqrt(square)
        clear_constant(norm, self.mean, mass)
        norms = np.zeros((p + 1, k))
        norms[:p] = norm[:, None]
        if problem.intercept:
            norms[p, : k - 1] = math.sqrt(mass)
            self.coef[p * k :] = self.classes[softmax_bound.ODDS]
        self._norm = norms.ravel()
        self._l1, self._l2 = np.repeat(problem.l1, k), np.repeat(problem.ridge, k)
        self.small = np.zeros((logistic_step.SMALL, size))
        self.small[logistic_step.PULL] = self.first
        self.column = np.empty(4 * size, np.int64)
        width = (p + 4) // 4 * 4
        self._scratch = np.empty(size), np.empty((width + 1) * ROWS), np.empty(k * (k - 1) // 2 * width * width)
        self.H, self._factor = np.empty((size, size)), np.empty((size, size))
        self.count = np.zeros(1, np.int64)  # rounds so far

    def start(self, W: Floats) -> None:
        """Move to weights W [p + 1, K]."""
        _, p, k, _, _ = self._shape
        coef = W[:, :k].copy()
        coef[:p][self._norm.reshape(p + 1, k)[:p] == 0.0] = 0.0
        if self.problem.intercept:
            coef[p] += self.mean @ coef[:p]
        self.coef[:] = coef.ravel()
        softmax_fit.predict[self.profile](
            *self._shape, self.packed, self.coef, self.scores, self.samples, self.numbers
        )  # fmt: skip

    def advance(self, gap: float, steps: int) -> None:
        """Make Newton steps until the gap is reached, at most `steps`."""
        change, block, products = self._scratch
        softmax_fit.fit[self.profile](
            *self._shape, self.packed, self.problem.intercept, self._norm, self._l1, self._l2, self.first, gap, steps,
            self.coef, self.scores, self.samples, self.classes, self.small, self.column, self._tile, change, block,
            products, self.H, self._factor, self.numbers,
        )  # fmt: skip
        if not math.isfinite(self.objective):
            raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")

    @property
    def objective(self) -> float:
        return float(self.numbers[logistic_step.OBJECTIVE])

    @property
    def gap(self) -> float:
        return float(self.numbers[logistic_step.GAP])

    @property
    def stalled(self) -> bool:
        return bool(self.numbers[logistic_step.STALLED] != 0.0)

    @property
    def W(self) -> Floats:
        """[p + 1, K] weights of the columns as they are."""
        _, p, k, _, _ = self._shape
        W = np.zeros((p + 1, strips(k)[0]))
        W[:, :k] = self.coef.reshape(p + 1, k)
        if self.problem.intercept:
            W[p, :k] -= self.mean @ W[:p, :k]
        return W

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`."""
        for name in _STATE:
            getattr(self, name)[:] = state[name]


def run(
    fit: NewtonFit,
    crew: Crew,
    gap: float,
    max_rounds: int,
    look: Callable[[dict[str, Any]], bool] | None,
    ended: Callable[[], None] | None,
) -> bool:
    """Run the rounds of a fit; return whether it ended on request.

    The first round evaluates the start, and each later one makes a Newton step.
    """
    alone, most = look is None and ended is None, min(max_rounds, _STEPS + 1)
    while True:
        done = int(fit.count[0])
        fit.advance(gap, most - 1 - done if alone else int(done > 0))
        made = int(fit.numbers[logistic_step.STEPS])
        fit.count[0] += made + (done == 0) if alone else 1
        number = int(fit.count[0])
        if look is not None and look(
            {"round": number, "objective": fit.objective, "gap": fit.gap, "looks": number, "W": fit.W}
        ):
            return True
        if fit.gap <= gap or fit.stalled or number >= most or crew.asked:
            return crew.asked
        if ended is not None:
            ended()
