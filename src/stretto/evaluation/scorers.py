"""`st.scorer`: a ranking metric as scikit-learn's model selection takes it."""

from __future__ import annotations

from typing import Any

from stretto.errors import DataError
from stretto.metrics.names import parse


class Scorer:
    """A metric as a function (estimator, X, y) → number, of which more is better; see `st.scorer`."""

    def __init__(self, metric: str, **options: Any) -> None:
        self.metric, self.options = parse(metric, "scorer"), options

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """The metric of a fitted estimator on held-out ratings; minus the metric for rmse and mae.

        Parameters
        ----------
        estimator : MatrixFactorization
            Fitted.
        X : sparse or dense matrix, or pairs with y
            Held-out ratings.
        y : array or None, default None
            Ratings of pairs.
        """
        from .evaluate import evaluate

        (score,) = evaluate(estimator, X, y, metrics=self.metric, **self.options).scores
        if not score.users:
            raise DataError(f"scorer: no held-out user has relevant items, so {self.metric} is not defined")
        return self.metric.sign * score.value

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"st.scorer({str(self.metric)!r}{options})"


def scorer(
    metric: str,
    *,
    threshold: float | None = None,
    graded: bool = False,
    filter_seen: bool = True,
    new_users: str = "fold_in",
) -> Scorer:
    """A metric for `scoring=` of `GridSearchCV`, `cross_val_score` and other tools of scikit-learn.

    With pairs (user, item) as X and ratings as y, folds hold out ratings: shuffle them, as with `KFold(5,
    shuffle=True)`. With a matrix, folds hold out users, who are folded in from four fifths of their ratings.

    Parameters
    ----------
    metric : str
        Name of a metric of `st.evaluate`, such as "ndcg@10". rmse and mae are negated, so that more is better.
    threshold : float or None, default None
        Ratings from here on are relevant; None: those above 0.
    graded : bool, default False
        The gain of an item in NDCG is its rating, not 1.
    filter_seen : bool, default True
        Leave out what a user has in training.
    new_users : {"fold_in", "skip"}, default "fold_in"
        What to do with users without ratings in training.

    Returns
    -------
    Scorer

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = sp.random(60, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(solver="als", implicit=True, max_iter=3, random_state=0)
    >>> search = GridSearchCV(model, {"n_components": [2, 4]}, scoring=st.scorer("ndcg@5"), cv=2).fit(X)
    >>> bool(0 < search.best_score_ < 1)
    True
    """
    return Scorer(metric, threshold=threshold, graded=graded, filter_seen=filter_seen, new_users=new_users)
