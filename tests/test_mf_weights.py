"""Weights of ratings: the weighted objective by NumPy, repeated ratings, equal bits, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, KFold

import stretto as st
from jobs import some_ratings
from stretto.data.records.data import held_out
from stretto.errors import DataError, PlanError
from test_mf_implicit import counts

DATA = some_ratings(3000, 100, 80)
TIMES = np.random.default_rng(0).integers(1, 4, len(DATA))  # whole weights, so that ratings can be repeated instead
PAIRS = np.stack([DATA.rows, DATA.cols], axis=1)


def model(**parameters: Any) -> st.MatrixFactorization:
    given: dict[str, Any] = {"n_components": 4, "solver": "als", "max_iter": 6, "random_state": 0, "n_jobs": 2}
    return st.MatrixFactorization(**given | parameters)


def factors(fitted: st.MatrixFactorization) -> list[Any]:
    return [fitted.user_factors_, fitted.item_factors_, fitted.user_bias_, fitted.item_bias_]


@pytest.mark.parametrize("linear_solver", ["cholesky", "cg"])
def test_the_objective_is_the_weighted_one(linear_solver: str) -> None:
    weights = np.random.default_rng(1).uniform(0.1, 5, len(DATA)).astype(np.float32)
    given = {"l2_regularization": 0.1, "bias_l2_regularization": 0.2, "linear_solver": linear_solver}
    fitted = model(**given).fit(DATA, weights=weights)
    v, r = weights.astype(float), DATA.values.astype(float)
    mean = (v * r).sum() / v.sum()
    assert fitted.mean_ == pytest.approx(mean, rel=1e-6)
    assert fitted.scale_ == pytest.approx(np.sqrt((v * (r - mean) ** 2).sum() / v.sum()), rel=1e-6)
    W, H, b, c = (each.astype(float) for each in factors(fitted))
    i, j = DATA.rows, DATA.cols
    error = r - fitted.mean_ - b[i] - c[j] - (W[i] * H[j]).sum(axis=1)
    penalty = 0.1 * ((W[i] ** 2).sum(axis=1) + (H[j] ** 2).sum(axis=1)) + 0.2 * (b[i] ** 2 + c[j] ** 2)
    assert fitted.history_[-1]["objective"] == pytest.approx((v * (error**2 + penalty)).sum() / v.sum(), rel=1e-4)
    assert fitted.history_[-1]["train_rmse"] == pytest.approx(np.sqrt((v * error**2).sum() / v.sum()), rel=1e-4)


def test_a_column_solves_its_weighted_normal_equations() -> None:
    """The columns are solved last, so each is the exact minimum for the rows' factors."""
    weights = np.random.default_rng(2).uniform(0.1, 5, len(DATA)).astype(np.float32)
    fitted = model(l2_regularization=0.1, bias_l2_regularization=0.2).fit(DATA, weights=weights)
    W, H, b, c = (each.astype(float) for each in factors(fitted))
    for j in (0, 11, 40):
        mine = np.flatnonzero(DATA.cols == j)
        i, v = DATA.rows[mine], weights[mine].astype(float)
        Y = np.c_[W[i], np.ones(len(i))]
        ridge = np.diag([0.1 * v.sum()] * 4 + [0.2 * v.sum()])
        expected = np.linalg.solve((Y.T * v) @ Y + ridge, Y.T @ (v * (DATA.values[mine] - fitted.mean_ - b[i])))
        np.testing.assert_allclose(np.append(H[j], c[j]), expected, atol=2e-3)


def test_a_weight_of_two_is_a_rating_twice() -> None:
    rows, cols, values = (np.repeat(each, TIMES) for each in (DATA.rows, DATA.cols, DATA.values))
    repeated = model(duplicates="keep").fit(st.Data.from_arrays(rows, cols, values, DATA.shape))
    once = model().fit(DATA, weights=TIMES)
    for own, other in zip(factors(once), factors(repeated), strict=True):
        np.testing.assert_allclose(own, other, atol=2e-3)
    plain = model().fit(DATA)
    assert max(np.abs(own - other).max() for own, other in zip(factors(once), factors(plain), strict=True)) > 0.05


