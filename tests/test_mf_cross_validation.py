"""Cross-validation of MatrixFactorization: by rows, by ratings, with scikit-learn's tools and with ours."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import stretto as st
from stretto.data.generate.ratings import ratings
from stretto.data.records.data import Data, held_out
from stretto.errors import DataError, PlanError
from stretto.models.factorization.estimator import MatrixFactorization
from stretto.models.factorization.row_identity import compare
from stretto.models.factorization.scoring import HELD_SHARE
from stretto.runtime.blocks.source import InMemory

TRUE_RANK = 3
DATA = ratings(
    12_000, 250, 200, rank=TRUE_RANK, noise=0.5, seed=1, row_skew=0.3, col_skew=0.3, step=None
).data  # unrounded
X = DATA.to_csr()
STARS = ratings(4_000, 120, 90, rank=3, noise=0.3, seed=2, step=1.0).data.to_csr()
RANKS = [1, 2, TRUE_RANK, 5, 8]


def model(**parameters: Any) -> MatrixFactorization:
    given: dict[str, Any] = {
        "n_components": 3,
        "solver": "als",
        "max_iter": 15,
        "l2_regularization": 0.02,
        "bias_l2_regularization": 0.05,
        "random_state": 0,
        "n_jobs": 1,
    }
    return MatrixFactorization(**given | parameters)


def folded(fitted: MatrixFactorization, rows: Any) -> float:
    """Minus the RMSE of rows that training did not see, by NumPy: ridge regression on four fifths of each row."""
    csr = sparse.csr_matrix(rows)
    csr.sort_indices()
    held = held_out(0, csr.nnz, HELD_SHARE, seed=0)
    H, c, mean = fitted.item_factors_.astype(float), fitted.item_bias_.astype(float), fitted.mean_
    strengths: list[Any] = [fitted.l2_regularization] * H.shape[1] + [fitted.bias_l2_regularization]
    penalty = np.diag(np.array(strengths, float))
    errors = []
    for i in range(csr.shape[0]):
        span = slice(csr.indptr[i], csr.indptr[i + 1])
        cols, values, out = csr.indices[span], csr.data[span].astype(float), held[span]
        Y = np.c_[H[cols[~out]], np.ones((~out).sum())]
        target = values[~out] - mean - c[cols[~out]]
        x = np.linalg.solve(Y.T @ Y + max(1, len(target)) * penalty, Y.T @ target)
        errors.append(values[out] - (mean + c[cols[out]] + x[-1] + H[cols[out]] @ x[:-1]))
    return -float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


# --- rows as samples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [2, 3])
def test_rows_that_training_did_not_see_are_folded_in(cv: int) -> None:
    """With two folds there are as many test rows as training rows: the entries show that they are others."""
    found = cross_val_score(model(), X, cv=cv)
    wanted = [folded(model().fit(X[train]), X[test]) for train, test in KFold(cv).split(X)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert found.min() > -0.65, "the noise is 0.5; taken for other users' ratings they would be off by 1.2"


def test_dense_rows_are_scored_like_sparse_ones() -> None:
    fitted = model().fit(X[:150])
    assert fitted.score(X[150:].toarray()) == fitted.score(X[150:]) == fitted.score(X[150:].tocoo())


def test_a_grid_search_over_rows_finds_the_rank() -> None:
    for cv in (2, 3):
        search = GridSearchCV(model(), {"n_components": RANKS}, cv=cv).fit(X)
        assert search.best_params_ == {"n_components": TRUE_RANK}


# --- ratings as samples ------------------------------------------------------------------------------------------


def test_pairs_and_ratings_are_cut_by_rating() -> None:
    pairs, values = np.stack([DATA.rows, DATA.cols], axis=1), DATA.values
    folds = KFold(3, shuffle=True, random_state=0)
    found = cross_val_score(model(), pairs, values, cv=folds)
    wanted = []
    for train, test in folds.split(pairs):
        fitted = model().fit(sparse.csr_matrix((values[train], pairs[train].T), shape=X.shape))
        i, j = pairs[test].T
        guess = fitted.mean_ + fitted.user_bias_[i] + fitted.item_bias_[j]
        guess = guess + np.einsum("nk,nk->n", fitted.user_factors_[i], fitted.item_factors_[j])
        wanted.append(-np.sqrt(np.mean((values[test] - guess) ** 2)))
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    search = GridSearchCV(model(), {"n_components": RANKS}, cv=folds).fit(pairs, values)
    assert search.best_params_ == {"n_components": TRUE_RANK}
    assert search.best_estimator_.predict(pairs[:4]).shape == (4,)


def test_pairs_of_ids() -> None:
    """Ids as text or as large numbers, in arrays, lists and tables: the same model."""
    pandas = pytest.importorskip("pandas")
    users, items = np.array([f"u{r:03}" for r in DATA.rows]), np.array([f"i{c:03}" for c in DATA.cols])
    wanted = model().fit(pandas.DataFrame({"user": users, "item": items, "rating": DATA.values}))
    forms: list[Any] = [
        np.stack([users, items], axis=1),
        [list(pair) for pair in zip(users.tolist(), items.tolist(), strict=True)],
        pandas.DataFrame({"user": users, "item": items}),
    ]
    for pairs in forms:
        fitted = model().fit(pairs, DATA.values)
        np.testing.assert_array_equal(fitted.user_factors_, wanted.user_factors_)
        assert fitted.user_ids_ == wanted.user_ids_
        assert fitted.score(pairs, DATA.values) == wanted.score(pairs, DATA.values)
    far = np.stack([10_000_000 + 3 * DATA.rows, DATA.cols], axis=1)
    assert model().fit(far, DATA.values).user_factors_.shape == (250, 3)


def test_pairs_need_as_many_ratings() -> None:
    with pytest.raises(DataError, match="3 pairs need as many ratings"):
        model().fit([[0, 1], [1, 2], [2, 0]], [1.0, 2.0])
    with pytest.raises(DataError, match="holds the ratings already"):
        model().fit(DATA, DATA.values)


def test_a_matrix_ignores_y_as_transformers_do() -> None:
    labels = np.arange(X.shape[0]) % 2
    np.testing.assert_array_equal(model().fit(X, labels).user_factors_, model().fit(X).user_factors_)


def test_sorted_folds_are_warned_of() -> None:
    """Folds cut from pairs that are sorted by user hold out whole users."""
    order = np.lexsort((DATA.cols, DATA.rows))
    pairs = np.stack([DATA.rows, DATA.cols], axis=1)[order]
    with pytest.warns(UserWarning, match=r"pairs have rows that training never saw.*shuffle"):
        cross_val_score(model(), pairs, DATA.values[order], cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_val_score(model(), pairs, DATA.values[order], cv=KFold(3, shuffle=True, random_state=0))


# --- our own tools -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr", "Data", "dense", "three arrays", "pairs"])
def test_split_takes_every_form(form: str) -> None:
    forms: dict[str, Any] = {
        "csr": (X,),
        "Data": (Data.from_arrays(*_sorted(), shape=X.shape),),
        "dense": (X.toarray(),),
        "three arrays": (_sorted(),),
        "pairs": (np.stack(_sorted()[:2], axis=1), _sorted()[2]),
    }
    train, test = st.split(*forms[form], test=0.25, seed=4)
    assert len(train) + len(test) == len(DATA)
    assert 0.2 < len(test) / len(DATA) < 0.3
    assert abs(train.to_csr() + test.to_csr() - X).sum() < 1e-3
    wanted, _ = st.split(X, test=0.25, seed=4)
    np.testing.assert_array_equal(train.values, wanted.values)


def _sorted() -> tuple[Any, Any, Any]:
    coo = X.tocsr().sorted_indices().tocoo()
    return coo.row, coo.col, coo.data


def test_split_reads_a_path(tmp_path: Any) -> None:
    path = tmp_path / "ratings.csv"
    lines = [f"{r},{c},{v}" for r, c, v in zip(DATA.rows, DATA.cols, DATA.values, strict=True)]
    path.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    train, test = st.split(path)
    assert train.row_ids is not None
    assert len(train) + len(test) == len(DATA)


def test_cross_validate_holds_out_every_rating_once() -> None:
    found = st.cross_validate(model(), X, cv=4, seed=1, return_estimator=True)
    assert {name: len(values) for name, values in found.items()} == {
        "fit_time": 4,
        "score_time": 4,
        "test_score": 4,
        "estimator": 4,
    }
    assert np.all(found["fit_time"] > 0)
    learned = [fitted.n_ratings_ for fitted in found["estimator"]]
    assert sum(len(DATA) - n for n in learned) == len(DATA)
    assert max(learned) - min(learned) <= 1
    fitted = found["estimator"][0]
    seen = fitted.seen()
    taught = sparse.csr_matrix((np.ones(len(seen.indices)), seen.indices, seen.indptr), shape=X.shape)
    held = X - X.multiply(taught)
    held.eliminate_zeros()
    coo = held.tocoo()
    errors = fitted.predict((coo.row, coo.col)) - coo.data
    assert found["test_score"][0] == pytest.approx(-np.sqrt(np.mean(errors**2)), rel=1e-5)


def test_cross_validate_finds_the_rank() -> None:
    scores = {rank: st.cross_validate(model(n_components=rank), X, cv=3)["test_score"].mean() for rank in RANKS}
    assert max(scores, key=lambda rank: scores[rank]) == TRUE_RANK
    again = st.cross_validate(model(n_components=TRUE_RANK), X, cv=3)["test_score"]
    assert scores[TRUE_RANK] == again.mean()
    assert st.cross_validate(model(n_components=TRUE_RANK), X, cv=3, seed=9)["test_score"].mean() != again.mean()


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(PlanError, match="cv must be a whole number at least 2; got 1"):
        st.cross_validate(model(), X, cv=1)
    with pytest.raises(PlanError, match="test must be a number more than 0 and less than 1"):
        st.split(X, test=1.0)
    with pytest.raises(DataError, match="4 ratings are too few for cv=5"):
        st.cross_validate(model(), sparse.eye(4, format="csr"))


# --- whose rows are these? ---------------------------------------------------------------------------------------


def verdict(trained: Any, asked: Any) -> str:
    source = InMemory(st.as_data(trained))
    return compare(source.shape, source, None, st.as_data(asked))


@pytest.mark.parametrize("matrix", [X, STARS], ids=["unrounded", "stars"])
def test_entries_decide_whose_rows_they_are(matrix: Any) -> None:
    half = matrix.shape[0] // 2
    train, test = (part.to_csr() for part in st.split(matrix, test=0.1))
    assert verdict(train, test) == "same", "held out one by one"
    assert verdict(train, train) == "same"
    assert verdict(train, train[:, :].multiply(train > 3).tocsr()) == "same", "a part of the training data"
    assert verdict(train, matrix) == "same", "all of it, after training on a part"
    assert verdict(matrix[:half], matrix[half : 2 * half]) == "other"
    assert verdict(matrix[: half + 3], matrix[half:]) == "other"


def test_a_few_ratings_that_were_changed_do_not_make_other_rows() -> None:
    changed = STARS.copy()
    changed.data[::50] = 6 - changed.data[::50]
    assert verdict(STARS, changed) == "same"


def test_ones_decide_less_than_ratings() -> None:
    ones = STARS.copy()
    ones.data[:] = 1.0
    train, test = (part.to_csr() for part in st.split(ones, test=0.1))
    assert verdict(train, test) == "same"
    assert verdict(train, train) == "same"
    assert verdict(ones[:60], ones[60:]) == "unclear"
    with pytest.raises(DataError, match=r"do not show whether they are the same rows.*st.cross_validate"):
        model().fit(ones[:60]).score(ones[60:])


def test_halves_too_sparse_to_decide_are_refused() -> None:
    thin = sparse.random(400, 5000, density=0.0005, format="csr", random_state=0)
    assert verdict(thin[:200], thin[200:]) == "unclear"


def test_a_loaded_model_knows_pairs_but_no_values(tmp_path: Any) -> None:
    train, test = st.split(X, test=0.1)
    model().fit(train.to_csr()).save(tmp_path / "model")
    loaded = MatrixFactorization.load(tmp_path / "model")
    assert loaded.score(test.to_csr()) == pytest.approx(model().fit(train.to_csr()).score(test.to_csr()), rel=1e-6)
    assert loaded.score(train.to_csr()) < 0
    with pytest.raises(DataError, match="do not show"):
        loaded.score(X)


def test_a_matrix_with_other_columns_is_refused() -> None:
    with pytest.raises(DataError, match="X has 199 features, but MatrixFactorization is expecting 200"):
        model().fit(X).score(X[:, :199])


def test_validation_is_no_other_matrix() -> None:
    with pytest.raises(DataError, match=r"a matrix of 50 × 200, and the training data have 250 × 200.*st.split"):
        model().fit(X, validation=X[:50])
    with pytest.raises(DataError, match="rows do not seem to be those of the training data"):
        model().fit(X[:125], validation=X[125:])
    with pytest.raises(DataError, match="validation is a share between 0 and 1"):
        model().fit(X, validation=1)
    train, test = st.split(X, test=0.1)
    fitted = model().fit(train.to_csr(), validation=test.to_csr())
    assert fitted.history_[-1]["test_rmse"] == pytest.approx(-fitted.score(test), rel=1e-4)
    pairs = np.stack([test.rows, test.cols], axis=1)
    again = model().fit(train.to_csr(), validation=(pairs, test.values))
    assert again.history_[-1] == fitted.history_[-1]
