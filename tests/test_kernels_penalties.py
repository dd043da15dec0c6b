"""Kernels of Poisson and Huber loss and of groups beside plain formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

import stretto as st
from stretto.kernels.linear.groups import columns, descent
from stretto.kernels.numeric import extrapolation
from stretto.solvers.linear.losses.regression_losses import Huber, Poisson

Floats = NDArray[np.float64]
RNG = np.random.default_rng(3)
N = 37
Z, WEIGHT = RNG.normal(size=N), RNG.integers(0, 4, N).astype(np.float64)
COUNTS = RNG.poisson(2.0, N).astype(np.float64)
Y = Z + RNG.standard_cauchy(N)


def losses(intercept: bool) -> dict[str, tuple[Poisson | Huber, Floats]]:
    return {
        "poisson": (Poisson(COUNTS, WEIGHT, intercept, "exact"), COUNTS),
        "huber": (Huber(Y, WEIGHT, intercept, "exact", epsilon=0.7), Y),
    }


def value(name: str, y: Floats, z: Floats) -> Floats:
    """The loss of each sample."""
    if name == "poisson":
        return np.exp(z) - y * z + y * np.log(np.where(y > 0, y, 1.0)) - y
    r = np.abs(y - z)
    return np.where(r <= 0.7, 0.5 * r * r, 0.7 * r - 0.245)


@pytest.mark.parametrize("name", ["poisson", "huber"])
def test_value_and_gradient(name: str) -> None:
    loss, y = losses(False)[name]
    at = loss.look(Z, 0.3)
    assert at.value == pytest.approx(float(WEIGHT @ value(name, y, Z + 0.3)))
    h = 1e-6
    slope = (value(name, y, Z + 0.3 + h) - value(name, y, Z + 0.3 - h)) / (2 * h)
    np.testing.assert_allclose(at.v, -WEIGHT * slope, atol=1e-6 * np.abs(slope).max())
    assert (at.d[WEIGHT > 0] > 0).all()
    there, step = loss.step(Z, np.ones(N), 0.5, -0.2)
    np.testing.assert_array_equal(there, Z + 0.5)
    np.testing.assert_allclose(step.v, at.v)


@pytest.mark.parametrize("name", ["poisson", "huber"])
def test_intercept(name: str) -> None:
    loss, y = losses(True)[name]
    for start in (-50.0, 0.0, 3.0):
        at = loss.look(Z, start)
        best = optimize.minimize_scalar(
            lambda b: float(WEIGHT @ value(name, y, Z + b)), bounds=(-9, 9), method="bounded"
        )
        assert at.value <= best.fun + 1e-9
        assert abs(float(at.v.sum())) <= 1e-12 * float(np.abs(at.v).sum())


@pytest.mark.parametrize("name", ["poisson", "huber"])
@pytest.mark.parametrize("scale", [1.0, 0.6, 0.0])
def test_dual(name: str, scale: float) -> None:
    """−Σ weight·conj(−θ / weight), the conjugate by a search over predictions."""
    loss, y = losses(False)[name]
    at = loss.look(Z, 0.0)
    grid = np.linspace(-60.0, 60.0, 200_001)
    found = 0.0
    for i in np.flatnonzero(WEIGHT):
        theta = scale * at.v[i] / WEIGHT[i]
        z = grid + (y[i] if name == "huber" else 0.0)
        found += WEIGHT[i] * float(np.min(value(name, y[i : i + 1], z) + theta * z))
    assert loss.dual(at, scale, Z) == pytest.approx(found, abs=2e-3)
    assert loss.dual(at, scale, Z) <= at.value + 1e-9


def test_the_damped_curvature_of_huber_bounds_it() -> None:
    loss, y = losses(False)["huber"]
    at = loss.look(Z, 0.0)
    bound = loss.curvature(Z, at, 1.0)
    for move in (-30.0, -0.5, 0.1, 4.0):
        upper = WEIGHT * value("huber", y, Z) - at.v * move + 0.5 * bound * move * move
        assert (upper >= WEIGHT * value("huber", y, Z + move) - 1e-9).all()


def test_extrapolation_ends_a_linear_iteration() -> None:
    M = RNG.normal(size=(4, 4))
    M *= 0.95 / np.abs(np.linalg.eigvals(M)).max()
    x, limit = np.zeros(4), np.linalg.solve(np.eye(4) - M, np.ones(4))
    history = []
    for _ in range(extrapolation.MOST + 1):
        history.append(x)
        x = M @ x + 1.0
    points, most = np.array(history), extrapolation.MOST
    point, followed = np.empty(4), np.empty(4)
    assert extrapolation.extrapolate(points, 2.0 * points, np.empty((most, most)), np.empty(most), point, followed)
    assert np.linalg.norm(point - limit) < 0.01 * np.linalg.norm(points[-1] - limit)
    np.testing.assert_allclose(followed, 2.0 * point)
    still = np.ones((most + 1, 4))
    assert not extrapolation.extrapolate(still, still, np.empty((most, most)), np.empty(most), point, followed)


def test_descent_in_a_group() -> None:
    """The objective of one group never rises, and ends at its minimum."""
    A = RNG.normal(size=(9, 5))
    H, q, w = A.T @ A, A.T @ RNG.normal(size=9), np.zeros(5)
    curve = np.linalg.eigvalsh(H)[-1]
    scratch = np.empty((2, 5))
    found = descent.largest_curvature(H.ravel(), 0, 5, 5, scratch[0], scratch[1])
    assert 0.9 * curve <= found <= 1.03 * curve

    def objective(w: Floats) -> float:
        return float(0.5 * w @ H @ w - q @ w + 0.4 * np.linalg.norm(w) + 0.1 * np.abs(w).sum())

    before, wrong = objective(w), np.inf
    for _ in range(200):
        g = q - H @ w
        wrong = descent.descend_group(H.ravel(), 0, 5, 5, 1, w, g, np.empty(5), 0.4, 0.1, found)
        np.testing.assert_allclose(g, q - H @ w, atol=1e-9)
        assert objective(w) <= before + 1e-12
        before = objective(w)
    assert wrong < 1e-9
    for _ in range(50):
        assert objective(w + 1e-4 * RNG.normal(size=5)) >= before - 1e-12


def test_the_largest_factor_of_the_gradients() -> None:
    A, bounds = RNG.normal(size=(6, 2)), np.array([0, 2, 3, 6])
    group_l1, norm = np.array([0.5, 0.4, 0.9]), np.empty(3)
    for l1 in (0.0, 0.2):
        ratio = np.ones(1)
        columns.measure_groups(np.arange(3), bounds, A, group_l1, l1, 1.0, norm, ratio)
        parts = [np.linalg.norm(np.maximum(np.abs(ratio[0] * A[a:b]) - l1, 0.0)) for a, b in itertools.pairwise(bounds)]
        assert max(np.array(parts) / group_l1) == pytest.approx(1.0)
        np.testing.assert_allclose(norm[1], np.linalg.norm(np.maximum(np.abs(A[2]) - l1, 0.0)))


def test_ridge_of_many_sparse_features() -> None:
    """More columns than a table of products is tried for: conjugate gradients."""
    import scipy.sparse as sp
    from sklearn.linear_model import PoissonRegressor

    X = sp.random_array((300, 700), density=0.05, random_state=1, format="csc")
    y = RNG.poisson(np.exp(X[:, :20].sum(axis=1))).astype(np.float64)
    ours = st.PoissonRegressor(0.01, tol=1e-12).fit(X, y)
    theirs = PoissonRegressor(alpha=0.01, tol=1e-9, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
