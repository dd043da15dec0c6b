"""The parts of Newton steps for the logistic loss: products, intercepts, and the smaller problem of wide data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special

import stretto as st
from stretto.data.design.design import Design
from stretto.kernels.linear import sample_losses
from stretto.kernels.newton import row_space
from stretto.runtime.blocks.step import make_step
from stretto.runtime.runtimes import Threads
from stretto.schedule.orders.rotation import independent
from stretto.solvers.linear.columns import ColumnPasses
from stretto.solvers.linear.gram import Gram
from stretto.solvers.linear.losses.loss import Logistic
from stretto.solvers.linear.point import PreparedProblem
from stretto.solvers.linear.reduced.row_space import suits
from stretto.solvers.linear.regression import RegressionProblem

Floats = NDArray[np.float64]


def matrix(n: int, p: int, *, sparse: bool = False, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + rng.standard_normal(p)
    return X * (rng.random((n, p)) < 0.4) if sparse else X


# --- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("n", "p"), [(5, 1), (33, 3), (600, 5), (1025, 18), (70_000, 7), (300, 140)])
def test_products_under_changing_weights(n: int, p: int, sparse: bool) -> None:
    from scipy.sparse import csc_array

    X = matrix(n, p, sparse=sparse)
    d = np.random.default_rng(1).random(n)
    d[::7] = 0.0
    mean = d @ X / d.sum()
    expected = (X - mean).T @ ((X - mean) * d[:, None])
    with Threads(1).open() as crew:
        columns = ColumnPasses(Design.of(csc_array(X) if sparse else X), crew, "exact")
        gram = Gram(columns, d, mean, True, 512, changing=True)
        some = np.arange(0, p, 2)
        np.testing.assert_allclose(gram.of(some)[:, : len(some)], expected[np.ix_(some, some)], rtol=1e-9, atol=1e-7)
        # Columns are added to those that have products, across the limit up to which no panels are needed.
        every = np.arange(p)
        np.testing.assert_allclose(gram.of(every)[:, :p], expected, rtol=1e-9, atol=1e-7)


def test_two_products_in_one_pass() -> None:
    from scipy.sparse import csc_array

    X, rng = matrix(1_000, 6, sparse=True), np.random.default_rng(2)
    v, d = rng.standard_normal(1_000), rng.random(1_000)
    which = np.array([1, 4, 5])
    for given in (X, csc_array(X), X.astype(np.float32)):
        with Threads(1).open() as crew:
            one, two = np.zeros(6), np.zeros(6)
            ColumnPasses(Design.of(given), crew, "exact").price_both(which, v, d, one, two)
        exact = np.asarray(given.toarray() if hasattr(given, "toarray") else given, np.float64)
        np.testing.assert_allclose(one[which], (exact.T @ v)[which], rtol=1e-12)
        np.testing.assert_allclose(two[which], (exact.T @ d)[which], rtol=1e-12)
        assert not one[[0, 2, 3]].any()


# --- intercepts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [0.0, 1e-9, 1e-5, 0.3, 20.0])
def test_an_intercept_is_settled_from_a_known_point(far: float) -> None:
    """The last step is a Taylor series of second order: it must leave no error that an evaluation would show."""
    rng = np.random.default_rng(3)
    z, weight = 2.0 * rng.standard_normal(500), rng.random(500)
    y = np.where(rng.random(500) < 0.3, 1.0, -1.0)
    loss = Logistic(y, weight, True, "exact")
    best = loss.look(z, 0.0)
    _, at = loss.step(z, np.zeros(500), 0.0, best.b + far)
    found = loss.settled(z, at)
    again = loss.look(z, found.b, settle=False)
    assert found.b == pytest.approx(best.b, abs=1e-13)
    assert found.value == pytest.approx(again.value, rel=1e-14)
    np.testing.assert_allclose(found.v, again.v, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(found.d, again.d, rtol=1e-10, atol=1e-16)
    assert abs(found.v.sum()) <= 1e-13 * weight.sum()


def test_the_intercept_of_predictions_of_zero_is_the_log_odds() -> None:
    y, weight = np.array([1.0, -1.0, -1.0, 1.0]), np.array([0.5, 2.0, 1e-3, 1e-4])
    found = sample_losses.constant_logistic(y, weight, np.empty(4))
    assert found == pytest.approx(float(special.logit(weight[y > 0].sum() / weight.sum())), rel=1e-13)
    assert sample_losses.constant_logistic(np.ones(4), weight, np.empty(4)) == 0.0


# --- wide data --------------------------------------------------------------------------------------------------------


def row_products(X: Floats, unit: Floats, size: int) -> Floats:
    """The products of rows, with several parts of the columns and two panels of rows."""
    p = X.shape[1]
    bounds = np.array([0, p // 2, p], np.int64)
    panels = np.unique(np.array([0, 16, size], np.int64))
    parts = np.zeros((2, size, size))
    count = 2 * (len(panels) - 1)
    args = (bounds, panels, np.ascontiguousarray(X.T), unit, parts)
    step = make_step("products", row_space.products_worker, independent(count), np.ones(count, np.int64), *args)
    with Threads(2).open() as crew:
        crew.run_pass(step, "exact", 1 << 30)
    row_space.add_parts(parts)
    made: Floats = parts[0]
    return made


@pytest.mark.parametrize(("n", "p"), [(1, 9), (33, 70), (50, 400)])
def test_products_of_rows(n: int, p: int) -> None:
    X, unit = matrix(n, p), np.linspace(0.5, 2.0, p)
    size = -(-n // row_space.WIDTH) * row_space.WIDTH
    K = row_products(X, unit, size)
    np.testing.assert_allclose(np.tril(K[:n, :n]), np.tril((X / unit) @ (X / unit).T), rtol=1e-12, atol=1e-12)
    assert not np.tril(K)[n:].any()


def prepared(X: Floats, y: Floats, loss: str = "logistic") -> PreparedProblem:
    problem = RegressionProblem(Design.of(X), y, np.ones(len(y)), loss, True)
    with Threads(1).open() as crew:
        return PreparedProblem(problem, crew, "exact")


def test_which_problems_are_solved_in_the_space_of_the_rows() -> None:
    from scipy.sparse import csc_array

    y = np.where(np.arange(20) % 3, 1.0, -1.0)
    assert suits(prepared(matrix(20, 60), y), 0.0, 1.0)
    assert not suits(prepared(matrix(20, 60), y), 0.5, 1.0)
    assert not suits(prepared(matrix(20, 30), y), 0.0, 1.0)
    assert not suits(prepared(matrix(20, 60), y, "squared"), 0.0, 1.0)
    assert not suits(prepared(csc_array(matrix(20, 60)), y), 0.0, 1.0)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_ridge_on_wide_data_finds_the_optimum(C: float, standardize: bool, intercept: bool) -> None:
    X, rng = matrix(40, 300, seed=5), np.random.default_rng(6)
    X[:, :20] *= 100.0
    X[7] = X[3]
    y = np.where(X[:, 30] + rng.standard_normal(40) > 0, 1.0, -1.0)
    model = st.LogisticRegression(
        C, l1_ratio=0.0, fit_intercept=intercept, standardize=standardize, tol=1e-10, n_jobs=1
    )
    model.fit(X, y)
    scale = X.std(axis=0) if standardize else np.ones(300)

    def objective(at: Floats) -> tuple[float, Floats]:
        z = y * (X @ at[:-1] + at[-1])
        pull = -C * y * special.expit(-z)
        slope = np.append(X.T @ pull + scale**2 * at[:-1], pull.sum() if intercept else 0.0)
        return float(C * np.logaddexp(0.0, -z).sum() + 0.5 * np.sum((scale * at[:-1]) ** 2)), slope

    found = np.append(model.coef_[0], model.intercept_)
    assert model.objective_[0] == pytest.approx(objective(found)[0], rel=1e-12)
    better = optimize.minimize(objective, found, jac=True, method="L-BFGS-B", options={"gtol": 1e-10})
    assert objective(found)[0] <= better.fun * (1.0 + 1e-9)
    assert model.dual_gap_[0] <= 1e-9 * model.objective_[0]
    assert model.n_iter_[0] <= 2  # the first round proves what the smaller problem found


def test_ridge_on_wide_data_has_the_same_bits_on_any_number_of_threads() -> None:
    X = matrix(100, 4_000, seed=8)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    one, two = (st.LogisticRegression(0.01, l1_ratio=0.0, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)


def test_newton_steps_have_the_same_bits_on_any_number_of_threads() -> None:
    from scipy.sparse import csr_array

    X = matrix(60_000, 30, seed=9)
    y = np.where(X[:, 0] + X[:, 1] - 1.0 > 0, 1.0, -1.0)
    for given in (X, csr_array(matrix(60_000, 30, sparse=True, seed=9))):
        one, two = (st.LogisticRegression(0.001, l1_ratio=0.5, n_jobs=n).fit(given, y) for n in (1, 2))
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal(one.intercept_, two.intercept_)


@pytest.mark.parametrize("C", [1e-3, 1.0])
def test_ridge_with_many_dense_features_finds_the_optimum(C: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more features than a Gram matrix is best for, conjugate gradients minimise the models, if they suffice."""
    X, rng = matrix(700, 600, seed=10), np.random.default_rng(11)
    y = np.where(X[:, 30] + rng.standard_normal(700) > 0, 1.0, -1.0)
    gradients = st.LogisticRegression(C, l1_ratio=0.0, tol=1e-9, n_jobs=1).fit(X, y)
    assert gradients.dual_gap_[0] <= 1e-9 * gradients.objective_[0]
    monkeypatch.setattr("stretto.solvers.linear.newton.minimise_smooth", lambda *given: None)
    products = st.LogisticRegression(C, l1_ratio=0.0, tol=1e-9, n_jobs=1).fit(X, y)
    assert gradients.objective_[0] == pytest.approx(products.objective_[0], rel=1e-8)
    assert not np.array_equal(gradients.coef_, products.coef_)  # they did run
