"""`ProbabilisticClassifier`: scores and probabilities of classes from the coefficients of a logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .classifier import LinearClassifier

Floats = NDArray[np.float64]


class ProbabilisticClassifier(LinearClassifier):
    """A linear model of classes whose scores are log probabilities, up to a constant for each sample."""

    multi_class: str = "multinomial"

    def decision_function(self, X: Any) -> Floats:
        """Log odds of the second class [n], or scores of all classes [n, k].

        The scores are log probabilities up to a constant for each sample; with "ovr", log odds against the rest.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._best(self.decision_function(X))

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes [n, k]; with "ovr", those of the k problems scaled to add up to 1.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities [n, k], exact for small ones as well.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        from scipy.special import log_expit, log_softmax

        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([log_expit(-scores), log_expit(scores)], axis=1)
        return np.asarray(log_softmax(log_expit(scores) if self.multi_class == "ovr" else scores, axis=1))
