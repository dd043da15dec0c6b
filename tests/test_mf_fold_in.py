"""New rows: factors and biases by least squares, by ids and by position, and what is recommended to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import stretto as st
from jobs import some_ratings
from stretto.errors import DataError
from stretto.models.factorization.estimator import MatrixFactorization
from stretto.solvers.factorization.penalties import penalties

DATA = some_ratings(8000, 160, 120)
CSR = DATA.to_csr()
pandas = pytest.importorskip("pandas")


def table(rows: Any = slice(None)) -> Any:
    """Ratings of some rows with text ids; the number of a user is in the id, and so is that of an item."""
    coo = CSR[rows].tocoo()
    first = np.arange(CSR.shape[0])[rows][0]
    users, items = [f"user {r + first:03}" for r in coo.row], [f"item {c:03}" for c in coo.col]
    return pandas.DataFrame({"user": users, "item": items, "rating": coo.data})


def model(**parameters: Any) -> MatrixFactorization:
    return MatrixFactorization(**{"n_components": 5, "max_iter": 8, "random_state": 0, "n_jobs": 2} | parameters)


@pytest.fixture(scope="module")
def named() -> MatrixFactorization:
    fitted: MatrixFactorization = model(l2_regularization=0.08, bias_l2_regularization=0.3).fit(table(slice(0, 140)))
    return fitted


def solved(fitted: MatrixFactorization, row: int) -> tuple[Any, float]:
    """Factors and bias of one row of CSR, by NumPy."""
    cols, values = CSR[row].indices, CSR[row].data.astype(float)
    Y = np.c_[fitted.item_factors_[cols], np.ones(len(cols))].astype(float)
    target = values - fitted.mean_ - fitted.item_bias_[cols]
    n, rank = len(cols), fitted.n_components
    reg = penalties(fitted._learned.problem, fitted.scale_)  # of standardised ratings
    factors, bias = (reg.factors * n + reg.ridge) * fitted.scale_, reg.biases * n + reg.bias_ridge
    penalty = np.diag([factors] * rank + [bias])
    x = np.linalg.solve(Y.T @ Y + penalty, Y.T @ target)
    return x[:-1], float(x[-1])


# --- by ids ------------------------------------------------------------------------------------------------------


def test_new_users_by_id(named: MatrixFactorization) -> None:
    asked = table(slice(140, 160)).sample(frac=1, random_state=0)
    new = named.fold_in(asked)
    assert len(new) == 20
    assert new.ids.tolist() == sorted(asked.user.unique())
    for k, name in enumerate(new.ids.tolist()):
        factors, bias = solved(named, int(name.split()[1]))
        np.testing.assert_allclose(new.factors[k], factors, atol=2e-3)
        assert new.bias[k] == pytest.approx(bias, abs=2e-3)
    np.testing.assert_array_equal(named.transform(asked), new.factors)
    assert np.abs(new.bias).max() > 0.05, "the biases are learned, and used below"


def test_predictions_for_new_users_have_their_bias(named: MatrixFactorization) -> None:
    new = named.fold_in(table(slice(140, 160)))
    factors, bias = solved(named, 147)
    wanted = named.mean_ + bias + named.item_bias_ + named.item_factors_ @ factors
    items = [f"item {j:03}" for j in range(120)]
    found = new.predict([["user 147", name] for name in items])
    np.testing.assert_allclose(found, wanted, atol=5e-3)
    unknown, both = new.predict([["nobody", "item 003"], ["nobody", "nothing"]])
    assert unknown == pytest.approx(named.mean_ + named.item_bias_[3], rel=1e-5)
    assert both == np.float32(named.mean_)


def test_recommendations_for_new_users(named: MatrixFactorization) -> None:
    new = named.fold_in(table(slice(140, 160)))
    items, scores = new.recommend(n=7)
    assert items.shape == scores.shape == (20, 7)
    every = named.mean_ + new.bias[:, None] + named.item_bias_ + new.factors @ named.item_factors_.T
    for k, name in enumerate(new.ids.tolist()):
        seen = CSR[int(name.split()[1])].indices
        left = np.setdiff1d(np.arange(120), seen)
        best = left[np.argsort(-every[k, left], kind="stable")[:7]]
        np.testing.assert_allclose(scores[k], every[k, best], rtol=1e-4)
        assert not {f"item {j:03}" for j in seen} & set(items[k])
        np.testing.assert_allclose(new.predict([[name, item] for item in items[k]]), scores[k], rtol=1e-4)
    again, _ = new.recommend(n=3, filter_seen=False, items=["item 004", "item 050"])
    assert {*again.ravel()} == {"item 004", "item 050", ""}


def test_known_users_are_folded_in_from_what_is_given(named: MatrixFactorization) -> None:
    """A user of training with other ratings than then gets other factors; the model stays as it is."""
    before = named.user_factors_.copy()
    new = named.fold_in(
        pandas.DataFrame({"user": ["user 003"] * 2, "item": ["item 001", "item 002"], "rating": [5, 1]})
    )
    assert new.ids.tolist() == ["user 003"]
    assert not np.allclose(new.factors[0], named.user_factors_[3], atol=1e-2)
    np.testing.assert_array_equal(named.user_factors_, before)


def test_what_the_model_cannot_know(named: MatrixFactorization) -> None:
    some = pandas.DataFrame({"user": ["a", "a", "b"], "item": ["item 001", "strange", "strange"], "rating": [5, 1, 3]})
    with pytest.warns(UserWarning, match="2 of 3 ratings are of columns that training never saw"):
        new = named.fold_in(some)
    assert new.ids.tolist() == ["a", "b"]
    assert np.abs(new.factors[0]).max() > 0
    assert not new.factors[1].any(), "nothing is known of b"
    assert new.bias[1] == 0
    with pytest.raises(DataError, match="knows none of the columns"):
        named.fold_in(some.assign(item="strange"))
    with pytest.raises(DataError, match=r"nobody.*fold_in"):
        named.recommend(["nobody"])


def test_ids_and_indices_are_not_mixed_up(named: MatrixFactorization) -> None:
    by_index = model().fit(CSR)
    with pytest.raises(DataError, match="knows columns by index, and these data name them by text"):
        by_index.fold_in(table())
    plain = (np.array([0, 0]), np.array([1, 2]), np.array([3.0, 4.0]))
    with pytest.raises(DataError, match="knows none of the columns"):
        named.fold_in(plain)
    with pytest.raises(DataError, match="knows columns by text ids, and these data name them by number"):
        named.fold_in(st.Data.from_arrays(*plain))
    numbers = pandas.DataFrame({"user": [900, 900, 7], "item": [118, 3, 5], "rating": [5.0, 1.0, 3.0]})
    new = by_index.fold_in(st.as_data(numbers, map_ids=True))
    assert new.ids.tolist() == [7, 900]
    wanted = by_index.fold_in((np.array([1, 1, 0]), np.array([118, 3, 5]), np.array([5.0, 1.0, 3.0])))
    np.testing.assert_array_equal(new.factors, wanted.factors)
    asked = st.as_data(numbers.assign(user=[1, 1, 0]), map_ids=True)
    assert by_index.score(asked) == by_index.score(
        (np.array([1, 1, 0]), np.array([118, 3, 5]), np.array([5.0, 1.0, 3.0]))
    )


def test_a_matrix_of_new_rows() -> None:
    fitted = model().fit(CSR[:140])
    new = fitted.fold_in(CSR[140:])
    assert new.ids.tolist() == list(range(20))
    factors, bias = solved(fitted, 145)
    np.testing.assert_allclose(new.factors[5], factors, atol=2e-3)
    assert new.bias[5] == pytest.approx(bias, abs=2e-3)
    np.testing.assert_array_equal(fitted.transform(CSR[140:]), new.factors)
    np.testing.assert_array_equal(fitted.fold_in(CSR[145:150]).factors, new.factors[5:10])
    again = MatrixFactorization(n_components=5, max_iter=8, random_state=0, n_jobs=1).fit(CSR[:140]).fold_in(CSR[140:])
    np.testing.assert_array_equal(again.factors, new.factors)


def test_every_sparse_format_is_a_matrix_of_new_rows() -> None:
    """SciPy's DOK format is a dict too, and is no mapping {user: {item: rating}}."""
    fitted = model(solver="als").fit(CSR)
    wanted = fitted.transform(CSR[:5])
    for form in ("dok", "lil", "bsr", "coo"):
        new = CSR[:5].asformat(form)
        np.testing.assert_array_equal(fitted.transform(new), wanted, err_msg=form)
        np.testing.assert_array_equal(fitted.fold_in(new).factors, wanted, err_msg=form)


