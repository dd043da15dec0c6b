"""LogisticRegression over whole grids of C, from penalties that leave nothing to data that are separated, and from bad
starts: never above the optimum by more than tol, beside liblinear and by a duality gap worked out here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import entr, expit
from sklearn.exceptions import ConvergenceWarning

import realdata
from linear_problems import objective
from stretto import LogisticRegression
from stretto.errors import PlanError
from stretto.solvers.linear.losses.loss import Logistic

Floats = NDArray[np.float64]

GRID = [10.0**power for power in range(-3, 5)]
TOL = 1e-4  # the default


def labels(X: Any, noise: float, seed: int) -> Floats:
    """Classes ±1 that a few features explain, the scores blurred by `noise` standard deviations."""
    rng = np.random.default_rng(seed)
    score = X @ np.where(rng.random(X.shape[1]) < 0.1, rng.standard_normal(X.shape[1]), 0.0)
    score = score + noise * score.std() * rng.standard_normal(len(score))
    return np.where(score > np.median(score), 1.0, -1.0)


def sparse(n: int, p: int, per_row: int, noise: float) -> tuple[Any, Floats]:
    rng = np.random.default_rng(n)
    X = sp.random_array(
        (n, p), density=per_row / p, rng=rng, format="csc", data_sampler=lambda size: rng.normal(size=size)
    )
    return X, labels(X, noise, 0)


def counts(n: int, p: int) -> tuple[Any, Floats]:
    """Words of documents: a few in all of them, most in hardly any, as they are counted."""
    rng = np.random.default_rng(n)
    X = rng.poisson(20.0 / np.arange(1, p + 1), (n, p)).astype(np.float64)
    return sp.csr_array(X), labels(X, 0.3, 1)


def dense(n: int, p: int, noise: float, alike: float = 0.0) -> tuple[Any, Floats]:
    rng = np.random.default_rng(p)
    X = np.sqrt(1.0 - alike) * rng.standard_normal((n, p)) + np.sqrt(alike) * rng.standard_normal((n, 1))
    return X, labels(X, noise, 2)


def scales(n: int, p: int) -> tuple[Any, Floats]:
    X, y = dense(n, p, 0.5)
    return X * np.geomspace(1e-3, 1e3, p), y


SETS: dict[str, tuple[Any, Floats]] = {
    "few entries": sparse(250, 280, 3, 1.5),
    "nearly separated": sparse(300, 300, 12, 0.2),
    "separated": dense(60, 40, 0.0),
    "wide": dense(40, 600, 0.5),
    "alike": dense(150, 100, 0.5, 0.9),
    "tall": dense(600, 8, 1.0),
    "counts": counts(200, 300),
    "scales": scales(120, 60),
}


def gap(X: Any, y: Floats, C: float, coef: Floats) -> float:
    """The duality gap without an intercept: how far above the optimum the objective can be."""
    margins = y * (X @ coef)
    wrong = C * expit(-margins)
    scale = min(1.0, 1.0 / max(float(np.abs(X.T @ (y * wrong)).max()), 1e-300))
    share = scale * expit(-margins)
    return objective(X, y, np.full(len(y), C), coef, 0.0, 1.0, 0.0, "logistic") - C * float(
        np.sum(entr(share) + entr(1.0 - share))
    )


def by_liblinear(X: Any, y: Floats, C: float, tol: float = 1e-8) -> float:
    """The objective that liblinear reaches without an intercept (it would penalise one)."""
    from sklearn.linear_model import LogisticRegression as Theirs

    theirs = Theirs(
        C=C, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=tol, max_iter=20_000, random_state=0
    )
    coef = theirs.fit(X, y).coef_[0]
    return objective(X, y, np.full(len(y), C), coef, 0.0, 1.0, 0.0, "logistic")


@pytest.mark.parametrize("name", SETS)
def test_every_penalty_of_a_grid_is_solved(name: str) -> None:
    X, y = SETS[name]
    for C in GRID:
        model = LogisticRegression(C, fit_intercept=False, l1_ratio=1.0).fit(X, y)  # a warning would be an error here
        value = objective(X, y, np.full(len(y), C), model.coef_[0], 0.0, 1.0, 0.0, "logistic")
        assert value == pytest.approx(model.objective_[0], rel=1e-9)
        assert gap(X, y, C, model.coef_[0]) <= TOL * value * (1 + 1e-6), C
        assert value <= by_liblinear(X, y, C) * (1 + TOL), C


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"l1_ratio": 0.5},
        pytest.param({"l1_ratio": 0.01, "class_weight": "balanced"}, marks=pytest.mark.slow),
        pytest.param({"standardize": True}, marks=pytest.mark.slow),
        pytest.param({"weights": True, "fit_intercept": False}, marks=pytest.mark.slow),
    ],
    ids=["", "elastic net", "mostly l2, balanced", "standardize", "weights"],
)
def test_grids_of_other_problems(name: str, how: dict[str, Any]) -> None:
    """Each converges, and a much stricter fit, which has a certificate of its own, finds nothing better."""
    X, y = SETS[name]
    options = {"l1_ratio": 1.0} | {key: value for key, value in how.items() if key != "weights"}
    weight = np.random.default_rng(0).exponential(size=len(y)) if "weights" in how else None
    for C in GRID[1::2]:
        rough = LogisticRegression(C, **options).fit(X, y, weight)
        assert rough.dual_gap_[0] <= TOL * rough.objective_[0]
        strict = LogisticRegression(C, tol=1e-8, **options).fit(X, y, weight)
        assert strict.dual_gap_[0] <= 1e-8 * strict.objective_[0] * (1 + 1e-6)
        assert strict.objective_[0] <= rough.objective_[0] * (1 + 1e-8)
        assert rough.objective_[0] <= strict.objective_[0] * (1 + 1.001 * TOL)


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("far", [10.0, 100.0, 1e4, 1e8])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
def test_a_start_at_which_every_sample_is_far_from_the_border(C: float, far: float, intercept: bool) -> None:
    """There the loss has no curvature: the model of it must not send the next step even further."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 30))
    y = X[:, 0] - X[:, 1] + rng.standard_normal(80) > 0
    model = LogisticRegression(C, warm_start=True, fit_intercept=intercept, l1_ratio=1.0)
    model.coef_, model.intercept_ = far * rng.standard_normal((1, 30)), np.zeros(1)
    best = LogisticRegression(C, tol=1e-9, fit_intercept=intercept, l1_ratio=1.0).fit(X, y).objective_[0]
    model.fit(X, y)
    assert model.dual_gap_[0] <= TOL * model.objective_[0]
    assert model.objective_[0] <= best * (1 + TOL)


