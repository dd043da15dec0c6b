"""Group, multi-task, Poisson and Huber regression: beside scikit-learn, beside optimality conditions, at extremes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray
from sklearn import linear_model as theirs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import stretto as st
from stretto.errors import DataError, PlanError
from stretto.solvers.linear.groups import descent

Floats = NDArray[np.float64]
RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 24)) + 3.0
W = np.zeros(24)
W[[0, 1, 2, 9]] = [0.6, -0.5, 0.3, 0.4]
Y = (X - 3.0) @ W + 0.3 * RNG.normal(size=80)
SEVERAL = np.c_[Y, Y - X[:, 5], RNG.normal(size=80) + 50.0]
COUNTS = RNG.poisson(3.0 * np.exp((X - 3.0) @ W)).astype(np.float64)
HEAVY = Y + 0.1 * RNG.standard_cauchy(80)
WEIGHTS = RNG.integers(0, 3, 80).astype(np.float64)
GROUPS = [list(range(3 * g, 3 * g + 3)) for g in range(8)]
TIGHT: dict[str, Any] = {"tol": 1e-13, "max_iter": 1000}

MODELS: dict[str, tuple[Any, Floats]] = {
    "groups": (st.GroupLasso(0.05, groups=GROUPS, weights=np.linspace(0.5, 2.0, 8)), Y),
    "sparse groups": (st.GroupLasso(0.05, groups=3, l1_ratio=0.4), Y),
    "several": (st.MultiTaskLasso(0.05), SEVERAL),
    "several, ridge": (st.MultiTaskElasticNet(0.05, l1_ratio=0.3), SEVERAL),
    "poisson": (st.PoissonRegressor(0.05, l1_ratio=0.7), COUNTS),
    "poisson, ridge": (st.PoissonRegressor(0.05), COUNTS),
    "huber": (st.HuberElasticNet(0.05, epsilon=0.3, l1_ratio=0.9), HEAVY),
}
each = pytest.mark.parametrize("name", MODELS)


def fitted(name: str, features: Any = X, weight: Any = None, **parameters: Any) -> Any:
    model, y = MODELS[name]
    return type(model)(**model.get_params() | TIGHT | parameters).fit(features, y, weight)


def slopes(model: Any, features: Any, y: Floats, weight: Floats) -> tuple[Floats, Any]:
    """Minus the gradient of the mean loss for the coefficients [k, p] and the intercepts [k]."""
    z = np.asarray(features @ model.coef_.T + model.intercept_)
    if isinstance(model, st.PoissonRegressor):
        pull = y - np.exp(z)
    elif isinstance(model, st.HuberElasticNet):
        pull = np.clip(y - z, -model.epsilon, model.epsilon)
    else:
        pull = y - z
    pull = (pull.T * weight / weight.sum()).T
    return np.atleast_2d((features.T @ pull).T), pull.sum(axis=0)


def violation(model: Any, features: Any, y: Floats, weight: Floats | None = None) -> float:
    """The largest distance of zero from the objective's subdifferential, over groups."""
    weight = np.ones(len(y)) if weight is None else weight
    slope, level = slopes(model, features, y, weight)
    coef = np.atleast_2d(model.coef_)
    alpha, ratio = model.alpha, model.l1_ratio
    grouped = isinstance(model, st.GroupLasso)
    groups = (GROUPS if model.groups != 1 else [[j] for j in range(24)]) if grouped else [[j] for j in range(24)]
    factor = np.ones(len(groups)) if not grouped or model.weights is None else np.asarray(model.weights)
    among, within, ridge = (
        (alpha * (1 - ratio), alpha * ratio, 0.0) if grouped else (alpha * ratio, 0.0, alpha * (1 - ratio))
    )
    worst = float(np.max(np.abs(level)))
    for columns, c in zip(groups, factor, strict=True):
        w, g = coef[:, columns], slope[:, columns] - ridge * coef[:, columns]
        if not w.any():
            beyond = np.linalg.norm(np.maximum(np.abs(g) - within, 0.0)) - c * among
            worst = max(worst, float(beyond))
            continue
        rest = g - c * among * w / np.linalg.norm(w)
        wrong = np.where(w != 0.0, np.abs(rest - within * np.sign(w)), np.maximum(np.abs(rest) - within, 0.0))
        worst = max(worst, float(wrong.max()))
    return worst


