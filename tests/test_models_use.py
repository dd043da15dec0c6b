"""Using a fitted model: predict, transform, recommend, similar_items, score, save and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from jobs import some_ratings
from stretto.errors import DataError, PlanError
from stretto.models.factorization.estimator import MatrixFactorization
from stretto.solvers.factorization.penalties import penalties

DATA = some_ratings(6000, 150, 120)
CSR = DATA.to_csr()


@pytest.fixture(scope="module")
def fitted() -> MatrixFactorization:
    model = MatrixFactorization(n_components=6, max_iter=6, random_state=0, n_jobs=2)
    model.fit(DATA)
    return model


def dense(model: MatrixFactorization) -> Any:
    """Every prediction at once, by NumPy."""
    found = model.user_factors_ @ model.item_factors_.T + model.user_bias_[:, None] + model.item_bias_[None, :]
    return found + np.float32(model.mean_)


def test_predict(fitted: MatrixFactorization) -> None:
    pairs = np.stack([DATA.rows, DATA.cols], axis=1)
    wanted = dense(fitted)[DATA.rows, DATA.cols]
    np.testing.assert_allclose(fitted.predict(pairs), wanted, rtol=1e-5, atol=1e-5)
    for form in (
        pairs.tolist(),
        (DATA.rows, DATA.cols),
        pairs.astype(np.int64),
        pairs.astype(float),
        np.asfortranarray(pairs),
    ):
        np.testing.assert_array_equal(fitted.predict(form), fitted.predict(pairs))
    assert fitted.predict(np.empty((0, 2), int)).shape == (0,)
    assert fitted.predict(pairs).dtype == np.float32


def test_unknown_rows_and_columns_get_what_is_known(fitted: MatrixFactorization) -> None:
    both, row, col, huge = fitted.predict([[999, 999], [3, 999], [999, 4], [2**32, 2**32]])
    assert both == huge == np.float32(fitted.mean_)
    assert row == pytest.approx(fitted.mean_ + fitted.user_bias_[3], rel=1e-5)
    assert col == pytest.approx(fitted.mean_ + fitted.item_bias_[4], rel=1e-5)
    assert fitted.predict([[-1, 0]])[0] == pytest.approx(fitted.mean_ + fitted.item_bias_[0], rel=1e-5)


@pytest.mark.parametrize("bad", [[1, 2], [[1, 2, 3]], [[0.5, 1]], [["a", "b"]], [[np.nan, 1]]], ids=str)
def test_what_is_not_a_pair_is_refused(fitted: MatrixFactorization, bad: Any) -> None:
    with pytest.raises(DataError, match=r"pairs|whole number"):
        fitted.predict(bad)


def test_transform_is_least_squares(fitted: MatrixFactorization) -> None:
    found = fitted.transform(CSR)
    assert found.shape == (150, 6)
    assert found.dtype == np.float32
    # The normal equations of one row, with its bias as one more unknown.
    row = int(np.argmax(np.bincount(DATA.rows)))
    cols, values = CSR[row].indices, CSR[row].data
    Y = np.c_[fitted.item_factors_[cols], np.ones(len(cols))].astype(np.float64)
    target = values - fitted.mean_ - fitted.item_bias_[cols]
    reg = penalties(fitted._learned.problem, fitted.scale_)  # of standardised ratings
    factors, bias = reg.factors * len(cols) + reg.ridge, reg.biases * len(cols) + reg.bias_ridge
    penalty = np.diag([factors * fitted.scale_] * 6 + [bias])
    wanted = np.linalg.solve(Y.T @ Y + penalty, Y.T @ target)
    np.testing.assert_allclose(found[row], wanted[:6], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(fitted.transform(CSR[10:20]), found[10:20])


def test_transform_wants_the_columns_of_fit(fitted: MatrixFactorization) -> None:
    with pytest.raises(
        ValueError, match="X has 119 features, but MatrixFactorization is expecting 120 features as input"
    ):
        fitted.transform(CSR[:, :119])


def test_recommend_is_the_best_of_all(fitted: MatrixFactorization) -> None:
    users, n = np.array([0, 7, 149, 7]), 5
    ids, scores = fitted.recommend(users, n)
    every = dense(fitted)
    for k, user in enumerate(users):
        allowed = np.setdiff1d(np.arange(120), CSR[user].indices)
        best = allowed[np.argsort(-every[user, allowed], kind="stable")[:n]]
        np.testing.assert_allclose(scores[k], every[user, best], rtol=1e-5)
        np.testing.assert_allclose(every[user, ids[k]], every[user, best], rtol=1e-5)
        assert not set(ids[k]) & set(CSR[user].indices)
    assert np.all(np.diff(scores, axis=1) <= 0)


def test_recommend_with_what_was_seen_and_among_some(fitted: MatrixFactorization) -> None:
    user = int(np.argmax(np.bincount(DATA.rows)))
    every = dense(fitted)[user]
    ids, _ = fitted.recommend(user, 3, filter_seen=False)
    np.testing.assert_allclose(every[ids[0]], np.sort(every)[::-1][:3], rtol=1e-5)
    some = [5, 6, 7, 50]
    ids, scores = fitted.recommend([user], 6, filter_seen=False, items=some)
    assert sorted(ids[0][:4]) == some
    assert ids[0][4:].tolist() == [-1, -1], "there are no more"
    assert np.all(np.isneginf(scores[0][4:]))


@pytest.mark.parametrize("jobs", [1, 3])
def test_recommend_everybody(fitted: MatrixFactorization, jobs: int) -> None:
    wanted = fitted.recommend(np.arange(150), 10)
    fitted_again = MatrixFactorization(n_components=6, max_iter=6, random_state=0, n_jobs=jobs).fit(DATA)
    for one, two in zip(fitted_again.recommend(np.arange(150), 10), wanted, strict=True):
        np.testing.assert_array_equal(one, two)


def test_recommend_refuses(fitted: MatrixFactorization) -> None:
    with pytest.raises(DataError, match=r"there is no row 150 in the training data; it has 150, .*fold_in"):
        fitted.recommend([150])
    with pytest.raises(DataError, match="there is no column"):
        fitted.recommend([0], items=[-3])
    with pytest.raises(PlanError, match="recommend: n must be a whole number at least 1; got 0"):
        fitted.recommend([0], n=0)
    assert fitted.recommend([], 4)[0].shape == (0, 4)


def test_similar_items_are_near_and_not_oneself(fitted: MatrixFactorization) -> None:
    ids, scores = fitted.similar_items([3, 9], 4)
    unit = fitted.item_factors_ / np.linalg.norm(fitted.item_factors_, axis=1, keepdims=True)
    for k, item in enumerate((3, 9)):
        cosine = unit @ unit[item]
        cosine[item] = -np.inf
        np.testing.assert_allclose(scores[k], np.sort(cosine)[::-1][:4], rtol=1e-4)
        assert item not in ids[k]


def test_score_is_minus_the_error(fitted: MatrixFactorization) -> None:
    errors = dense(fitted)[DATA.rows, DATA.cols] - DATA.values
    assert fitted.score(CSR) == pytest.approx(-np.sqrt(np.mean(errors**2)), rel=1e-5)
    assert fitted.score(DATA.take(np.arange(10))) < 0


@pytest.mark.parametrize("ids", [False, True], ids=["indices", "names"])
def test_saved_and_loaded(tmp_path: Path, ids: bool) -> None:
    data: Any = DATA
    if ids:
        pandas = pytest.importorskip("pandas")
        data = pandas.DataFrame(
            {"user": [f"user {r} ü" for r in DATA.rows], "item": 1000 + DATA.cols, "rating": DATA.values}
        )
    saved = MatrixFactorization(n_components=6, max_iter=3, random_state=0, l2_regularization=0.07).fit(data)
    saved.save(tmp_path / "deep" / "model.safetensors")
    again = MatrixFactorization.load(tmp_path / "deep" / "model.safetensors")
    assert again.get_params() == saved.get_params()
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(saved, name))
    users = ["user 3 ü", "user 5 ü"] if ids else [3, 5]
    for one, two in zip(again.recommend(users, 7), saved.recommend(users, 7), strict=True):
        np.testing.assert_array_equal(one, two)
    assert again.score(data) == saved.score(data)
    assert (again.fingerprint_, again.n_iter_, again.history_) == (saved.fingerprint_, 3, saved.history_)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model.safetensors"]


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such model file"):
        MatrixFactorization.load(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"not a model at all")
    with pytest.raises(DataError, match="not a model file, or damaged"):
        MatrixFactorization.load(tmp_path / "bad")
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, str(tmp_path / "other"))
    with pytest.raises(DataError, match="not a model of MatrixFactorization saved by Stretto"):
        MatrixFactorization.load(tmp_path / "other")


@pytest.mark.parametrize("call", ["predict", "transform", "recommend", "similar_items", "score", "save"])
def test_nothing_before_fit(call: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(MatrixFactorization(), call)([[0, 1]])
