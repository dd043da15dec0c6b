"""Estimators by rounds of a schedule: the same problem, the same gap, another way there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from stretto import schedule as schedules
from stretto.errors import Diverged, PlanError
from stretto.models.linear.cross_validation.lasso_cv import LassoCV
from stretto.models.linear.lasso import ElasticNet, Lasso
from stretto.models.linear.logistic import LogisticRegression
from stretto.models.linear.path import lasso_path
from stretto.runtime.runtimes import Serial

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 30))
Y = 2.0 * X[:, 3] - X[:, 5] + RNG.normal(size=80) + 3.0
SPECS: dict[str, Any] = {
    "cyclic": schedules.cyclic(),
    "random": schedules.random(width=2),
    "prioritised": schedules.prioritised(width=8),
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_schedule_reaches_the_same_solution(name: str, sparse: bool) -> None:
    matrix = sp.csr_array(X) if sparse else X
    model = ElasticNet(0.05, l1_ratio=0.9, tol=1e-8, max_iter=2000, schedule=SPECS[name]).fit(matrix, Y)
    best = ElasticNet(0.05, l1_ratio=0.9, tol=1e-11).fit(X, Y)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-3)
    assert model.dual_gap_ <= 1e-8 * np.var(Y)
    assert -1e-12 <= model.objective_ - best.objective_ <= model.dual_gap_ + 1e-12
    assert model.n_iter_ <= 2000


def test_logistic_by_a_schedule() -> None:
    model = LogisticRegression(0.5, tol=1e-6, max_iter=5000, schedule=SPECS["prioritised"], l1_ratio=1.0).fit(X, Y > 3)
    best = LogisticRegression(0.5, tol=1e-10, l1_ratio=1.0).fit(X, Y > 3)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-2)


def test_threads_never_change_the_answer() -> None:
    runs: list[dict[str, Any]] = [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 3}, {"runtime": Serial()}]
    models = [Lasso(0.05, max_iter=1000, schedule=SPECS["prioritised"], **where).fit(X, Y) for where in runs]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        assert model.n_iter_ == models[0].n_iter_


def test_a_warm_start_goes_on_and_sweeps_are_counted() -> None:
    model = Lasso(0.02, tol=1e-9, max_iter=2000, warm_start=True, schedule=SPECS["cyclic"]).fit(X, Y)
    sweeps = model.n_iter_
    assert 1 < model.fit(X, Y).n_iter_ < sweeps
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = Lasso(0.02, tol=1e-12, max_iter=2, schedule=SPECS["cyclic"]).fit(X, Y)
    assert short.n_iter_ == 2


@pytest.mark.parametrize(
    ("options", "weight", "words"),
    [
        ({"positive": True}, None, "positive=True"),
        ({"standardize": True}, None, "standardize=True"),
        ({}, np.linspace(1, 2, 80), "weights that differ"),
    ],
    ids=["positive", "standardize", "weights"],
)
def test_what_the_round_engine_does_not_know_is_refused(options: dict[str, Any], weight: Any, words: str) -> None:
    with pytest.raises(PlanError, match=f"the plain problem, without {words}"):
        Lasso(0.05, schedule=SPECS["cyclic"], **options).fit(X, Y, weight)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": schedules.rotation(4)}, "blocks that wait for each other"),
        ({"schedule": schedules.cyclic}, r"write schedule=st.schedule.cyclic\(…\)"),
        ({"n_jobs": "2"}, "n_jobs must be a whole number; got '2'"),
        ({"runtime": 3}, r"runtime=3 is not a runtime; give st.Threads\(n\), st.Serial\(\), st.Simulated"),
        ({"runtime": Serial}, r"is not a runtime; give .*; make one: st.Serial\(…\)"),
    ],
    ids=["rotation", "no parentheses", "n_jobs", "runtime", "class"],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Lasso(0.05, **options).fit(X, Y)


def test_a_grid_goes_down() -> None:
    for eps in (1.0, 2.0):
        with pytest.raises(PlanError, match="eps must be a number more than 0 and less than 1"):
            lasso_path(X, Y, eps=eps)
        with pytest.raises(PlanError, match="eps must be a number more than 0 and less than 1"):
            LassoCV(eps=eps).fit(X, Y)


def test_a_schedule_that_diverges_says_what_to_do() -> None:
    same = np.repeat(X[:, 3:4], 6, axis=1)
    with pytest.raises(Diverged, match=r"take a smaller width or st.schedule.prioritised\(\)"):
        Lasso(1e-3, schedule=schedules.cyclic(width=6)).fit(same, Y)
    good = Lasso(1e-3, max_iter=1000, schedule=schedules.prioritised(width=6)).fit(same, Y)
    assert good.predict(same) == pytest.approx(Lasso(1e-3).fit(same, Y).predict(same), abs=0.1)


def test_explain_names_the_schedule() -> None:
    text = Lasso(0.05, schedule=SPECS["prioritised"]).explain(X, Y)
    assert " ".join(SPECS["prioritised"].explain().split())[:40] in " ".join(text.split())
    assert "working sets" not in text
