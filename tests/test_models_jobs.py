"""`n_jobs=None` follows joblib's context; options that a fit would ignore are refused."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pytest

import stretto as st
from stretto.errors import PlanError
from stretto.models import checks
from stretto.runtime.cpus import available_cpus

X = np.random.default_rng(0).normal(size=(40, 6))
Y = X[:, 0] - X[:, 1]
COUNTS = np.random.default_rng(0).poisson(1.0, (20, 9))


def workers(n_jobs: int | None = None, runtime: Any = None) -> tuple[int, int]:
    """Threads of a fit, and of using a fitted model."""
    return checks.place(runtime, n_jobs).workers, checks.here(runtime, n_jobs).workers


def test_without_a_context_every_core_is_used() -> None:
    assert workers() == (available_cpus(), available_cpus())
    assert joblib.Parallel(n_jobs=1)([joblib.delayed(workers)()]) == [workers()]  # not beside others


def test_the_number_of_a_context_is_used() -> None:
    with joblib.parallel_config(n_jobs=3):
        assert workers() == (3, 3)
        assert workers(2) == (2, 2)
        assert workers(runtime=st.Threads(5)) == (5, 5)
        assert workers(runtime=st.Serial()) == (1, 1)
        assert st.Lasso(0.1).fit(X, Y).plan_.physical.workers == 3
        assert st.MatrixFactorization(2, max_iter=1).plan(abs(X)).physical.workers == 3
        assert st.LatentDirichletAllocation(2, max_iter=1).plan(COUNTS).physical.workers == 3
    with joblib.parallel_config(n_jobs=-1):
        assert workers() == (available_cpus(), available_cpus())
    with joblib.parallel_config(backend="threading"):  # says where, and not how many
        assert workers() == (available_cpus(), available_cpus())
    assert st.Lasso(0.1, n_jobs=3).fit(X, Y).fingerprint_ == st.Lasso(0.1).fit(X, Y).fingerprint_


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_a_task_beside_others_takes_one(backend: str) -> None:
    found = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(workers)(n) for n in (None, None, 2))
    assert found == [(1, 1), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (st.MatrixFactorization(solver="als", learning_rate=0.1), "learning_rate=0.1 has no effect with solver='als'"),
        (st.LogisticRegression(optimizer="sgd"), "optimizer='sgd' has no effect with solver='auto'"),
        (st.LassoCV(alphas=[0.1, 0.2], n_alphas=7), r"n_alphas=7 has no effect with alphas=\[0.1, 0.2\]"),
        (st.LassoCV(alphas=np.array([0.1]), eps=0.1), "eps=0.1 has no effect with alphas="),
        (st.LassoCV(alphas=5, n_alphas=7), "n_alphas=7 has no effect with alphas=5"),
        (st.LatentDirichletAllocation(sampler="sparse", mh_steps=3), "mh_steps=3 has no effect .*sampler='mh'"),
        (st.LatentDirichletAllocation(tol=0.1), "tol=0.1 has no effect with early_stopping=False"),
        (st.LatentDirichletAllocation(n_iter_no_change=3), "n_iter_no_change=3 has no effect"),
        (st.LatentDirichletAllocation(validation_fraction=0.2), "validation_fraction=0.2 has no effect"),
        (
            st.LatentDirichletAllocation(burn_in=3, average_every=0),
            "burn_in=3 has no effect with optimize_every=0 and average_every=0",
        ),
    ],
    ids=lambda one: "" if isinstance(one, str) else type(one).__name__,
)
def test_options_that_a_fit_ignores_are_refused(model: Any, message: str) -> None:
    data: tuple[Any, ...] = (COUNTS,) if isinstance(model, st.LatentDirichletAllocation) else (X, Y > 0)
    if isinstance(model, st.MatrixFactorization):
        data = (abs(X),)
    with pytest.raises(PlanError, match=message + ".*leave it at its default"):
        model.fit(*data)


def test_options_that_are_used_are_taken() -> None:
    st.LassoCV(alphas=5, eps=0.1, cv=3).fit(X, Y)
    for options in ({"optimize_every": 1, "burn_in": 1}, {"average_every": 1, "burn_in": 1}, {"mh_steps": 1}):
        st.LatentDirichletAllocation(2, max_iter=3, n_jobs=1, **dict[str, Any](options)).fit(COUNTS)
