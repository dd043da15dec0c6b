"""Implicit feedback: its objective, what `score` ranks, and what is measured during a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GridSearchCV

import stretto as st
from stretto.data.records.data import Data
from stretto.errors import DataError
from stretto.models.factorization.estimator import MatrixFactorization


def counts(rows: int = 200, cols: int = 90, seed: int = 0) -> Any:
    """Counts of what users did, by tastes of rank 3 and a popularity that falls by Zipf's law."""
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, cols))
    rate = np.exp(taste) / np.arange(1, cols + 1) ** 0.8
    return sparse.csr_matrix(rng.poisson(3 * rate / rate.mean(axis=1, keepdims=True) * 0.2).astype(np.float32))


X = counts()
TRAIN, TEST = st.split(X, test=0.2)


def model(**parameters: Any) -> MatrixFactorization:
    given: dict[str, Any] = {
        "n_components": 4,
        "solver": "als",
        "implicit": True,
        "max_iter": 10,
        "random_state": 0,
        "n_jobs": 2,
    }
    return MatrixFactorization(**given | parameters)


def ranked(scores: Any, train: Any, test: Any) -> float:
    """NDCG@10 by scikit-learn, row by row: items of training that are not in the test part are left out."""
    found = []
    for k in range(len(scores)):
        relevant = test[k] > 0
        if relevant.any():
            choice = np.flatnonzero((train[k] == 0) | (test[k] != 0))
            found.append(ndcg_score([relevant[choice].astype(float)], [scores[k, choice]], k=10))
    return float(np.mean(found))


# --- the objective -----------------------------------------------------------------------------------------------


def loss(fitted: MatrixFactorization, X: Any, alpha: float) -> float:
    """The documented objective by NumPy, over every pair."""
    dense = X.toarray().astype(float)
    W, H = fitted.user_factors_.astype(float), fitted.item_factors_.astype(float)
    confidence = 1 + alpha * np.abs(dense) / np.abs(dense[dense != 0]).mean()
    entries = (dense != 0) * confidence
    penalty = (entries.sum(axis=1) @ (W**2).sum(axis=1)) + (entries.sum(axis=0) @ (H**2).sum(axis=1))
    return float((confidence * ((dense > 0) - W @ H.T) ** 2).sum() + fitted.l2_regularization * penalty)


@pytest.mark.parametrize("linear_solver", ["cholesky", "cg"])
@pytest.mark.parametrize("alpha", [0.5, 8.0])
def test_the_objective_is_the_documented_one(alpha: float, linear_solver: str) -> None:
    signed = X.copy()
    signed.data[::7] *= -1  # some confident noes
    for data in (X, signed):
        fitted = model(alpha=alpha, linear_solver=linear_solver, l2_regularization=0.1).fit(data)
        assert fitted.history_[-1]["objective"] == pytest.approx(loss(fitted, data, alpha), rel=1e-4)
        told = [history["objective"] for history in fitted.history_]
        assert told[-1] < told[0]


def test_the_unit_of_the_counts_does_not_matter() -> None:
    plain = model().fit(X)
    for unit in (60.0, 0.001):
        other = model().fit((X * np.float32(unit)).tocsr())
        np.testing.assert_allclose(other.user_factors_, plain.user_factors_, atol=1e-4)
        assert other.confidence_ == pytest.approx(plain.confidence_ / unit, rel=1e-5)
    assert plain.confidence_ == pytest.approx(1.0 / X.data.mean(), rel=1e-5)


def test_a_negative_value_is_a_confident_no() -> None:
    liked = X.copy()
    pair = 5, int(X[5].indices[0])
    scores = []
    for value in (50.0, -50.0):
        liked[pair] = value
        fitted = model(alpha=20.0, n_components=8).fit(liked)
        scores.append(float(fitted.predict([pair])[0]))
    assert scores[0] > scores[1] + 0.3


def test_values_that_are_all_zero_leave_nothing_to_like() -> None:
    nothing = sparse.csr_matrix((np.zeros(3), ([0, 1, 2], [1, 2, 0])), shape=(3, 3))
    fitted = model().fit(nothing)
    assert not np.abs(fitted.user_factors_ @ fitted.item_factors_.T).max() > 1e-3


# --- score -------------------------------------------------------------------------------------------------------


def test_score_is_ndcg() -> None:
    fitted = model().fit(TRAIN)
    scores = fitted.user_factors_.astype(float) @ fitted.item_factors_.T
    wanted = ranked(scores, TRAIN.to_csr().toarray(), TEST.to_csr().toarray())
    assert fitted.score(TEST) == pytest.approx(wanted, rel=1e-5)
    assert fitted.score(TEST.to_csr()) == fitted.score(TEST)
    assert 0 < wanted < 1
    popular = np.tile(np.bincount(TRAIN.cols, minlength=X.shape[1]).astype(float), (X.shape[0], 1))
    assert wanted > 1.1 * ranked(popular, TRAIN.to_csr().toarray(), TEST.to_csr().toarray())


