"""What hostile arguments are given to: every estimator with its solvers, paths, runtimes, schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st

Array = NDArray[Any]
Results = dict[str, Array]


@dataclass(frozen=True)
class Subject:
    """An estimator, or a function that fits, with small good data for it.

    make : from parameters to an estimator; a function of paths is wrapped in one
    data : (X, y), y None where there is none
    uses : methods of a fitted estimator that take X alone or X and y
    given : parameters that make it quick
    long : parameters that make a fit as long as they say
    """

    make: Callable[..., Any]
    data: Callable[[], tuple[Array, Array | None]]
    uses: tuple[str, ...]
    given: dict[str, Any] = field(default_factory=dict)
    long: tuple[str, ...] = ()

    def parameters(self) -> list[str]:
        return sorted(self.make().get_params(deep=False))


class Path:
    """`lasso_path` as an estimator."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        import inspect

        found = inspect.signature(st.lasso_path).parameters
        return {name: found[name].default for name in found if name not in {"X", "y", "sample_weight"}}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Path:
        path = st.lasso_path(X, y, sample_weight=sample_weight, **self.given)
        self.alphas_, self.coefs_ = path.alphas, path.coefs
        self.gaps_, self.intercepts_ = path.gaps, path.intercepts
        return self


@cache
def _numbers() -> Array:
    rng = np.random.default_rng(0)
    return np.where(rng.random((24, 6)) < 0.6, rng.integers(1, 7, (24, 6)), 0).astype(np.float64)


def regression() -> tuple[Array, Array]:
    X = _numbers()
    return X, X[:, 0] - 2.0 * X[:, 1] + np.sin(np.arange(len(X)))


def two_targets() -> tuple[Array, Array]:
    X, y = regression()
    return X, np.c_[y, X[:, 2] - y]


def few_counts() -> tuple[Array, Array]:
    X, y = regression()
    return X, np.round(np.abs(y))


def two_classes() -> tuple[Array, Array]:
    X, y = regression()
    return X, (y + 2 * np.cos(np.arange(len(X))) > np.median(y)).astype(np.int64)


def three_classes() -> tuple[Array, Array]:
    X, y = regression()
    return X, np.digitize(y + 2 * np.cos(np.arange(len(X))), np.quantile(y, [0.3, 0.7]))


def counts() -> tuple[Array, None]:
    return _numbers(), None


def ratings() -> tuple[Array, None]:
    rng = np.random.default_rng(1)
    return np.where(rng.random((14, 9)) < 0.6, rng.integers(1, 6, (14, 9)), 0).astype(np.float64), None


_LINEAR = ("predict", "score")
_CLASSES = ("predict", "score", "decision_function", "predict_proba")
_SCORES = ("predict", "score", "decision_function")
_FACTORS = ("transform", "score", "fold_in")
_MF: dict[str, Any] = {"n_components": 3, "max_iter": 3, "random_state": 0, "n_jobs": 1}