def test_score_is_what_predict_says(named: MatrixFactorization) -> None:
    """Users and items that training never saw count as `predict` has them."""
    strange = pandas.DataFrame(
        {"user": ["new", "user 001", "new"], "item": ["item 001", "?", "?"], "rating": [1, 5, 2]}
    )
    asked = pandas.concat([table(slice(0, 3)), strange])
    predicted = named.predict(asked[["user", "item"]].to_numpy())
    wanted = -np.sqrt(np.mean((predicted - asked.rating.to_numpy()) ** 2))
    assert named.score(asked) == pytest.approx(wanted, rel=1e-5)
    assert named.score(asked[["user", "item"]], asked.rating) == named.score(asked)
    again = model().fit(table(slice(0, 140)), validation=asked)
    assert again.history_[-1]["test_rmse"] == pytest.approx(-again.score(asked), rel=1e-4)


# --- other losses, other forms -----------------------------------------------------------------------------------


def test_logistic_rows_are_logistic_regressions() -> None:
    liked = CSR.copy()
    liked.data = (CSR.data > 3).astype(np.float32)
    fitted = model(loss="logistic", l2_regularization=0.02, bias_l2_regularization=0.02).fit(liked[:140])
    new = fitted.fold_in(liked[140:])
    for k in range(20):
        cols, y = liked[140 + k].indices, liked[140 + k].data > 0
        if len({*y}) < 2:
            continue
        # The bias is a column of ones with the same penalty; the columns' biases are what is known beforehand.
        Y, offset = np.c_[fitted.item_factors_[cols], np.ones(len(cols))].astype(float), fitted.item_bias_[cols]

        def objective(x: Any, Y: Any = Y, offset: Any = offset, y: Any = y) -> Any:
            z = np.where(y, 1, -1) * (Y @ x + offset)
            return np.logaddexp(0, -z).sum() + 0.5 * 0.02 * len(y) * (x @ x)

        best = minimize(objective, np.zeros(6), method="BFGS", options={"gtol": 1e-8})
        np.testing.assert_allclose(np.append(new.factors[k], new.bias[k]), best.x, atol=1e-3)