def test_weights_of_one_and_of_zero_are_a_plain_fit() -> None:
    plain, ones = model().fit(DATA), model().fit(DATA, weights=np.ones(len(DATA)))
    assert ones.fingerprint_ == plain.fingerprint_
    kept = np.random.default_rng(3).random(len(DATA)) < 0.8
    left, zeros = model().fit(DATA.take(kept)), model().fit(DATA, weights=kept)
    for one, other in ((ones, plain), (zeros, left)):
        for a, b in zip(factors(one), factors(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_same_bits_for_any_workers_order_and_form() -> None:
    weights = np.random.default_rng(4).uniform(0.1, 5, len(DATA)).astype(np.float32)
    wanted = model(n_jobs=1).fit(DATA, weights=weights)
    order = np.random.default_rng(5).permutation(len(DATA))
    matrix = sparse.coo_matrix((weights, (DATA.rows, DATA.cols)), shape=DATA.shape).tocsr()
    fits = [model(n_jobs=n).fit(DATA, sample_weight=weights) for n in (2, 4)]
    fits += [model().fit(PAIRS[order], DATA.values[order], weights=weights[order])]
    fits += [model().fit(DATA.to_csr(), weights=matrix), model().fit(DATA.to_csr(), weights=matrix.data)]
    fits += [model().plan(DATA, weights=weights).run()]
    for fitted in fits:
        for a, b in zip(factors(fitted), factors(wanted), strict=True):
            np.testing.assert_array_equal(a, b)
        if fitted.user_ids_ is None:
            assert fitted.fingerprint_ == wanted.fingerprint_
    assert wanted.fingerprint_ != model().fit(DATA, weights=weights[order]).fingerprint_


@pytest.mark.parametrize("solver", [{"solver": "als"}, {"solver": "sgd", "loss": "bpr"}])
def test_weights_of_implicit_feedback_multiply_the_counts(solver: Any) -> None:
    X = counts()
    weights = np.random.default_rng(6).integers(1, 4, X.nnz)
    multiplied = X.copy()
    multiplied.data = X.data * weights.astype(np.float32)
    given = solver | {"implicit": True}
    np.testing.assert_array_equal(
        model(**given).fit(X, weights=weights).item_factors_, model(**given).fit(multiplied).item_factors_
    )


def test_held_out_ratings_keep_their_weights_apart() -> None:
    """The weights of the ratings that are held out do not count; those of the others stay with their ratings."""
    weights = np.random.default_rng(7).uniform(0.1, 5, len(DATA)).astype(np.float32)
    seeded = model(random_state=3)
    fitted = seeded.fit(DATA, weights=weights, validation=0.2)
    kept = ~held_out(0, len(DATA), 0.2, seeded._seed())
    again = model(random_state=3).fit(DATA.take(kept), weights=weights[kept])
    np.testing.assert_array_equal(fitted.item_factors_, again.item_factors_)
    assert "test_rmse" in fitted.history_[-1]


def test_a_grid_search_cuts_the_weights_with_the_ratings() -> None:
    search = GridSearchCV(model(), {"n_components": [1, 2]}, cv=KFold(2, shuffle=True, random_state=0))
    search.fit(PAIRS, DATA.values, weights=TIMES)
    plain = model(n_components=search.best_params_["n_components"]).fit(PAIRS, DATA.values, weights=TIMES)
    np.testing.assert_array_equal(search.best_estimator_.item_factors_, plain.item_factors_)


def test_a_model_with_weights_is_saved_and_goes_on_by_a_fit_alone(tmp_path: Any) -> None:
    fitted = model(warm_start=True).fit(DATA, weights=TIMES)
    fitted.save(tmp_path / "model", ratings=True)
    again = st.MatrixFactorization.load(tmp_path / "model")
    for one in (fitted, again):
        with pytest.raises(PlanError, match="partial_fit does not go on from a fit with weights"):
            one.partial_fit(DATA)
    before = fitted.history_[-1]["objective"]
    assert fitted.fit(DATA, weights=TIMES).history_[-1]["objective"] < before


def wrong(message: str, weights: Any, X: Any = DATA, y: Any = None, **parameters: Any) -> Any:
    return pytest.param(message, weights, X, y, parameters, id=message[:30])


@pytest.mark.parametrize(
    ("message", "weights", "X", "y", "parameters"),
    [
        wrong("need solver='als', got 'sgd'", TIMES, solver="sgd"),
        wrong("need solver='als', got 'ccd'", TIMES, solver="ccd"),
        wrong("leave memory= out", TIMES, memory="1GiB"),
        wrong("need duplicates='error'", TIMES, duplicates="mean"),
        wrong("X is a file", TIMES, X="ratings.tsv"),
        wrong("one number for each of the 3,000 ratings", TIMES[:-1]),
        wrong("weight 0 is nan", np.where(np.arange(len(DATA)) < 1, np.nan, 1.0)),
        wrong("weight 2 is -1", np.where(np.arange(len(DATA)) == 2, -1, 1)),
        wrong("every weight is zero", np.zeros(len(DATA))),
        wrong("weights are numbers", TIMES.astype(str)),
        wrong("has shape|have shape", np.ones((3, 3))),
        wrong("too large for 32-bit floats", np.full(len(DATA), 1e38), implicit=True),
    ],
)
def test_what_weights_cannot_be(message: str, weights: Any, X: Any, y: Any, parameters: Any) -> None:
    with pytest.raises((DataError, PlanError), match=message):
        model(**parameters).fit(X, y, weights=weights)


def test_features_and_two_names_are_refused() -> None:
    features = sparse.identity(DATA.shape[1], format="csr")
    with pytest.raises(PlanError, match="do not go together"):
        model().fit(DATA, weights=TIMES, item_features=features)
    with pytest.raises(PlanError, match="two names of one argument"):
        model().fit(DATA, weights=TIMES, sample_weight=TIMES)


@pytest.mark.slow
@pytest.mark.parametrize("linear_solver", ["cholesky", "cg"])
def test_two_processes_give_the_same_bits(linear_solver: str) -> None:
    weights = np.random.default_rng(8).uniform(0.1, 5, len(DATA)).astype(np.float32)
    here = model(linear_solver=linear_solver).fit(DATA, weights=weights)
    there = model(linear_solver=linear_solver, n_jobs=None, runtime=st.Cluster("processes", nodes=2))
    there.fit(DATA, weights=weights)
    for a, b in zip(factors(there), factors(here), strict=True):
        np.testing.assert_array_equal(a, b)
    assert there.history_ == here.history_