def test_one_class_against_the_rest_over_a_grid() -> None:
    X, _ = SETS["few entries"]
    score = X @ np.random.default_rng(5).standard_normal((X.shape[1], 3))
    y = score.argmax(axis=1)
    for C in GRID[3:]:
        model = LogisticRegression(C, multi_class="ovr", fit_intercept=False, l1_ratio=1.0).fit(X, y)
        for k in range(3):
            signs = np.where(y == k, 1.0, -1.0)
            assert gap(X, signs, C, model.coef_[k]) <= TOL * model.objective_[k] * (1 + 1e-6)


def test_the_curvature_of_the_damped_model_is_that_of_a_parabola_above_the_loss() -> None:
    """With its whole share: touching at the point, above the loss everywhere, on both sides of the border."""
    z = np.concatenate([-np.geomspace(1e-9, 500.0, 60), np.geomspace(1e-9, 500.0, 60), [0.0]])
    y, weight = np.where(np.arange(len(z)) % 2, 1.0, -1.0), np.linspace(0.0, 3.0, len(z))
    loss = Logistic(y, weight, False, "exact")
    at = loss.look(z, 0.0)
    whole = loss.curvature(z, at, 1.0)
    assert np.all(loss.curvature(z, at, 0.0) == at.d)
    assert np.all(loss.curvature(z, at, 0.01) <= whole)
    assert np.all(at.d <= whole * (1 + 1e-12))
    here = weight * np.logaddexp(0.0, -y * z)
    for step in (-1000.0, -30.0, -2.0, -0.1, 0.1, 2.0, 30.0, 1000.0):
        there = weight * np.logaddexp(0.0, -y * (z + step))
        above = here - at.v * step + 0.5 * whole * step**2
        assert np.all(there <= above + 1e-12 * (1.0 + above))


def test_a_fit_that_stops_early_says_so() -> None:
    X, y = SETS["nearly separated"]
    for storage in (sp.csr_array, np.asarray):
        with pytest.warns(ConvergenceWarning, match="stopped after max_iter=2 rounds at a duality gap"):
            LogisticRegression(100.0, max_iter=2, l1_ratio=1.0).fit(storage(X.toarray()), y)


@pytest.mark.parametrize("C", [1.0, 10.0, 100.0, 1e4])
def test_saturated_samples_do_not_stall_a_sparse_fit(C: float) -> None:
    """2,000 × 2,200 with noisy labels: without damped or loosely solved models the objective stays far above."""
    X, y = sparse(2_000, 2_200, 5, 1.0)
    model = LogisticRegression(C, fit_intercept=False, l1_ratio=1.0).fit(X, y)
    assert gap(X, y, C, model.coef_[0]) <= TOL * model.objective_[0] * (1 + 1e-6)
    assert model.objective_[0] <= by_liblinear(X, y, C, tol=1e-6) * (1 + TOL)


def test_a_sparse_fit_is_the_same_at_any_number_of_threads() -> None:
    X, y = sparse(2_000, 2_200, 5, 1.0)
    one, two = (LogisticRegression(30.0, n_jobs=jobs, l1_ratio=1.0).fit(X, y) for jobs in (1, 2))
    assert np.array_equal(one.coef_, two.coef_)
    assert one.intercept_ == two.intercept_


@pytest.mark.parametrize(("option", "value"), [("optimizer", "sgd"), ("learning_rate", 0.1)])
def test_options_without_effect_are_refused(option: str, value: Any) -> None:
    X, y = SETS["tall"]
    with pytest.raises(PlanError, match=f"{option}=.* has no effect with solver='auto'"):
        LogisticRegression(**{option: value}).fit(X, y)
    with pytest.raises(PlanError, match="leave it at its default"):
        LogisticRegression(**{option: value}).explain(X, y)


# --- real sets ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)  # 20news takes two minutes of CPU, most of them at the largest C
@pytest.mark.parametrize("name", ["a9a", "w8a", "ijcnn1", "20news", "gordon"])
def test_every_penalty_of_a_grid_is_solved_on_real_sets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import sparse_sets

    folder = realdata.find({"gordon": "microarray-gordon"}.get(name, name)).parent
    monkeypatch.setenv("STRETTO_DATA", str(folder))
    X, y = sparse_sets.load_classes(name)
    for C in GRID:
        model = LogisticRegression(C, fit_intercept=False, l1_ratio=1.0).fit(X, y)
        value = objective(X, y, np.full(len(y), C), model.coef_[0], 0.0, 1.0, 0.0, "logistic")
        assert gap(X, y, C, model.coef_[0]) <= TOL * value * (1 + 1e-6), C
