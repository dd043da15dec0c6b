"""What is minimised: the documented objective, in any unit; strong penalties leave mean and biases alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solvers import SOLVERS
from stretto.data.generate.ratings import ratings
from stretto.errors import DataError, PlanError
from stretto.models.factorization.estimator import MatrixFactorization

DATA = ratings(6_000, 120, 110, rank=3, noise=0.4, seed=4).data
rng = np.random.default_rng(0)
# Biases as strong as factors: users and items with levels of their own.
LEVELS = rng.normal(size=120)[DATA.rows] + rng.normal(size=110)[DATA.cols]
X = sparse.csr_matrix((DATA.values + LEVELS.astype(np.float32), (DATA.rows, DATA.cols)), shape=DATA.shape)


def model(**parameters: Any) -> MatrixFactorization:
    return MatrixFactorization(**{"n_components": 3, "max_iter": 10, "random_state": 0, "n_jobs": 2} | parameters)


def objective(fitted: MatrixFactorization, X: Any) -> float:
    """The documented objective, for each rating, by NumPy."""
    coo = X.tocoo()
    i, j = coo.row, coo.col
    W, H, b, c = (
        a.astype(float) for a in (fitted.user_factors_, fitted.item_factors_, fitted.user_bias_, fitted.item_bias_)
    )
    guess = fitted.mean_ + b[i] + c[j] + np.einsum("nk,nk->n", W[i], H[j])
    penalty = fitted.l2_regularization * ((W[i] ** 2).sum(axis=1) + (H[j] ** 2).sum(axis=1))
    penalty += fitted.bias_l2_regularization * (b[i] ** 2 + c[j] ** 2)
    return float(np.mean((coo.data - guess) ** 2 + penalty))


def numpy_als(X: Any, H: Any, c: Any, mean: float, reg: float, bias_reg: float, epochs: int) -> list[Any]:
    """Alternating least squares as in a textbook, in float64, from given column factors and biases."""
    rank = H.shape[1]
    penalty = np.diag([reg] * rank + [bias_reg])

    def solved(rows: Any, other: Any, other_bias: Any) -> tuple[Any, Any]:
        found = np.zeros((rows.shape[0], rank + 1))
        for i in range(rows.shape[0]):
            span = slice(rows.indptr[i], rows.indptr[i + 1])
            cols, values = rows.indices[span], rows.data[span].astype(float)
            Y = np.c_[other[cols], np.ones(len(cols))]
            if len(cols):
                A = Y.T @ Y + len(cols) * penalty
                found[i] = np.linalg.solve(A, Y.T @ (values - mean - other_bias[cols]))
        return found[:, :rank], found[:, rank]

    by_row, by_col = X.tocsr(), X.T.tocsr()
    for _ in range(epochs):
        W, b = solved(by_row, H, c)
        H, c = solved(by_col, W, b)
    return [W, H, b, c]


def test_als_is_the_documented_objective_solved_by_numpy() -> None:
    start = model(solver="als", max_iter=1, l2_regularization=0.3, bias_l2_regularization=0.02).fit(X)
    more = model(solver="als", max_iter=6, l2_regularization=0.3, bias_l2_regularization=0.02).fit(X)
    wanted = numpy_als(X, start.item_factors_.astype(float), start.item_bias_.astype(float), start.mean_, 0.3, 0.02, 5)
    found = (more.user_factors_, more.item_factors_, more.user_bias_, more.item_bias_)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert more.history_[-1]["objective"] == pytest.approx(objective(more, X), rel=1e-5)


@pytest.mark.parametrize("how", SOLVERS[3:], ids=str)
def test_the_reported_objective_is_the_documented_one(how: dict[str, Any]) -> None:
    fitted = model(l2_regularization=0.2, bias_l2_regularization=0.7, **how).fit(X)
    assert fitted.history_[-1]["objective"] == pytest.approx(objective(fitted, X), rel=1e-4)
    told = [history["objective"] for history in fitted.history_]
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(told))


def test_the_solvers_solve_one_problem() -> None:
    """After enough epochs every solver has the objective of ALS."""
    reg = {"l2_regularization": 0.1, "bias_l2_regularization": 0.05}
    best = objective(model(solver="als", max_iter=200, **reg).fit(X), X)
    for how in SOLVERS:
        epochs = {"max_iter": 300, "schedule": "linear"} if how["solver"] == "sgd" else {"max_iter": 100}
        found = objective(model(**reg, **epochs, **how).fit(X), X)
        assert found == pytest.approx(best, rel=0.02), how


@pytest.mark.parametrize("biases", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("how", SOLVERS, ids=str)
def test_other_units_are_the_same_model(how: dict[str, Any], biases: bool) -> None:
    """Ratings and reg times c: factors times √c, mean and biases times c. By a power of four not a bit differs."""
    plain = model(l2_regularization=0.07, biases=biases, **how).fit(X)
    for c in (4.0, 4.0**-9, 4.0**15):
        scaled = model(l2_regularization=0.07 * c, biases=biases, **how).fit((X * np.float32(c)).tocsr())
        np.testing.assert_array_equal(scaled.user_factors_, plain.user_factors_ * np.float32(np.sqrt(c)))
        np.testing.assert_array_equal(scaled.item_factors_, plain.item_factors_ * np.float32(np.sqrt(c)))
        np.testing.assert_array_equal(scaled.user_bias_, plain.user_bias_ * np.float32(c))
        np.testing.assert_array_equal(scaled.item_bias_, plain.item_bias_ * np.float32(c))
        assert (scaled.mean_, scaled.scale_) == (plain.mean_ * c, plain.scale_ * c)
        assert scaled.history_[-1]["train_rmse"] == pytest.approx(plain.history_[-1]["train_rmse"] * c)
        new = scaled.fold_in((X[:20] * np.float32(c)).tocsr())
        np.testing.assert_array_equal(new.factors, plain.fold_in(X[:20]).factors * np.float32(np.sqrt(c)))


@pytest.mark.parametrize("how", SOLVERS, ids=str)
def test_a_strong_penalty_leaves_the_biases(how: dict[str, Any]) -> None:
    """However strong reg is, the model is at least as good as mean and biases alone."""
    values = DATA.values + LEVELS.astype(np.float32)
    held = np.random.default_rng(1).random(len(values)) < 0.1
    shape = DATA.shape
    learn = sparse.csr_matrix((values[~held], (DATA.rows[~held], DATA.cols[~held])), shape=shape)
    pairs = np.stack([DATA.rows[held], DATA.cols[held]], axis=1)
    # Biases alone, by NumPy: the same objective without factors.
    coo = learn.tocoo()
    mean = float(coo.data.mean())
    b, c = np.zeros(shape[0]), np.zeros(shape[1])
    for _ in range(50):
        left = coo.data - mean - c[coo.col]
        b = np.bincount(coo.row, left, shape[0]) / np.maximum(np.bincount(coo.row, minlength=shape[0]), 1) / 1.05
        left = coo.data - mean - b[coo.row]
        c = np.bincount(coo.col, left, shape[1]) / np.maximum(np.bincount(coo.col, minlength=shape[1]), 1) / 1.05
    alone = np.sqrt(np.mean((values[held] - mean - b[pairs[:, 0]] - c[pairs[:, 1]]) ** 2))
    for reg in (10.0, 1e3, 1e8):
        fitted = model(l2_regularization=reg, max_iter=40, **how).fit(learn)
        assert np.abs(fitted.user_factors_ @ fitted.item_factors_.T).max() < 0.02
        assert -fitted.score(pairs, values[held]) < 1.01 * alone
        predicted = fitted.predict(pairs)
        assert np.sqrt(np.mean((predicted - values[held]) ** 2)) < 1.01 * alone


@pytest.mark.parametrize("how", SOLVERS, ids=str)
def test_a_strong_penalty_on_biases_leaves_the_factors(how: dict[str, Any]) -> None:
    fitted = model(bias_l2_regularization=1e4, max_iter=20, **how).fit(X)
    assert max(np.abs(fitted.user_bias_).max(), np.abs(fitted.item_bias_).max()) < 0.05
    assert fitted.history_[-1]["train_rmse"] < 0.8 * float(X.data.std())


def test_equal_penalties_are_the_plan_of_one_penalty() -> None:
    """The fingerprint names bias_reg where it differs from reg alone."""
    one, two, other = (
        model(bias_l2_regularization=value).fit(X).fingerprint_ for value in (0.05, np.float64(0.05), 0.06)
    )
    assert one == two != other
    assert "bias_reg=0.06" in model(bias_l2_regularization=0.06).fit(X).plan_.explain()


# --- numbers that do not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", SOLVERS, ids=str)
@pytest.mark.parametrize("size", [1e-30, 1e30, 6e37])
def test_huge_and_tiny_ratings_are_learned_or_refused(how: dict[str, Any], size: float) -> None:
    """Whatever comes out is finite, and as good as in other units."""
    big = X.astype(np.float64) * (size / float(X.data.max()))
    plain = model(l2_regularization=0.05, **how).fit(X)
    try:
        fitted = model(l2_regularization=0.05 * size / float(X.data.max()), **how).fit(big.tocsr())
        found = fitted.history_[-1]["train_rmse"] / size * float(X.data.max())
    except DataError as error:
        assert "32-bit floats" in str(error)  # noqa: PT017
        return
    assert found == pytest.approx(plain.history_[-1]["train_rmse"], rel=1e-2)
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
        assert np.isfinite(getattr(fitted, name)).all()


@pytest.mark.parametrize("implicit", [False, True])
def test_values_far_from_training_are_refused_not_nan(implicit: bool) -> None:
    how: dict[str, Any] = {"solver": "als", "implicit": True} if implicit else {}
    fitted = model(**how).fit(X if not implicit else abs(X))
    for size in (1e10, 1e25, 1e37):
        try:
            new = fitted.fold_in((X[:5] * np.float32(size)).tocsr())
            assert np.isfinite(new.factors).all()
            assert np.isfinite(new.recommend(3, filter_seen=False)[1]).all()
        except DataError as error:
            assert "32-bit floats" in str(error)  # noqa: PT017


def test_a_prediction_that_overflows_is_refused() -> None:
    fitted = model().fit(X)
    fitted.user_bias_ = np.full_like(fitted.user_bias_, 3e38)
    fitted.item_bias_ = np.full_like(fitted.item_bias_, 3e38)
    with pytest.raises(DataError, match="predict: a number became infinite or NaN"):
        fitted.predict([[0, 1]])
    with pytest.raises(DataError, match="measure: a number became infinite or NaN"):
        fitted.score([[0, 1]], [3.0])


def test_values_beyond_floats_are_refused() -> None:
    with pytest.raises(DataError, match="does not fit a 32-bit float"):
        model().fit(X.astype(np.float64) * 1e40)
    with pytest.raises(DataError, match="too little for 32-bit floats"):
        model(l2_regularization=0.0).fit((X * np.float32(1e-38)).tocsr())
    with pytest.raises(DataError, match="nan"):
        model().fit(X).fold_in(X[:3].multiply(np.float32(np.nan)).tocsr())


# --- cost --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [*SOLVERS, {"solver": "als", "implicit": True}, {"memory": "1GB"}], ids=str)
@pytest.mark.parametrize("rank", [100_000, 10_000_000, 10**15])
def test_a_rank_beyond_the_matrix_is_refused_at_once(how: dict[str, Any], rank: int) -> None:
    with pytest.raises(PlanError, match=f"n_components={rank} for .* 120 × 110: no rank above the smaller side, 110"):
        model(n_components=rank, **how).fit(abs(X))


def test_a_small_matrix_may_have_a_usual_rank() -> None:
    assert model(n_components=200, max_iter=1).fit(X).user_factors_.shape == (120, 200)


@pytest.mark.parametrize("solver", ["sgd", "als", "ccd"])
def test_memory_is_refused_before_it_is_taken(solver: str) -> None:
    """A million rows and columns at rank 1,000,000: 8 TB, of which nothing is touched."""
    wide = sparse.coo_matrix((np.ones(2), ([0, 999_999], [999_999, 0])), shape=(1_000_000, 1_000_000))
    with pytest.raises(PlanError, match=r"the plan needs [\d.]+ GiB and may use [\d.]+ GiB; .*lower rank"):
        model(n_components=1_000_000, solver=solver).fit(wide)


def test_the_result_counts_as_memory() -> None:
    """Factors exist twice at the end: those that were learned, and those in the user's order."""
    from stretto.solvers.factorization.cost import peak_memory

    for how in SOLVERS:
        fitted = model(**how).fit(X)
        plan = fitted.plan_
        assert peak_memory(fitted._learned.problem, plan) >= plan.cost.memory + fitted.user_factors_.nbytes


def test_a_fit_that_never_ends_is_refused() -> None:
    with pytest.raises(PlanError, match=r"max_iter=10{17} on 6000 ratings take \d+ days or more"):
        model(max_iter=10**17).fit(X)
