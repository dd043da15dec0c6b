"""`LinearClassifier`: what linear models of classes have in common: classes and their weights, scores, predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.errors import DataError
from stretto.models import checks
from stretto.models.sklearn_base import ClassifierMixin, check_classification_targets

from .base import LinearModel
from .input import LinearInput, class_weights

Floats = NDArray[np.float64]

_MANY = 64  # samples for which sorting the labels takes longer than comparing them


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear model with a row of coefficients for two classes, or one for each of several classes."""

    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats
    dual_gap_: Floats
    objective_: Floats
    n_iter_: NDArray[np.int64]

    # Parameters that subclasses' constructors store.
    C: float
    class_weight: Any

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        self._check_strength()
        weights: Any = self.class_weight
        if not isinstance(weights, Mapping | None) and not (isinstance(weights, str) and weights == "balanced"):
            raise check.wrong("class_weight", "a mapping {class: weight}, 'balanced' or None", weights)

    def _check_strength(self) -> None:
        """Raise an error for a wrong weight of the data against the penalty."""
        check = checks.of(self)
        check.number("C", self.C, above=0, why="for a model without a penalty take a large C, such as 1e6")
        check.number("C", self.C, least=1.0 / LARGEST, most=LARGEST)

    def _classes(self, given: LinearInput) -> tuple[NDArray[Any], NDArray[np.int64], Floats]:
        """(classes [k], class index of each sample [n], sample weights times class weights [n])."""
        classes, which = class_indices(given.y)
        if len(classes) < 2:
            raise DataError(
                f"{type(self).__name__} needs samples of at least 2 classes; "
                f"the data contain one class: {classes.tolist()[0]!r}"
            )
        weight = given.weight
        if self.class_weight is not None:
            of_class = class_weights(self.class_weight, classes, given.y, weight)
            weight = weight * of_class[which]
        idle = np.flatnonzero(np.bincount(which, weights=weight) <= 0)
        if len(idle):
            raise DataError(
                f"class {classes.tolist()[idle[0]]!r} has no weight: its samples all weigh 0; "
                "give them weight or leave them out"
            )
        return classes, which, weight

    def _last(self, given: LinearInput, classes: NDArray[Any]) -> tuple[Floats, Floats] | None:
        """The coefficients that a warm start continues from."""
        shape = (1 if len(classes) == 2 else len(classes)), given.shape[1]
        known = self.warm_start and hasattr(self, "coef_") and self.coef_.shape == shape
        return (self.coef_, self.intercept_) if known else None

    def _scores(self, X: Any) -> Floats:
        """XW + b: [n] for two classes, else [n, k]."""
        X = self._features(X)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def _best(self, scores: Floats) -> NDArray[Any]:
        """The class with the highest score, for each sample."""
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])


def class_indices(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(classes [k], class index of each sample [n]), by scikit-learn's rules for what classes may be."""
    return _two_classes(y) or _any_classes(y)


def _any_classes(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """`class_indices` for any y."""
    try:
        check_classification_targets(y)
    except ValueError as error:
        if y.dtype.kind != "f" or y.ndim != 1:
            raise
        at = int(np.argmax(y != np.trunc(y)))
        raise DataError(
            f"Unknown label type: continuous. Classes are expected, and y holds {y[at]} at sample {at}; to predict "
            "numbers take st.Lasso or st.ElasticNet, or make classes of them, such as y > 0"
        ) from error
    classes, which = np.unique(y, return_inverse=True)
    return classes, which.astype(np.int64)


def _two_classes(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """`_any_classes` for many samples of two whole numbers, without sorting them; None for other y."""
    if y.ndim != 1 or y.dtype.kind not in "biuf" or len(y) < _MANY:
        return None
    one = y == y[0]
    other = y[int(np.argmin(one))]
    if np.count_nonzero(one) + np.count_nonzero(y == other) != len(y):
        return None  # one class, several, or NaN
    classes = np.sort(np.array([y[0], other], y.dtype))
    if not np.array_equal(classes, np.trunc(classes)) or not np.all(np.isfinite(classes)):
        return None
    return classes, (one if y[0] == classes[1] else ~one).astype(np.int64)
