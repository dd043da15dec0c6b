"""Prior means from side features: factors and bias of a row are a linear map of its features plus an own part.

Penalties count the own part alone, so rows with few ratings stay near what their features say. A fit alternates: an
epoch learns factors with the means as they are, then maps are fitted to the factors by ridge regression, in which every
rating counts the same. The penalty of a map is chosen by held-out rows while the factors are still free of means, so
that it does not confirm itself: useless features get no map. Rows without ratings have their means as factors.

ALS solves rows with their means. A pass of SGD shrinks factors to zero as ever, and what it took of the means is added
after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.survey import Survey
from stretto.schedule.orders.order import Ints

from .features import NO_MAP, FeatureMatrix, FeatureRegression, Standard
from .penalties import penalties
from .problem import FactorizationProblem, Factors
from .ranking import ranking_penalties

Floats = NDArray[np.float64]
NO_PRIOR = np.zeros((0, 0), np.float32)
# Epochs before the one that is followed by the first map, at most, and at most a quarter of all. Factors of ALS take
# longer until features explain them.
_BEFORE = {"sgd": 2, "als": 5}
_STEPS, _TOL = 30, 1e-4  # of conjugate gradients after an epoch, from the last map
Shrinkage = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]


class PriorMeans:
    """Maps of features, and the means that follow from them, in standardised units and the plan's order.

    Attributes
    ----------
    priors : list of [m, padded] float32 arrays
        Means of the factors of rows and of columns; without rows for a side that has no features. ALS with biases has
        those of the biases in column `rank`.
    counts : tuple of [m] arrays
        Ratings of each row and column.
    """

    def __init__(
        self,
        problem: FactorizationProblem,
        factors: Factors,
        features: tuple[FeatureMatrix | None, FeatureMatrix | None],
        seen: Survey,
        crew: Crew,
    ) -> None:
        self._problem, self._crew = problem, crew
        self._states = ((factors.W, factors.b), (factors.H, factors.c))
        self._biased = factors.biased
        rank, q = problem.rank, problem.rank + factors.biased
        self._groups = (slice(0, rank), slice(rank, q))[: 1 + factors.biased]
        self._first = min(_BEFORE[problem.solver], problem.epochs // 4)
        self.priors, self._bias, self.counts = [], [], (self._placed(seen, 0), self._placed(seen, 1))
        self.maps: list[dict[str, Floats] | None] = []
        self._regressions: list[FeatureRegression | None] = []
        for side, given in enumerate(features):
            state, n = self._states[side][0], self.counts[side]
            if given is None:
                self.priors.append(NO_PRIOR)
                self._bias.append(np.zeros(0, np.float32))
                self.maps.append(None)
                self._regressions.append(None)
                continue
            order = np.empty(len(state.cut), np.int64)
            order[state.cut.place] = np.arange(len(state.cut))
            self._regressions.append(FeatureRegression(given.taken(order), n.astype(np.float64), crew))
            self.priors.append(np.zeros_like(state.array))
            self._bias.append(np.zeros(len(n), np.float32))
            zeros = {"coef": np.zeros((given.columns, q)), "level": np.zeros(q)}
            self.maps.append(zeros | {"penalty": np.full(len(self._groups), NO_MAP), "begun": np.zeros(1)})

    def _placed(self, seen: Survey, side: int) -> Ints:
        cut, counts = self._states[side][0].cut, (seen.row_counts, seen.col_counts)[side]
        placed = np.empty(len(counts), np.int64)
        placed[cut.place] = counts
        return placed

    def standard_of(self, side: int) -> Standard | None:
        """Mean and spread of the features of a side."""
        regression = self._regressions[side]
        return None if regression is None else regression.standard

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The maps: live arrays, not copies."""
        sides = [(name, one) for name, one in zip(("rows", "columns"), self.maps, strict=True) if one is not None]
        return {f"map {side}/{name}": array for side, one in sides for name, array in one.items() if array.size}

    def learn(self, side: int, epoch: int) -> None:
        """Fit the map of a side to its factors, and set its means."""
        regression, own = self._regressions[side], self.maps[side]
        if regression is None or own is None or epoch < self._first:
            return
        state, bias = self._states[side]
        rank = self._problem.rank
        targets = np.empty((len(state.array), rank + self._biased))
        targets[:, :rank] = state.array[:, :rank]
        if self._biased:
            targets[:, rank] = bias.array
        without = np.isinf(own["penalty"])
        if without.any() and epoch in (self._first, 2 * self._first + 1):
            own["penalty"][:] = np.where(without, regression.chosen_penalty(targets, self._groups), own["penalty"])
        each = np.repeat(own["penalty"], [group.stop - group.start for group in self._groups])
        own["coef"][:], own["level"][:] = regression.solve(targets, each, own["coef"], steps=_STEPS, tol=_TOL)
        own["begun"][0] = 1.0
        self.refresh(side)

    def refresh(self, side: int) -> None:
        """Set the means of a side from its map."""
        regression, own = self._regressions[side], self.maps[side]
        if regression is None or own is None or not own["begun"][0]:
            return
        rank, prior = self._problem.rank, self.priors[side]
        means = regression.standard.means(regression.X, own["coef"], own["level"], self._crew)
        prior[:, :rank] = means[:, :rank]
        if self._biased:
            self._bias[side][:] = means[:, rank]
            if self._problem.solver == "als":
                prior[:, rank] = means[:, rank]

    def fill(self) -> None:
        """Give rows and columns without ratings their means."""
        for side, (state, bias) in enumerate(self._states):
            if len(self.priors[side]):
                rank, empty = self._problem.rank, self.counts[side] == 0
                state.array[empty, :rank] = self.priors[side][empty, :rank]
                if self._biased:
                    bias.array[empty] = self._bias[side][empty]

    def restore(self, lost: Shrinkage) -> None:
        """Add what a pass of SGD took of the means. lost: shares of factors and biases, for each side."""
        for side, (state, bias) in enumerate(self._states):
            if len(self.priors[side]):
                self.refresh(side)
                np.add(state.array, lost[side][0][:, None] * self.priors[side], out=state.array)
                if self._biased:
                    np.add(bias.array, lost[side][1] * self._bias[side], out=bias.array)