SUBJECTS: dict[str, Subject] = {
    "Lasso": Subject(st.Lasso, regression, _LINEAR, {"alpha": 0.1, "n_jobs": 1}),
    "ElasticNet": Subject(st.ElasticNet, regression, _LINEAR, {"alpha": 0.1, "standardize": True, "n_jobs": 2}),
    "GroupLasso": Subject(st.GroupLasso, regression, _LINEAR, {"alpha": 0.1, "groups": 2, "n_jobs": 1}),
    "MultiTaskLasso": Subject(st.MultiTaskLasso, two_targets, _LINEAR, {"alpha": 0.1, "n_jobs": 1}),
    "PoissonRegressor": Subject(
        st.PoissonRegressor,
        few_counts,
        _LINEAR,
        {"alpha": 0.1, "l1_ratio": 0.5, "max_iter": 30, "n_jobs": 1},
        ("max_iter",),
    ),
    "HuberElasticNet": Subject(
        st.HuberElasticNet, regression, _LINEAR, {"alpha": 0.1, "max_iter": 30, "n_jobs": 2}, ("max_iter",)
    ),
    "LassoCV": Subject(st.LassoCV, regression, _LINEAR, {"n_alphas": 8, "cv": 2, "n_jobs": 1}, ("n_alphas", "alphas")),
    "ElasticNetCV": Subject(
        st.ElasticNetCV,
        regression,
        _LINEAR,
        {"l1_ratio": [0.5, 0.9], "n_alphas": 6, "cv": 2, "n_jobs": 1},
        ("n_alphas", "alphas"),
    ),
    "lasso_path": Subject(
        Path, regression, (), {"n_alphas": 8, "fit_intercept": True, "n_jobs": 1}, ("n_alphas", "alphas")
    ),
    "LogisticRegressionCV": Subject(
        st.LogisticRegressionCV, two_classes, _CLASSES, {"Cs": 3, "cv": 2, "max_iter": 20, "n_jobs": 1}, ("Cs",)
    ),
    "LogisticRegression L1": Subject(
        st.LogisticRegression, two_classes, _CLASSES, {"l1_ratio": 1.0, "max_iter": 20, "n_jobs": 1}
    ),
    "LogisticRegression L2": Subject(
        st.LogisticRegression, two_classes, _CLASSES, {"l1_ratio": 0.0, "C": 0.5, "max_iter": 20, "n_jobs": 1}
    ),
    "LogisticRegression ovr": Subject(
        st.LogisticRegression,
        three_classes,
        _CLASSES,
        {"multi_class": "ovr", "l1_ratio": 1.0, "C": 0.5, "max_iter": 20, "n_jobs": 1},
    ),
    "LogisticRegression softmax": Subject(
        st.LogisticRegression, three_classes, _CLASSES, {"l1_ratio": 0.5, "C": 0.5, "n_jobs": 1}
    ),
    "LogisticRegression sgd": Subject(
        st.LogisticRegression,
        three_classes,
        _CLASSES,
        {"solver": "sgd", "l1_ratio": 0.0, "tol": 0.1, "max_iter": 5, "n_jobs": 1},
        ("max_iter",),
    ),
    "LogisticRegression svrg": Subject(
        st.LogisticRegression,
        two_classes,
        _CLASSES,
        {"solver": "svrg", "variance_reduction": "katyusha", "l1_ratio": 0.5, "tol": 0.1, "max_iter": 5, "n_jobs": 1},
        ("max_iter", "batch_size"),
    ),
    "LinearSVC": Subject(st.LinearSVC, three_classes, _SCORES, {"C": 0.5, "max_iter": 30, "n_jobs": 1}, ("max_iter",)),
    "LinearSVC sgd": Subject(
        st.LinearSVC, two_classes, _SCORES, {"solver": "sgd", "C": 0.1, "max_iter": 6, "n_jobs": 1}, ("max_iter",)
    ),
    "LinearSVC hinge": Subject(
        st.LinearSVC, two_classes, _SCORES, {"loss": "hinge", "C": 0.1, "max_iter": 30, "n_jobs": 1}, ("max_iter",)
    ),
    "FactorizationMachine": Subject(
        st.FactorizationMachine, two_classes, _CLASSES, {"max_iter": 2, "n_jobs": 1}, ("max_iter", "n_components")
    ),
    "FactorizationMachine squared": Subject(
        st.FactorizationMachine,
        regression,
        _LINEAR,
        {"loss": "squared", "max_iter": 2, "n_components": 3, "early_stopping": True, "n_jobs": 1},
        ("max_iter", "n_components"),
    ),
    "LatentDirichletAllocation": Subject(
        st.LatentDirichletAllocation,
        counts,
        ("transform", "score", "perplexity"),
        {"n_components": 3, "max_iter": 3, "random_state": 0, "n_jobs": 1},
        ("max_iter", "mh_steps", "n_components"),
    ),
    "MatrixFactorization sgd": Subject(st.MatrixFactorization, ratings, _FACTORS, _MF, ("max_iter",)),
    "MatrixFactorization adagrad": Subject(
        st.MatrixFactorization, ratings, _FACTORS, {**_MF, "optimizer": "adagrad"}, ("max_iter",)
    ),
    "MatrixFactorization als": Subject(
        st.MatrixFactorization, ratings, _FACTORS, {**_MF, "solver": "als"}, ("max_iter", "inner")
    ),
    "MatrixFactorization implicit": Subject(
        st.MatrixFactorization,
        ratings,
        ("transform", "fold_in"),
        {**_MF, "solver": "als", "implicit": True},
        ("max_iter",),
    ),
    "MatrixFactorization ccd": Subject(
        st.MatrixFactorization, ratings, _FACTORS, {**_MF, "solver": "ccd"}, ("max_iter", "inner")
    ),
}


