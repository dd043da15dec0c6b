"""What a fitted factorization machine offers: its parameters in the units of X and y, and its predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.models.linear.base import LinearModel
from stretto.models.sklearn_base import check_is_fitted

from .conditional import LogisticOnly
from .input import ColumnFacts

Floats = NDArray[np.float64]
_SAVED = ("_weights", "_squares", "_bias", "_target", "_counts", "_field", "_form", "scale_", "n_iter_")


class FittedMachine(LinearModel):
    """The part of `FactorizationMachine` that uses what a fit has learned."""

    loss: str
    classes_: NDArray[Any]
    scale_: Floats
    l2_: float
    l2_factors_: float
    history_: list[dict[str, float]]
    n_iter_: int
    _weights: NDArray[np.float32]
    _squares: NDArray[np.float32]
    _bias: Floats
    _target: Floats
    _counts: Floats
    _field: NDArray[np.int32]
    _form: NDArray[np.int64]
    _saved_arrays = _SAVED

    @property
    def _shape(self) -> tuple[int, int]:
        """(fields, components) of the fitted parameters."""
        return int(self._form[0]), int(self._form[1])

    def _machine(self) -> Any:
        """The fitted parameters, not copied."""
        from .predicting import machine_of  # here, not above: it imports Numba

        return machine_of(self)

    @property
    def coef_(self) -> Floats:  # type: ignore[override]
        """Coefficients [p]."""
        lane = self._shape[0] * self._shape[1]
        found: Floats = self._target[1] * self._factor() * self._weights[:, lane].astype(np.float64)
        return found

    @property
    def factors_(self) -> Floats:
        """Factors [p, k], or [p, fields, k]."""
        fields, k = self._shape
        unit = np.sqrt(self._target[1]) * self._factor()
        found: Floats = self._weights[:, : fields * k] * unit[:, None]
        return found if fields == 1 else found.reshape(-1, fields, k)

    @property
    def intercept_(self) -> float:
        """Intercept b."""
        return float(self._target[0] + self._target[1] * self._bias[0])

    def _facts(self) -> ColumnFacts:
        return ColumnFacts(self.scale_, self._counts)

    def _factor(self) -> Floats:
        return self._facts().factor

    def _scores(self, X: Any) -> Floats:
        """[n] z in the units of y."""
        from .predicting import scores  # here, not above: it imports Numba

        check_is_fitted(self)
        found: Floats = self._target[0] + self._target[1] * scores(self, self._features(X))
        return found

    @LogisticOnly
    def decision_function(self, X: Any) -> Floats:
        """Log odds of the second class [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class, or the expected number, of each sample [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        z = self._scores(X)
        return z if self.loss == "squared" else np.asarray(self.classes_[(z > 0).astype(np.intp)])

    @LogisticOnly
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the two classes [n, 2].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        found: Floats = np.exp(self.predict_log_proba(X))
        return found

    @LogisticOnly
    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities [n, 2], exact for small ones as well.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        from scipy.special import log_expit

        z = self._scores(X)
        return np.stack([log_expit(-z), log_expit(z)], axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of samples whose class is predicted, or with loss="squared" the coefficient of determination R².

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        y : array [n]
            True classes or numbers.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        """
        from sklearn.metrics import accuracy_score, r2_score

        measure = r2_score if self.loss == "squared" else accuracy_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self.loss == "squared":
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        return tags