def shrinkage(problem: FactorizationProblem, epoch: int, scale: float, counts: tuple[Ints, Ints]) -> Shrinkage:
    """The shares of factors and biases that the penalties take in a pass of plain SGD, for rows and columns.

    counts : ratings of each row and column
    """
    step = problem.step_at(epoch)
    if problem.ranking:
        return _ranking_shrinkage(problem, step, counts)
    reg = penalties(problem, scale)
    lam, lam_bias = (min(each, 1.0 / step) for each in (reg.factors, reg.biases))
    decay, (bias_step, bias_decay) = problem.decay_at(epoch), problem.bias_step_at(epoch)
    found = []
    for n in counts:
        once = 1.0 / np.maximum(n, 1)
        own, own_bias = step / np.sqrt(1.0 + n * decay), bias_step / (1.0 + n * bias_decay)
        shares = (own * (lam + reg.ridge * once), own_bias * (lam_bias + reg.bias_ridge * once))
        found.append(tuple((1.0 - _power(np.maximum(1.0 - each, 0.0), n)).astype(np.float32) for each in shares))
    return tuple(found)  # type: ignore[arg-type]


def _ranking_shrinkage(problem: FactorizationProblem, step: float, counts: tuple[Ints, Ints]) -> Shrinkage:
    """`shrinkage` of a ranking loss; how often a column is drawn is estimated by the mean."""
    lam, lam_bias = ranking_penalties(problem, step)
    pairs = 1 if problem.loss == "warp" else problem.draws
    drawn = int(counts[1].sum()) * pairs // max(1, int(np.count_nonzero(counts[1])))
    own = pairs + (problem.loss == "logistic")
    updates = (counts[0] * own, np.where(counts[1] > 0, counts[1] * (1 if own > pairs else pairs) + drawn, 0))
    found = []
    for n in updates:
        shares = [np.full(len(n), max(1.0 - step * each, 0.0)) for each in (lam, lam_bias)]
        found.append(tuple((1.0 - _power(each, n)).astype(np.float32) for each in shares))
    return tuple(found)  # type: ignore[arg-type]


def _power(base: Floats, exponent: Ints) -> Floats:
    """base ** exponent by repeated squaring: NumPy's own power has other last bits on other processors."""
    result, base, left = np.ones_like(base), base.copy(), exponent.copy()
    while left.any():
        result = np.where(left & 1, result * base, result)
        base *= base
        left >>= 1
    return result