@each
@pytest.mark.parametrize("storage", ["dense", "csc", "csr", "float32", "int64"])
def test_optimality(name: str, storage: str) -> None:
    thin = np.where(np.abs(X - 3.0) < 1.0, 0.0, X)
    held: Any = {"dense": X, "float32": np.float32(X), "csc": sp.csc_array(thin), "csr": sp.csr_array(thin)}.get(
        storage
    )
    if storage == "int64":
        held = sp.csc_array(thin)
        held.indices, held.indptr = held.indices.astype(np.int64), held.indptr.astype(np.int64)
    for weight in (None, WEIGHTS):
        model = fitted(name, held, weight)
        y = MODELS[name][1]
        assert violation(model, held.astype(np.float64), y, weight) < 2e-6
        assert 0.0 <= model.dual_gap_ <= 1e-9
        if held is X and (model.l1_ratio > 0 or "groups" in name):
            assert 0 < model.sparse_coef_.nnz < model.coef_.size


@each
def test_weights_are_repeated_samples(name: str) -> None:
    often = np.repeat(np.arange(80), WEIGHTS.astype(int))
    model, (_, y) = fitted(name, weight=WEIGHTS), MODELS[name]
    again = type(model)(**model.get_params()).fit(X[often], y[often])
    np.testing.assert_allclose(model.coef_, again.coef_, atol=2e-6)
    np.testing.assert_allclose(model.intercept_, again.intercept_, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_several_targets_beside_scikit_learn(intercept: bool, ratio: float) -> None:
    ours = st.MultiTaskElasticNet(0.05, l1_ratio=ratio, fit_intercept=intercept, **TIGHT).fit(X, SEVERAL)
    other = theirs.MultiTaskElasticNet(0.05, l1_ratio=ratio, fit_intercept=intercept, tol=1e-12, max_iter=10**6)
    other.fit(X, SEVERAL)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, other.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), other.predict(X), atol=1e-4)
    assert ours.score(X, SEVERAL) == pytest.approx(other.score(X, SEVERAL))


@pytest.mark.parametrize("intercept", [True, False])
def test_counts_beside_scikit_learn(intercept: bool) -> None:
    A = X - 3.0
    for alpha in (1.0, 1e-3):
        ours = st.PoissonRegressor(alpha, fit_intercept=intercept, **TIGHT).fit(A, COUNTS, WEIGHTS)
        other = theirs.PoissonRegressor(
            alpha=alpha, fit_intercept=intercept, tol=1e-10, solver="newton-cholesky", max_iter=1000
        ).fit(A, COUNTS, WEIGHTS)
        np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-6)
        np.testing.assert_allclose(ours.predict(A), other.predict(A), rtol=1e-5)
        for weight in (None, WEIGHTS):
            assert ours.score(A, COUNTS, weight) == pytest.approx(other.score(A, COUNTS, weight), abs=1e-6)


def test_special_cases_are_the_elastic_net() -> None:
    lasso, net = st.Lasso(0.05, **TIGHT).fit(X, Y), st.ElasticNet(0.05, l1_ratio=0.9, **TIGHT).fit(X, HEAVY)
    for same in (
        st.GroupLasso(0.05, groups=1, **TIGHT).fit(X, Y),
        st.GroupLasso(0.05, groups=3, l1_ratio=1.0, **TIGHT).fit(X, Y),
        st.MultiTaskLasso(0.05, **TIGHT).fit(X, Y[:, None]),
    ):
        np.testing.assert_allclose(np.ravel(same.coef_), lasso.coef_, atol=1e-7)
        assert np.ravel(same.intercept_)[0] == pytest.approx(lasso.intercept_)
    huber = st.HuberElasticNet(0.05, l1_ratio=0.9, epsilon=1e6, **TIGHT).fit(X, HEAVY)
    np.testing.assert_allclose(huber.coef_, net.coef_, atol=1e-6)


@each
def test_the_gap_bounds_the_objective(name: str) -> None:
    best = fitted(name).objective_
    for tol in (1e-1, 1e-2, 1e-4):
        model = fitted(name, tol=tol)
        assert best - 1e-12 <= model.objective_ <= best + model.dual_gap_ + 1e-12
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 rounds at a duality gap"):
        assert fitted(name, max_iter=1).dual_gap_ > 0


