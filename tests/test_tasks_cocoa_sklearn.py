"""CoCoA against scikit-learn at a small duality gap, and data that are hard to handle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stretto as st

linear_model = pytest.importorskip("sklearn.linear_model")
svm = pytest.importorskip("sklearn.svm")

SAMPLES, FEATURES = 150, 12
PLAIN: dict[str, Any] = {"fit_intercept": False, "tol": 1e-10, "max_iter": 100_000}
MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "lasso": ({"alpha": 0.05}, lambda: linear_model.Lasso(0.05, **PLAIN)),
    "elastic net": (
        {"alpha": 0.05, "l1_ratio": 0.3},
        lambda: linear_model.ElasticNet(0.05, l1_ratio=0.3, **PLAIN),
    ),
    "ridge": ({"alpha": 0.05, "l1_ratio": 0.0}, lambda: linear_model.Ridge(0.05 * SAMPLES, fit_intercept=False)),
    "logistic": ({"loss": "logistic", "C": 0.3}, lambda: linear_model.LogisticRegression(C=0.3, **PLAIN)),
    "hinge": (
        {"loss": "hinge", "C": 0.02},
        lambda: svm.LinearSVC(C=0.02, loss="hinge", random_state=0, **PLAIN),
    ),
    "squared hinge": ({"loss": "squared_hinge", "C": 0.02}, lambda: svm.LinearSVC(C=0.02, random_state=0, **PLAIN)),
}


def data(seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((SAMPLES, FEATURES)) * (draw.random((SAMPLES, FEATURES)) < 0.6)
    return X, X[:, :3] @ [1.0, -2.0, 0.5] + 0.5 * draw.standard_normal(SAMPLES)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_coefficients_of_scikit_learn(kind: str, dtype: str, storage: str) -> None:
    options, model = MODELS[kind]
    X, y = data()
    labels = y > 0 if "loss" in options else y
    wanted = np.squeeze(model().fit(X.astype(dtype).astype("f8"), labels).coef_)
    given = sp.csr_array(X.astype(dtype)) if storage == "sparse" else X.astype(dtype)
    task = st.cocoa(given, labels, **options, parts=3, sigma="measured", local_passes=30, tol=1e-9, max_rounds=600)
    result = st.run(task, runtime=st.Serial())
    assert -1e-13 < result.value < 1e-9
    assert min(result.history("gap")) > -1e-13
    assert np.abs(task.coef - wanted).max() < 2e-4


@pytest.mark.parametrize("kind", MODELS)
def test_empty_rows_empty_columns_and_constant_columns(kind: str) -> None:
    options, model = MODELS[kind]
    X, y = data()
    X[:, 5], X[:, 6] = 0.0, 1.0
    X[10:13] = 0.0
    X[-1] = 0.0
    labels = y > 0 if "loss" in options else y
    wanted = np.squeeze(model().fit(X, labels).coef_)
    for given in (X, sp.csr_array(X)):
        task = st.cocoa(given, labels, **options, parts=4, local_passes=30, tol=1e-8, max_rounds=600)
        st.run(task, runtime=st.Serial())
        assert task.gap < 1e-8 * task.objective
        assert task.coef[5] == 0.0
        assert np.abs(task.coef - wanted).max() < 1e-3


def test_all_zero_data_and_a_penalty_that_is_too_large() -> None:
    X, y = data()
    for sigma in (None, "data", "measured"):
        for given in (np.zeros_like(X), sp.csr_array(X.shape)):
            for options in ({"alpha": 0.1}, {"alpha": 0.1, "l1_ratio": 0.0}, {"loss": "hinge"}):
                task = st.cocoa(given, y > 0 if "loss" in options else y, sigma=sigma, max_rounds=20, **options)
                st.run(task, runtime=st.Serial())
                assert not task.coef.any()
                assert task.gap <= 1e-12 * task.objective
    strong = st.cocoa(X, y, alpha=1e3, sigma="measured")
    assert len(st.run(strong, runtime=st.Serial()).history("gap")) == 1
    assert not strong.coef.any()


@pytest.mark.slow
def test_as_many_parts_as_variables_and_rare_classes() -> None:
    X, y = data()
    single = st.cocoa(X, y, alpha=0.05, parts=FEATURES, sigma="measured", tol=1e-6)
    st.run(single, runtime=st.Threads(2))
    assert single.gap < 1e-6 * single.objective
    rare = st.cocoa(X, np.arange(SAMPLES) == 7, loss="squared_hinge", C=0.1, parts=SAMPLES, sigma="measured", tol=1e-4)
    st.run(rare, runtime=st.Serial())
    assert rare.gap < 1e-4 * rare.objective


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3))])
def test_default_settings_arrive_on_data_of_any_shape(seed: int) -> None:
    """Size, density, conditioning and the balance of classes vary; nothing is tuned."""
    draw = np.random.default_rng(seed)
    n, p = [(40, 300), (600, 30), (250, 250), (1000, 8)][seed]
    X = draw.standard_normal((n, p)) * (draw.random((n, p)) < [0.1, 1.0, 0.02, 0.5][seed])
    X *= 10.0 ** draw.uniform(-1, 1, p)
    y = X @ draw.standard_normal(p) + draw.standard_normal(n)
    labels = y > np.quantile(y, [0.5, 0.9, 0.97, 0.3][seed])
    largest = np.abs(X.T @ y).max() / n
    for sigma in (None, "measured"):
        for target, options in (
            (y, {"alpha": 0.3 * largest, "l1_ratio": 0.7}),
            (labels, {"loss": "hinge", "C": 1.0 / n}),
            (labels, {"loss": "logistic", "C": 1.0 / n}),
        ):
            task = st.cocoa(sp.csr_array(X), target, sigma=sigma, tol=1e-2, **options)
            st.run(task, runtime=st.Serial())
            assert task.gap < 1e-2 * task.objective, (sigma, options)