def fitted(subject: Subject, X: Any, y: Any = None, **more: Any) -> Any:
    """A model of hostile or plain data, small parameters set."""
    if y is None:
        y = subject.data()[1]
    model = subject.make(**{**subject.given, **more})
    return model.fit(X) if y is None else model.fit(X, y)


def learned(model: Any) -> Results:
    """Everything numeric that a fit has learned."""
    found: Results = {}
    for name, value in vars(model).items():
        if name.endswith("_") and not name.startswith("_") and name != "history_":
            if name == "topics_":
                found |= {f"topics.{part}": np.asarray(getattr(value, part)) for part in ("count", "alpha", "totals")}
            elif isinstance(value, (float, int, np.ndarray)) and np.asarray(value).dtype.kind in "iufb":
                found[name] = np.asarray(value)
            elif hasattr(value, "toarray"):
                found[name] = value.toarray()
    return found


def used(model: Any, method: str, X: Any, y: Any) -> Array:
    """What a method of a fitted model gives."""
    if method == "score" and y is not None:
        return np.asarray(model.score(X, y))
    found = getattr(model, method)(X)
    return np.asarray(found.factors if method == "fold_in" else found)


def _lda() -> Any:
    return fitted(SUBJECTS["LatentDirichletAllocation"], counts()[0])


def _mf(**given: Any) -> Any:
    return st.MatrixFactorization(**{**_MF, **given})


# What else takes a matrix: (good data for it, how it is given).
OTHERS: dict[str, tuple[Callable[[], tuple[Array, Any]], Callable[[Any], Any]]] = {
    "Lasso.explain": (regression, lambda X: st.Lasso().explain(X, regression()[1])),
    "LogisticRegression.explain": (
        regression,
        lambda X: st.LogisticRegression(l1_ratio=1.0).explain(X, three_classes()[1]),
    ),
    "SparseRegression": (regression, lambda X: st.SparseRegression(X, regression()[1], alpha=0.1)),
    "LatentDirichletAllocation, validation": (counts, lambda X: _lda().fit(counts()[0], validation=X)),
    "LatentDirichletAllocation, partial_fit": (counts, lambda X: _lda().partial_fit(X)),
    "LatentDirichletAllocation, coherence": (counts, lambda X: _lda().coherence(X)),
    "LatentDirichletAllocation, held": (counts, lambda X: _lda().perplexity(counts()[0], X)),
    "MatrixFactorization, validation": (ratings, lambda X: _mf().fit(ratings()[0], validation=X)),
    "MatrixFactorization, partial_fit": (ratings, lambda X: _mf().fit(ratings()[0]).partial_fit(X)),
    "MatrixFactorization, y": (ratings, lambda y: _mf().fit(np.argwhere(ratings()[0]), y)),
    "as_data": (ratings, st.as_data),
    "split": (ratings, st.split),
}

# What takes parameters when it is made: (how to make it, its parameters).
OBJECTS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "Threads": (lambda **given: st.Threads(**given).workers, ("n",)),
    "Cluster": (
        st.Cluster,
        ("address", "nodes", "threads", "encrypt", "patience", "start_within", "replace_within", "restarts"),
    ),
    "Saving": (lambda **given: st.Saving(**{"folder": "unused", **given}), ("every_epochs", "every_seconds", "keep")),
    "schedule.prioritised": (
        st.schedule.prioritised,
        ("width", "candidates", "sample", "schedulers", "cache", "floor", "threshold", "by", "conflicts"),
    ),
    "schedule.cyclic": (st.schedule.cyclic, ("width",)),
    "schedule.random": (st.schedule.random, ("width",)),
}