@each
def test_any_number_of_threads(name: str) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 750))
    model, y = MODELS[name]
    y = np.tile(y, (3, 1) if y.ndim > 1 else 3)[:200]
    parameters = model.get_params() | {"alpha": 0.02, "tol": 1e-6, "groups": 3, "weights": None}
    parameters = {key: value for key, value in parameters.items() if key in model.get_params()}
    for held in (A, sp.csc_array(A * (rng.random(A.shape) < 0.4))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = [type(model)(**parameters | {"n_jobs": n}).fit(held, y) for n in (1, 2, 4)]
        assert len({(one.coef_.tobytes(), np.asarray(one.intercept_).tobytes(), one.dual_gap_) for one in found}) == 1
        assert found[0].coef_.any()


@each
def test_products_and_sweeps_over_the_data_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thin = sp.csc_array(np.where(np.abs(X - 3.0) < 1.0, 0.0, X))
    cases = [(held, weight) for held in (X, thin) for weight in (None, WEIGHTS)]
    whole = [fitted(name, *case).coef_ for case in cases]
    monkeypatch.setattr(descent, "_SLOTS", 0)
    for case, coef in zip(cases, whole, strict=True):
        np.testing.assert_allclose(fitted(name, *case).coef_, coef, atol=2e-6)


@each
def test_warm_start_and_search(name: str) -> None:
    model, y = MODELS[name]
    warm = type(model)(**model.get_params() | {"warm_start": True, "tol": 1e-6}).fit(X, y)
    first = warm.coef_.copy()
    assert warm.fit(X, y).n_iter_ == 1
    np.testing.assert_array_equal(warm.coef_, first)
    cold = type(model)(**model.get_params() | {"tol": 1e-6, "alpha": 0.02}).fit(X, y)
    assert warm.set_params(alpha=0.02).fit(X, y).objective_ == pytest.approx(cold.objective_, rel=1e-5)
    search = GridSearchCV(type(model)(**model.get_params()), {"alpha": [100.0, 0.02]}, cv=3).fit(X, y)
    assert search.best_params_ == {"alpha": 0.02}


@each
def test_plans_and_files(name: str, tmp_path: Path) -> None:
    model, y = MODELS[name]
    plan = model.plan(X, y)
    assert plan.run().fingerprint_ == type(model)(**model.get_params()).fit(X, y).fingerprint_
    assert "minimise (1/" in plan.explain()
    assert "all coefficients are zero from alpha" in model.explain(X, y) or "no coefficient" in model.explain(X, y)
    model.save(tmp_path / "model")
    found = type(model).load(tmp_path / "model")
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    assert type(found.intercept_) is type(model.intercept_)
    np.testing.assert_array_equal(found.fit(X, y).coef_, model.coef_)


def test_the_strongest_penalty() -> None:
    for name, (model, y) in MODELS.items():
        if "from alpha " not in (text := model.explain(X, y)):
            continue
        top = float(text.split("from alpha ")[1].split(" on")[0])
        assert not fitted(name, alpha=1.001 * top).coef_.any()
        assert fitted(name, alpha=0.995 * top).coef_.any()


@settings(max_examples=25, deadline=None)
@given(
    n=some.integers(1, 12),
    p=some.integers(1, 20),
    k=some.integers(1, 5),
    seed=some.integers(0, 10**6),
    scale=some.sampled_from([1e-30, 1.0, 1e12]),
    shift=some.sampled_from([0.0, 1e4]),
    ratio=some.sampled_from([0.0, 0.5, 1.0]),
)
def test_any_problem(n: int, p: int, k: int, seed: int, scale: float, shift: float, ratio: float) -> None:
    """More features than samples, constant and equal columns, any scale: the gap is reached and is no lie."""
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, (n, p)) * scale
    A[:, rng.integers(p)] = scale  # constant
    y = rng.normal(size=(n, k)) + shift
    groups = rng.integers(0, 3, p)
    top = float(np.linalg.norm(A.T @ (y - y.mean(axis=0)), axis=1).max()) / n
    alpha = max(0.1 * top, 1e-60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for model, target in (
            (st.GroupLasso(alpha, groups=groups, l1_ratio=ratio), y[:, 0]),
            (st.MultiTaskElasticNet(alpha, l1_ratio=max(ratio, 0.5)), y),
            (st.HuberElasticNet(alpha, l1_ratio=max(ratio, 0.5)), y[:, 0]),
        ):
            model.set_params(max_iter=1000).fit(A, target)
            assert np.isfinite(model.coef_).all()
            size = float(np.sum((target - target.mean(axis=0)) ** 2)) / n
            assert 0.0 <= model.dual_gap_ <= 1e-4 * size + 1e-10 * shift


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_any_counts(size: float) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 200))
    y = rng.poisson(size * np.exp(3.0 * A[:, 0] - 3.0 * A[:, 1])).astype(np.float64)
    y[0] += 1
    for ratio in (0.0, 0.5, 1.0):
        for alpha in (size, 1e-3 * size):
            model = st.PoissonRegressor(alpha, l1_ratio=ratio, tol=1e-6, max_iter=500).fit(A, y)
            assert model.dual_gap_ <= 1e-6 * model.objective_ + 1e-9 * size
            assert model.score(A, y) >= -1e-6
    with pytest.raises(DataError, match=r"the expected count of sample [0-9]+ is exp.*, too large for a number"):
        model.predict(1e6 * A)


