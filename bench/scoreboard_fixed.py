"""The fixed cost of a fit: estimators on 100 × 20 data, where the arithmetic takes no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stretto as st

from . import report

REPEATS = 30


def _least(model: Any, X: Any, y: Any) -> float:
    """The smallest number of milliseconds of several fits."""
    model.fit(X, y)
    model.fit(X, y)
    best = np.inf
    for _ in range(REPEATS):
        began = time.perf_counter()
        model.fit(X, y)
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


def fixed_costs() -> str:
    """A table of our estimators at 1 and 2 threads beside scikit-learn's."""
    from sklearn import linear_model, svm

    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 20))
    value = X[:, 0] + rng.standard_normal(100)
    two, three = (value > 0).astype(np.int64), np.digitize(value, [-0.5, 0.5])
    logistic = linear_model.LogisticRegression
    cases: list[tuple[str, Callable[[int], Any], Any, Any]] = [
        ("Lasso", lambda k: st.Lasso(0.1, n_jobs=k), linear_model.Lasso(0.1), value),
        ("ElasticNet", lambda k: st.ElasticNet(0.1, n_jobs=k), linear_model.ElasticNet(0.1), value),
        ("LogisticRegression L2", lambda k: st.LogisticRegression(n_jobs=k), logistic(), two),
        (
            "LogisticRegression L1",
            lambda k: st.LogisticRegression(l1_ratio=1.0, n_jobs=k),
            logistic(l1_ratio=1.0, solver="liblinear"),
            two,
        ),
        ("LogisticRegression, three classes", lambda k: st.LogisticRegression(n_jobs=k), logistic(), three),
        ("LinearSVC", lambda k: st.LinearSVC(n_jobs=k), svm.LinearSVC(), two),
    ]
    lines = []
    for title, ours, theirs, y in cases:
        times = [_least(model, X, y) for model in (ours(1), ours(2), theirs)]
        lines.append([title, *(f"{milliseconds:.2f}" for milliseconds in times)])
    about = f"100 × 20 data, milliseconds, the least of {REPEATS} fits with default tolerances."
    table = report.table(["estimator", "1 thread", "2 threads", "scikit-learn"], lines)
    return f"## Fixed cost of a fit\n\n{about}\n\n{table}"