def test_logistic_regression_of_scikit_learn_agrees() -> None:
    """Without the columns' biases, on rows that have them all: scikit-learn's own answer."""
    liked = CSR.copy()
    liked.data = (CSR.data > 3).astype(np.float32)
    fitted = model(loss="logistic", l2_regularization=0.05, biases=False).fit(liked)
    k = int(np.argmax(np.diff(liked.indptr)))
    cols, y = liked[k].indices, liked[k].data > 0
    theirs = LogisticRegression(C=1 / (0.05 * len(y)), fit_intercept=False, tol=1e-8)
    theirs.fit(fitted.item_factors_[cols].astype(float), y)
    np.testing.assert_allclose(fitted.transform(liked)[k], theirs.coef_[0], atol=1e-3)


def test_absolute_rows_are_median_regressions() -> None:
    fitted = model(loss="absolute", l2_regularization=0.1, bias_l2_regularization=0.05).fit(CSR[:140])
    new = fitted.fold_in(CSR[140:])
    scale = fitted.scale_
    for k in range(0, 20, 5):
        row = CSR[140 + k]
        Y = np.c_[fitted.item_factors_[row.indices] / np.sqrt(scale), np.ones(row.nnz)].astype(float)
        z = (row.data - fitted.mean_ - fitted.item_bias_[row.indices]) / scale
        ridge = np.array([fitted.l2_regularization / scale] * 5 + [fitted.bias_l2_regularization]) * row.nnz

        def objective(x: Any, Y: Any = Y, z: Any = z, ridge: Any = ridge) -> Any:
            return np.abs(z - Y @ x).sum() + 0.5 * ridge @ (x * x)

        ours = np.append(new.factors[k] / np.sqrt(scale), new.bias[k] / scale).astype(float)
        best = min(
            minimize(objective, start, method="Nelder-Mead", options={"maxiter": 20_000, "fatol": 1e-10}).fun
            for start in (np.zeros(6), ours)
        )
        assert objective(ours) <= best * (1 + 1e-3)


def test_implicit_rows() -> None:
    fitted = model(solver="als", implicit=True, l2_regularization=0.1, alpha=3.0).fit(CSR[:140])
    new = fitted.fold_in(CSR[140:])
    H = fitted.item_factors_.astype(float)
    unit = CSR[:140].data.astype(float).mean()
    for k in (0, 7, 19):
        row = CSR[140 + k]
        more = 3.0 * row.data / unit
        A = H.T @ H + (H[row.indices].T * more) @ H[row.indices] + 0.1 * (1 + more).sum() * np.eye(5)
        wanted = np.linalg.solve(A, H[row.indices].T @ (1 + more))
        np.testing.assert_allclose(new.factors[k], wanted, atol=1e-3)
    assert not new.bias.any()
    items, _ = new.recommend(n=5)
    assert items.shape == (20, 5)


def test_a_model_that_was_loaded_folds_in_the_same(named: MatrixFactorization, tmp_path: Any) -> None:
    named.save(tmp_path / "model")
    again = MatrixFactorization.load(tmp_path / "model").fold_in(table(slice(140, 160)))
    new = named.fold_in(table(slice(140, 160)))
    np.testing.assert_array_equal(again.factors, new.factors)
    np.testing.assert_array_equal(again.bias, new.bias)
    np.testing.assert_array_equal(again.recommend(4)[0], new.recommend(4)[0])


def test_new_rows_on_the_shelf(named: MatrixFactorization) -> None:
    new = named.fold_in(table(slice(150, 160)))
    assert isinstance(new, st.NewRows)
    assert repr(new) == "NewRows(10 rows, rank 5)"