def test_the_score_of_counts() -> None:
    model = st.PoissonRegressor(0.1).fit(X, COUNTS)
    for y in (COUNTS[:-1], COUNTS[:1], COUNTS[:, None], np.c_[COUNTS, COUNTS]):
        with pytest.raises(
            DataError, match=r"(X has 80 samples and y has|y has shape) .*; give one .* for each sample"
        ):
            model.score(X, y)
    assert model.score(X, np.full(len(X), 3.0)) == model.score(X, np.zeros(len(X))) == 0.0
    low = st.PoissonRegressor(0.1).fit(X, COUNTS)
    low.intercept_ -= 800.0  # the expected counts underflow to 0; their logarithms do not
    assert -np.inf < low.score(X, COUNTS) < -100.0


def test_tiny_penalties_and_tiny_features() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        A = X.copy()
        A[:, 3] = 1e-170  # its square is 0
        plain = st.MultiTaskLasso(0.1, max_iter=1000).fit(np.delete(A, 3, axis=1), SEVERAL)
        found = st.MultiTaskLasso(0.1, max_iter=1000).fit(A, SEVERAL)
        np.testing.assert_allclose(np.delete(found.coef_, 3, axis=1), plain.coef_, atol=1e-3)
        assert not found.coef_[:, 3].any()
        least = [st.MultiTaskLasso(alpha, max_iter=1000).fit(X, SEVERAL) for alpha in (1e-12, 1e-308, 5e-324)]
        for model in least[1:]:
            np.testing.assert_allclose(model.predict(X), least[0].predict(X), atol=0.1)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "size": (st.GroupLasso(groups=5), Y, "groups=5: a size of groups is at least 1 and divides the 24 features"),
    "twice": (st.GroupLasso(groups=[[0, 1], [1, 2]]), Y, "every feature from 0 to 23 once; feature 1 is in 2 of them"),
    "left out": (st.GroupLasso(groups=[list(range(23))]), Y, "feature 23 is in 0 of them"),
    "beyond": (st.GroupLasso(groups=[list(range(24)), [24]]), Y, "some are out of that range"),
    "empty": (st.GroupLasso(groups=[[], list(range(24))]), Y, r"list 0 is \[\]"),
    "labels": (st.GroupLasso(groups=np.zeros(7)), Y, r"shape \(7,\); .* one label for each of the 24 features"),
    "mixed": (st.GroupLasso(groups=np.array(["a", 1] * 12, object)), Y, "labels must be of one type"),
    "weights": (st.GroupLasso(groups=3, weights=[1.0]), Y, r"weights has shape \(1,\); there are 8 groups"),
    "no weight": (st.GroupLasso(groups=3, weights=[0.0] * 8), Y, "weights are more than 0"),
    "words": (st.GroupLasso(groups=3, weights=["a"] * 8), Y, "are no numbers"),
    "huge whole number": (st.GroupLasso(groups=3, weights=10**400), Y, "are no numbers .int too large"),
    "huge longdouble": (st.GroupLasso(groups=3, weights=[np.longdouble("1e400")] * 8), Y, "at most 1e"),
    "one target": (st.MultiTaskLasso(), Y, "not .samples, targets.; for one target use Lasso"),
    "sparse targets": (st.MultiTaskLasso(), sp.csr_array(SEVERAL), "y is sparse"),
    "negative": (st.PoissonRegressor(), Y, "y holds .* at sample .*; counts and rates are 0 or more"),
    "no counts": (st.PoissonRegressor(), 0.0 * Y, "all counts in y are 0"),
    "epsilon": (st.HuberElasticNet(epsilon=0.0), Y, "epsilon"),
    "alpha": (st.HuberElasticNet(alpha=0.0), Y, "take a small alpha"),
    "ratio": (st.GroupLasso(l1_ratio=2.0), Y, "l1_ratio"),
    "elsewhere": (st.GroupLasso(runtime=st.Simulated(nodes=2)), Y, "groups of coefficients are solved in one memory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model, y, words = REFUSED[name]
    with pytest.raises((DataError, PlanError, ValueError), match=words):
        model.fit(X, y)


def test_files_and_nodes(tmp_path: Path) -> None:
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(X, COUNTS, str(tmp_path / "counts.svm"))
    for make in (st.PoissonRegressor, st.HuberElasticNet):
        here = make(0.1, l1_ratio=0.5, runtime=st.Serial()).fit(str(tmp_path / "counts.svm"))
        nodes = make(0.1, l1_ratio=0.5, runtime=st.Simulated(nodes=3)).fit(str(tmp_path / "counts.svm"))
        np.testing.assert_array_equal(here.coef_, nodes.coef_)
    with pytest.raises(DataError, match="files hold one label for each sample"):
        st.MultiTaskLasso().fit(str(tmp_path / "counts.svm"))
    found = st.GroupLasso(0.1, groups=3).fit(str(tmp_path / "counts.svm"))
    np.testing.assert_allclose(found.coef_, st.GroupLasso(0.1, groups=3).fit(X, COUNTS).coef_, atol=1e-4)