def test_score_of_the_training_data_ranks_what_was_seen() -> None:
    fitted = model().fit(TRAIN)
    scores = fitted.user_factors_.astype(float) @ fitted.item_factors_.T
    dense = TRAIN.to_csr().toarray()
    assert fitted.score(TRAIN) == pytest.approx(ranked(scores, dense, dense), rel=1e-5)


def test_noes_are_not_relevant() -> None:
    fitted = model().fit(TRAIN)
    with_noes = Data.from_arrays(TEST.rows, TEST.cols, np.where(TEST.rows % 3 == 0, -1.0, TEST.values), TEST.shape)
    scores = fitted.user_factors_.astype(float) @ fitted.item_factors_.T
    wanted = ranked(scores, TRAIN.to_csr().toarray(), with_noes.to_csr().toarray())
    assert fitted.score(with_noes) == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(DataError, match="ranks entries with positive values, and there are none"):
        fitted.score(Data.from_arrays(TEST.rows, TEST.cols, -TEST.values, TEST.shape))


def test_rows_and_items_that_training_never_saw_count_as_missed() -> None:
    pandas = pytest.importorskip("pandas")
    names = {"user": [f"u{r}" for r in TRAIN.rows], "item": [f"i{c}" for c in TRAIN.cols], "rating": TRAIN.values}
    fitted = model().fit(pandas.DataFrame(names))
    held = pandas.DataFrame(
        {"user": [f"u{r}" for r in TEST.rows], "item": [f"i{c}" for c in TEST.cols], "rating": TEST.values}
    )
    plain = fitted.score(held)
    rows = held.user.nunique()
    strangers = pandas.DataFrame({"user": ["new 1", "new 2", "new 2"], "item": ["i1", "i2", "i3"], "rating": [1, 1, 1]})
    assert fitted.score(pandas.concat([held, strangers])) == pytest.approx(plain * rows / (rows + 2), rel=1e-6)
    lost = pandas.DataFrame({"user": held.user.unique(), "item": "never seen", "rating": 1.0})
    assert fitted.score(pandas.concat([held, lost])) < plain


def test_rows_that_training_did_not_see_are_folded_in_and_ranked() -> None:
    fitted = model().fit(X[:150])
    found = fitted.score(X[150:])
    assert 0.15 < found < 1
    search = GridSearchCV(model(), {"n_components": [1, 3], "alpha": [1.0, 1000.0]}, cv=3).fit(X)
    assert search.best_params_ == {"n_components": 3, "alpha": 1.0}


def test_cross_validation_by_entries() -> None:
    found = st.cross_validate(model(), X, cv=3)["test_score"]
    assert np.all((found > 0.1) & (found < 1))


# --- during a fit ------------------------------------------------------------------------------------------------


def test_what_is_held_out_is_measured() -> None:
    fitted = model().fit(TRAIN, validation=TEST)
    assert fitted.history_[-1]["test_ndcg@10"] == pytest.approx(fitted.score(TEST), rel=1e-5)
    assert "test_rmse" not in fitted.history_[-1]
    assert "test_ndcg@10" in model().fit(X, validation=0.2).history_[-1]
    with pytest.raises(DataError, match="none are held out"):
        model().fit(TRAIN, validation=Data.from_arrays(TEST.rows, TEST.cols, -TEST.values, TEST.shape))


def test_early_stopping_watches_the_ranking() -> None:
    fitted = model(max_iter=100, early_stopping=True, n_iter_no_change=2, tol=1e-3).fit(TRAIN, validation=TEST)
    told = [history["test_ndcg@10"] for history in fitted.history_]
    assert fitted.n_iter_ == len(told) < 100
    assert max(told[-2:]) <= max(told[:-2]) + 1e-3


def test_the_default_is_better_than_popularity(shared_data: Any) -> None:
    data = st.read(shared_data("movielens-1m", "ratings.tsv.xz"))
    train, test = data.split(0.1, seed=0)
    fitted = MatrixFactorization(solver="als", implicit=True, linear_solver="cg", max_iter=8, random_state=0).fit(train)
    users = np.flatnonzero(np.bincount(test.rows, minlength=data.shape[0]))[::6]
    popular = np.tile(np.bincount(train.cols, minlength=data.shape[1]).astype(float), (len(users), 1))
    dense = [part.to_csr()[users].toarray() for part in (train, test)]
    assert fitted.score(test) > 1.5 * ranked(popular, *dense)
