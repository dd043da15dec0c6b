"""Folds of `LogisticRegressionCV`: fits of each fold, their scores on held-out samples, and what is kept of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError, PlanError
from stretto.models import checks
from stretto.models.sklearn_base import ConvergenceWarning

from ..base import FitSession
from .logistic_paths import QUICK, ClassPath, Samples, follow_classes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Fold(NamedTuple):
    """The result of one fold."""

    scores: Floats  # [ratios, k]
    coefs: Floats  # [ratios, k, outputs, p + 1], without an intercept [.., p]
    rounds: Ints  # [ratios, k]
    left: int  # fits that ended above the gap that was asked for


def scorer_of(model: Any) -> Any:
    """scikit-learn's scorer for `scoring`; PlanError for an unknown one, or a callable that is no scorer."""
    scoring = model.scoring
    if callable(scoring) and _takes_samples(scoring):
        return scoring
    from sklearn.metrics import get_scorer  # imports all of scikit-learn's metrics

    if scoring is None or isinstance(scoring, str):
        try:
            return get_scorer("accuracy" if scoring is None else scoring)
        except ValueError:
            pass
    must = (
        "a name of sklearn.metrics.get_scorer_names(), a scorer, or None for accuracy; a scorer is a function "
        "f(estimator, X, y) -> float, as sklearn.metrics.make_scorer(metric) makes of a metric"
    )
    raise checks.wrong(type(model).__name__, "scoring", must, scoring)


def _takes_samples(scorer: Any) -> bool:
    """Whether a callable can be called as scorer(estimator, X, y); a class makes objects and gives no score."""
    if isinstance(scorer, type):
        return False
    try:
        inspect.signature(scorer).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # some built-in functions have no signature
        return True
    return True


def _number(score: Any, model: Any) -> float:
    """A score of a fold as a number; NaN could not be compared with others."""
    owner, scoring = type(model).__name__, checks.shown(model.scoring)
    try:
        number = float(score)
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"{owner}: scoring={scoring} returned {checks.shown(score)}; a scorer returns one number, larger for better"
        ) from error
    if np.isnan(number):
        raise DataError(
            f"{owner}: scoring={scoring} is NaN on the held-out samples of a fold, so that no C is the best; use fewer "
            "folds, so that each holds samples of every class, or another score"
        )
    return number


@dataclass
class FoldScores:
    """The folds so far, and the data they come from."""

    model: Any
    y: Any  # [n] as given
    learned: Samples  # with weights of classes
    held: Samples  # with those of samples alone
    folds: list[Fold] = field(default_factory=list)

    @staticmethod
    def of(model: Any, X: Any, y: Any, which: Ints, weight: Floats, sample_weight: Floats) -> FoldScores:
        """No folds so far."""
        learned = Samples.of(X, which, weight)
        return FoldScores(model, np.asarray(y), learned, Samples(learned.X, which, sample_weight))

    @property
    def done(self) -> int:
        """Number of folds made."""
        return len(self.folds)

    @property
    def last(self) -> Floats:
        """[ratios, k] scores of the last fold."""
        return self.folds[-1].scores

    def add(self, fold: Fold) -> None:
        """Add the next fold."""
        self.folds.append(fold)

    def fold(self, sitting: FitSession, train: Ints, test: Ints) -> Fold:
        """Learn from the samples `train`, and score on `test`."""
        owner = type(self.model).__name__
        learned, held = self.learned.take(train, owner), self.held.take(test, owner)
        paths = [follow_classes(self.model, sitting, learned, share) for share in self.model.l1_ratios_.tolist()]
        labels = self.y[np.unique(test)]
        return Fold(
            np.stack([self._scored(path, held, labels) for path in paths]),
            np.stack([self._joined(path) for path in paths]),
            np.stack([path.rounds for path in paths]),
            int(sum(path.left.sum() for path in paths)),
        )

    def _joined(self, path: ClassPath) -> Floats:
        """[k, outputs, p + 1] coefficients, and intercepts behind them."""
        if not self.model.fit_intercept:
            return path.coefs
        return np.concatenate([path.coefs, path.intercepts[:, :, None]], axis=2)

    def _scored(self, path: ClassPath, held: Samples, labels: Any) -> Floats:
        """[k] scores."""
        scoring = self.model.scoring
        if not callable(scoring) and scoring in QUICK:
            score = QUICK[scoring]
            return np.array([score(z, held) for z in path.scores(held.X)])
        scorer, found = scorer_of(self.model), []
        weighted = bool(np.any(self.held.weight != self.held.weight[0]))
        weights = {"sample_weight": held.weight} if weighted else {}
        for coef, intercept in zip(path.coefs, path.intercepts, strict=True):
            single = self.model._single(1.0, 0.0)
            single.coef_, single.intercept_ = coef, intercept
            found.append(_number(scorer(single, held.X, labels, **weights), self.model))
        return np.array(found)

    def stacked(self) -> tuple[Floats, Floats, Ints]:
        """(scores, coefficients, rounds) of all folds."""
        scores, coefs, rounds, _ = zip(*self.folds, strict=True)
        return np.stack(scores), np.stack(coefs), np.stack(rounds)

    def warn(self, max_iter: int) -> None:
        """Warn if fits ended above the gap that was asked for."""
        left, made = sum(fold.left for fold in self.folds), sum(fold.rounds.size for fold in self.folds)
        if left:
            warnings.warn(
                f"{type(self.model).__name__}: {left} of {made} fits of the folds stopped after max_iter={max_iter} "
                "rounds above the duality gap that tol asks for; raise max_iter or tol, use smaller Cs, or scale the "
                "features",
                ConvergenceWarning,
                stacklevel=6,  # the line that called fit
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays for a checkpoint."""
        if not self.folds:
            return {"left": np.empty(0, np.int64)}
        scores, coefs, rounds = self.stacked()
        return {
            "scores": scores,
            "coefs": coefs,
            "rounds": rounds,
            "left": np.array([fold.left for fold in self.folds]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Continue from a checkpoint."""
        if state is not None and len(state["left"]):
            parts = zip(state["scores"], state["coefs"], state["rounds"], state["left"].tolist(), strict=True)
            self.folds = [Fold(np.array(a), np.array(b), np.array(c), left) for a, b, c, left in parts]
