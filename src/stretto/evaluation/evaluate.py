"""`st.evaluate`: fit models, rank items for the users of a held-out part, and tabulate the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stretto import checks
from stretto.data.records.data import Data
from stretto.errors import PlanError
from stretto.metrics.names import ERRORS, TOGETHER, Metric, parse_all
from stretto.models.sklearn_base import check_is_fitted, clone

from .held import ratings_of
from .judge import Judged, Rules, judge
from .splits import METHODS
from .splits import split as splits
from .table import Evaluation, Score, error_interval, interval

METRICS = ("precision@10", "recall@10", "ndcg@10", "map@10", "mrr@10", "hit_rate@10", "coverage@10")
POPULAR = "most popular"


def evaluate(
    model: Any,
    data: Any,
    y: Any = None,
    *,
    split: Any = None,
    metrics: Any = METRICS,
    threshold: float | None = None,
    graded: bool = False,
    filter_seen: bool = True,
    new_users: str = "fold_in",
    popular: bool = False,
    confidence: float = 0.95,
) -> Evaluation:
    """Measure one or several recommenders on held-out ratings, with confidence intervals.

    Each user is ranked every item that they do not have in training, and the metrics ask which of the first k are among
    the held-out ones. Users without relevant held-out items are left out. The users are the sample of which the
    intervals are made.

    Parameters
    ----------
    model : MatrixFactorization, or a dict of them by name
        Fitted, if `split` is None; otherwise clones are fitted to the training part.
    data : sparse or dense matrix, table, three arrays, Data, path, or pairs with y
        Ratings, as for `fit`: those held out if `split` is None, otherwise all of them.
    y : array or None, default None
        Ratings of pairs.
    split : str, callable, pair or None, default None
        Name of a method of `st.split` ("random", "leave_k_out", "by_user", "cold_users", "cold_items"), a function from
        ratings to (train, test), or (train, test) itself; `data` is not used then and may be None.
    metrics : str or sequence of str, default ("precision@10", "recall@10", "ndcg@10", "map@10", "mrr@10", \
"hit_rate@10", "coverage@10")
        Names: precision, recall, ndcg, map, mrr, hit_rate, auc, coverage, novelty, popularity_bias, each with @k; rmse
        and mae of predicted ratings.
    threshold : float or None, default None
        Ratings from here on are relevant; None: those above 0.
    graded : bool, default False
        The gain of an item in NDCG is its rating, not 1.
    filter_seen : bool, default True
        Leave out what a user has in training.
    new_users : {"fold_in", "skip"}, default "fold_in"
        Users without ratings in training are folded in from four fifths of their held-out ratings and measured on the
        others, or left out.
    popular : bool, default False
        Add a row for recommending the items that most users have in training.
    confidence : float, default 0.95
        Level of the intervals.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, solver="als", implicit=True, max_iter=5, random_state=0)
    >>> found = st.evaluate(model, X, split="by_user", metrics=["ndcg@5", "recall@5"], popular=True)
    >>> sorted(found.users)
    ['MatrixFactorization', 'most popular']
    >>> 0 < found["ndcg@5"] < 1
    True
    """
    check = checks.of("evaluate")
    asked = parse_all(metrics, "evaluate")
    check.choice("new_users", new_users, ("fold_in", "skip"))
    check.flags(graded=graded, filter_seen=filter_seen, popular=popular)
    check.number("confidence", confidence, above=0, below=1)
    check.optional("threshold", threshold)
    rules = Rules(threshold, graded, filter_seen, new_users)
    named = _named(model)
    parts = None if split is None else _parts(split, data, y)
    found = _Table(asked, float(confidence))
    for name, one in named.items():
        began = time.perf_counter()
        if parts is None:
            check_is_fitted(one)
            fitted, held, ratings = one, data, y
        else:
            fitted, (held, ratings) = clone(one).fit(parts[0]), (parts[1], None)
        between = time.perf_counter()
        with fitted._here().open() as crew:
            found.add(name, judge(fitted, held, ratings, asked, rules, crew))
            found.models[name] = fitted
            found.seconds[name] = (between - began, time.perf_counter() - between)
            if popular and name == next(reversed(named)):
                ranked = tuple(metric for metric in asked if metric.name not in ERRORS)
                between = time.perf_counter()
                found.add(POPULAR, judge(fitted, held, ratings, ranked, rules, crew, popular=True), ranked)
                found.seconds[POPULAR] = (0.0, time.perf_counter() - between)
    return found.made()


def _named(model: Any) -> dict[str, Any]:
    """Models by name."""
    named = dict(model) if isinstance(model, Mapping) else {type(model).__name__: model}
    wrong = [one for one in named.values() if not (hasattr(one, "fit") and hasattr(one, "_here"))]
    if wrong or not named:
        what = type(wrong[0]).__name__ if wrong else "no model"
        raise PlanError(
            f"evaluate: model is a MatrixFactorization, or a dict of them by name; got {what}; lists of other "
            "recommenders are measured by st.metrics.ranking"
        )
    return named


def _parts(split: Any, data: Any, y: Any) -> tuple[Any, Any]:
    """(train, test)."""
    if isinstance(split, tuple | list) and len(split) == 2:
        return split[0], split[1]
    if isinstance(split, str):
        checks.choice("split", split, METHODS, owner="evaluate")
        if split == "by_time":
            raise PlanError(
                "evaluate: split='by_time' needs the times: split=lambda ratings: st.split.by_time(ratings, times=…)"
            )
        split = getattr(splits, split)
    if not callable(split):
        raise checks.wrong("evaluate", "split", "a method of st.split, a function, or (train, test)", split)
    function: Callable[..., Any] = split
    made = function(data if y is None else ratings_of(data, y))
    if not isinstance(made, tuple | list) or len(made) != 2 or not all(isinstance(one, Data) for one in made):
        raise PlanError("evaluate: a split returns (train, test), both Data as the methods of st.split make them")
    return made[0], made[1]


class _Table:
    """Collects the scores of one model after another."""

    def __init__(self, metrics: tuple[Metric, ...], confidence: float) -> None:
        self.metrics, self.confidence = metrics, confidence
        self.scores: list[Score] = []
        self.users: dict[str, Any] = {}
        self.per_user: dict[str, dict[str, Any]] = {}
        self.models: dict[str, Any] = {}
        self.seconds: dict[str, tuple[float, float]] = {}
        self.new_users = 0

    def add(self, name: str, judged: Judged, metrics: tuple[Metric, ...] | None = None) -> None:
        """Add what was measured of a model."""
        asked = self.metrics if metrics is None else metrics
        ranked = [metric for metric in asked if metric.name not in (*ERRORS, *TOGETHER)]
        users = np.concatenate(judged.users) if judged.users else np.zeros(0, np.int64)
        values = np.concatenate(judged.values) if judged.values else np.zeros((0, len(ranked)))
        self.users[name] = users
        self.per_user[name] = {str(metric): values[:, at] for at, metric in enumerate(ranked)}
        self.new_users = max(self.new_users, judged.new_users)
        for metric in asked:
            if metric.name in TOGETHER:
                share = float(judged.covered[metric.k].mean())
                numbers = share, float("nan"), float("nan"), len(users)
            elif metric.name in ERRORS:
                own, errors = (np.concatenate(part) for part in zip(*judged.errors, strict=True))
                numbers = error_interval(own, errors, 2 if metric.name == "rmse" else 1, self.confidence)
            else:
                numbers = interval(self.per_user[name][str(metric)], self.confidence)
            self.scores.append(Score(name, str(metric), *numbers))

    def made(self) -> Evaluation:
        return Evaluation(
            tuple(self.scores), self.confidence, self.users, self.per_user, self.new_users, self.models, self.seconds
        )
