"""Going on from an earlier fit, and parameters that change after one: right, or refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import stretto as st
from jobs import some_ratings
from stretto.data.records.data import Data
from stretto.errors import DataError, PlanError
from stretto.models.factorization.estimator import MatrixFactorization

DATA = some_ratings(6000, 150, 120)
CSR = DATA.to_csr()


def model(**parameters: Any) -> MatrixFactorization:
    return MatrixFactorization(**{"n_components": 4, "max_iter": 4, "random_state": 0, "n_jobs": 2} | parameters)


def named(data: Data, users: str = "u", items: str = "i") -> Any:
    """The same ratings with text ids."""
    ids = [np.array([f"{letter}{k:04}" for k in index]) for letter, index in ((users, data.rows), (items, data.cols))]
    return st.as_data((*ids, data.values))


def every(fitted: MatrixFactorization) -> Any:
    """All predictions, by NumPy."""
    found = fitted.user_factors_ @ fitted.item_factors_.T + fitted.user_bias_[:, None] + fitted.item_bias_
    return found + np.float32(fitted.mean_)


# --- partial_fit -------------------------------------------------------------------------------------------------


def test_further_ratings_leave_other_predictions_as_they_are() -> None:
    """A batch with another mean must not move the predictions of users and items that it does not have."""
    fitted = model(max_iter=10).fit(CSR)
    before = every(fitted)
    shifted = DATA.take((DATA.rows < 20) & (DATA.cols < 30))
    shifted = Data.from_arrays(shifted.rows, shifted.cols, shifted.values * 3, DATA.shape)
    fitted.partial_fit(shifted)
    after = every(fitted)
    untouched = np.setdiff1d(np.arange(150), shifted.rows)[:, None], np.setdiff1d(np.arange(120), shifted.cols)
    np.testing.assert_allclose(after[untouched], before[untouched], atol=1e-3)
    rows, cols = shifted.rows, shifted.cols
    assert np.mean(after[rows, cols]) > np.mean(before[rows, cols]) + 0.2, "what was learned moved"
    everything = np.concatenate([DATA.values, shifted.values])
    assert fitted.mean_ == pytest.approx(everything.mean(), rel=1e-5)
    assert fitted.scale_ == pytest.approx(everything.std(), rel=1e-4)
    assert fitted.n_ratings_ == len(everything)


def test_batch_after_batch_learns_as_one_fit_does() -> None:
    train, test = DATA.split(0.1, seed=0)
    parts = np.random.default_rng(0).integers(0, 4, len(train))
    growing = model(schedule="constant", learning_rate=0.03)
    for _ in range(15):
        for k in range(4):
            growing.partial_fit(train.take(parts == k))
    whole = model(schedule="constant", learning_rate=0.03, max_iter=15).fit(train)
    assert growing.score(test) == pytest.approx(whole.score(test), rel=0.05)


def test_batches_with_ids_grow_by_id() -> None:
    """New ids come between the old ones in the order of ids; every factor stays with its own."""
    data = named(DATA)
    odd = data.rows % 2 == 1
    first, second = st.as_data(_listed(data, odd)), st.as_data(_listed(data, ~odd))
    growing = model().partial_fit(first)
    before = {name: growing.user_factors_[k].copy() for k, name in enumerate(growing.user_ids_.ids.tolist())}
    growing.partial_fit(second)
    assert growing.user_ids_ == data.row_ids
    assert growing.item_ids_ == data.col_ids
    assert growing.user_factors_.shape == (len(data.row_ids), 4)
    for name, factors in before.items():
        at = int(growing.user_ids_.encode([name])[0])
        np.testing.assert_allclose(growing.user_factors_[at], factors, atol=1e-6)
    scores = [growing.partial_fit(data).score(data) for _ in range(6)]
    assert scores[-1] > scores[0]


def _listed(data: Any, which: Any) -> Any:
    part = data.take(which)
    return data.row_ids.decode(part.rows), data.col_ids.decode(part.cols), part.values


def test_what_was_seen_in_any_batch_is_filtered() -> None:
    data = named(DATA)
    odd = np.arange(len(data)) % 2 == 1
    growing = model()
    for part in (odd, ~odd):
        growing.partial_fit(st.as_data(_listed(data, part)))
    user = data.row_ids.ids.tolist()[int(np.argmax(np.bincount(data.rows)))]
    mine = {str(i) for u, i in zip(*_listed(data, slice(None))[:2], strict=True) if str(u) == user}
    items, scores = growing.recommend([user], n=500)
    found = {str(item) for item, score in zip(items[0], scores[0], strict=True) if np.isfinite(score)}
    assert not found & mine
    assert len(found | mine) == len(data.col_ids)


def test_a_loaded_model_goes_on(tmp_path: Any) -> None:
    data = named(DATA)
    one, two = (data.take(np.arange(len(data)) % 2 == k) for k in range(2))
    first = model(optimizer="adagrad").fit(one)
    first.save(tmp_path / "model")
    loaded = MatrixFactorization.load(tmp_path / "model").partial_fit(two)
    here = first.partial_fit(two)
    np.testing.assert_array_equal(loaded.user_factors_, here.user_factors_)
    np.testing.assert_array_equal(loaded.seen().indices, here.seen().indices)
    assert loaded.n_ratings_ == here.n_ratings_ == len(data)


def test_ids_and_indices_do_not_mix() -> None:
    with pytest.raises(DataError, match="knows rows by id, and these data have indices"):
        model().fit(named(DATA)).partial_fit(CSR)
    with pytest.raises(DataError, match=r"knows rows by index, 0 to 149, and these data have other ids, such as 'u"):
        model().fit(CSR).partial_fit(named(DATA))
    with pytest.raises(DataError, match=r"by index, 0 to 149, and these data have other ids, such as 10000000"):
        model().fit(CSR).partial_fit([[10_000_000, 3]], [4.0])
    with pytest.raises(DataError, match="ids that are text, and these are integers"):
        model().fit(named(DATA)).partial_fit([[3, 4]], [4.0])
    fitted = model().fit(CSR)
    assert fitted.partial_fit([[3, 4], [5, 6]], [4.0, 2.0]).user_factors_.shape == (150, 4), "ids that are indices"


# --- warm_start --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sgd", "als", "ccd"])
def test_a_warm_start_finds_rows_by_their_ids(solver: str) -> None:
    """Fewer and other users the second time: those that stay begin where they were."""
    data = named(DATA)
    some: Any = st.as_data(_listed(data, (data.rows > 60) & (data.cols % 2 == 0)))
    step: dict[str, Any] = {"learning_rate": 1e-12} if solver == "sgd" else {}
    fitted = model(solver=solver, warm_start=True, max_iter=8, **step)
    if solver == "sgd":
        fitted.set_params(learning_rate=None).fit(data).set_params(**step)
    else:
        fitted.fit(data)
    before = every(fitted)[np.ix_(data.row_ids.encode(some.row_ids.ids), data.col_ids.encode(some.col_ids.ids))]
    fitted.set_params(max_iter=1).fit(some)
    assert fitted.user_ids_ == some.row_ids
    assert fitted.n_iter_ == 9
    if solver == "sgd":  # without a step nothing moves, whatever the mean of the new ratings
        np.testing.assert_allclose(every(fitted), before, atol=1e-3)
    else:
        cold = model(solver=solver, max_iter=1).fit(some)
        assert fitted.history_[-1]["objective"] < cold.history_[-1]["objective"]


def test_a_warm_start_on_other_names_is_refused() -> None:
    fitted = model(warm_start=True).fit(named(DATA))
    with pytest.raises(DataError, match="the earlier fit knew rows by id, and these data name them by index"):
        fitted.fit(CSR)


@pytest.mark.parametrize(
    "change", [{"n_components": 6}, {"n_components": 2}, {"biases": False}, {"loss": "absolute"}], ids=str
)
def test_a_warm_start_with_another_model_is_refused(change: dict[str, Any]) -> None:
    (name,) = change
    fitted = model(warm_start=True).fit(CSR)
    with pytest.raises(PlanError, match=f"warm_start=True goes on from a fit with {name}="):
        fitted.set_params(**change).fit(CSR)
    with pytest.raises(PlanError, match=f"partial_fit goes on from a fit with {name}="):
        fitted.partial_fit(CSR)
    assert fitted.set_params(warm_start=False).fit(CSR).n_iter_ == 4


def test_a_warm_start_on_the_same_ratings_is_what_it_was() -> None:
    fitted = model(warm_start=True, schedule="constant", max_iter=3).fit(CSR).fit(CSR)
    whole = model(schedule="constant", max_iter=6).fit(CSR)
    np.testing.assert_allclose(fitted.user_factors_, whole.user_factors_, atol=1e-4)


# --- parameters that change after a fit --------------------------------------------------------------------------


def test_a_fitted_model_is_used_as_it_was_learned() -> None:
    """set_params is for the next fit: what was learned keeps its rank, loss and penalties."""
    fitted = model().fit(CSR)
    pairs = np.stack([DATA.rows, DATA.cols], axis=1)
    score, factors, predicted = fitted.score(CSR), fitted.transform(CSR), fitted.predict(pairs)
    fitted.set_params(
        n_components=9, loss="absolute", biases=False, l2_regularization=5.0, bias_l2_regularization=2.0, solver="ccd"
    )
    assert fitted.score(CSR) == score
    np.testing.assert_array_equal(fitted.transform(CSR), factors)
    np.testing.assert_array_equal(fitted.predict(pairs), predicted)
    implicit = model(solver="als", implicit=True).fit(CSR)
    score = implicit.score(CSR)
    assert implicit.set_params(implicit=False, solver="sgd").score(CSR) == score
    assert clone(fitted).n_components == 9


def test_saved_and_pickled_after_a_change(tmp_path: Any) -> None:
    fitted = model(solver="als", implicit=True, alpha=3.0).fit(CSR)
    factors, score = fitted.transform(CSR), fitted.score(CSR)
    fitted.set_params(alpha=50.0, l2_regularization=9.0, implicit=False, n_components=7)
    fitted.save(tmp_path / "model")
    for again in (MatrixFactorization.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.transform(CSR), factors)
        assert again.score(DATA) == score
        assert again.get_params()["alpha"] == 50.0


def test_a_model_of_an_earlier_format_is_refused(tmp_path: Any) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, str(tmp_path / "old"), metadata={"format": "stretto/matrix-factorization/1"})
    with pytest.raises(DataError, match="saved by an earlier version"):
        MatrixFactorization.load(tmp_path / "old")


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"solver": "als", "learning_rate": 0.1}, "learning_rate=0.1 has no effect with solver='als'"),
        ({"solver": "ccd", "schedule": "linear"}, "schedule='linear' has no effect with solver='ccd'"),
        ({"solver": "als", "optimizer": "adagrad"}, "it belongs to solver='sgd'"),
        ({"solver": "ccd", "linear_solver": "cg"}, "linear_solver='cg' has no effect"),
        ({"linear_solver": "cg"}, "it belongs to solver='als'"),
        ({"inner": 5}, "inner=5 has no effect with solver='sgd'"),
        ({"solver": "als", "inner": 5}, "with linear_solver='cg'"),
        ({"alpha": 2.0}, "alpha=2.0 has no effect with solver='sgd': it belongs to implicit=True"),
        ({"solver": "als", "implicit": True, "bias_l2_regularization": 1.0}, "implicit feedback has no biases"),
        ({"biases": False, "bias_l2_regularization": 1.0}, "it belongs to biases=True"),
        ({"validation_fraction": 0.3}, "it belongs to early_stopping=True"),
        ({"n_iter_no_change": 9}, "it belongs to early_stopping=True"),
        ({"tol": 0.5}, "it belongs to early_stopping=True; leave it at its default (0.0001)"),
        ({"solver": "als", "max_iter": None}, "max_iter must be a whole number at least 1; got None"),
        ({"n_components": None}, "n_components must be a whole number at least 1; got None"),
        ({"n_components": True}, "n_components must be a whole number"),
        ({"l2_regularization": np.inf}, "l2_regularization must be a number at least 0; got inf"),
        ({"bias_l2_regularization": -0.1}, "bias_l2_regularization must be a number at least 0; got -0.1"),
        ({"solver": np.array(["sgd"])}, "solver must be one of"),
        ({"biases": "yes"}, "biases must be True or False; got 'yes'"),
        ({"early_stopping": True, "n_iter_no_change": 0}, "n_iter_no_change must be a whole number at least 1"),
        ({"early_stopping": True, "tol": float("nan")}, "tol must be a number"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction must be a number more than 0"),
        ({"width": "wide"}, "width must be a whole number"),
    ],
    ids=str,
)
def test_options_without_effect_and_wrong_ones_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as caught:
        model(**given).fit(CSR)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"solver": "als", "linear_solver": "cg", "inner": 5},
        {"solver": "ccd", "inner": 1},
        {"solver": "als", "implicit": True, "alpha": 2.0, "biases": False},
        {"early_stopping": True, "tol": 0.01, "n_iter_no_change": 2, "validation_fraction": 0.2},
        {"solver": "als", "learning_rate": None, "schedule": None, "optimizer": "sgd"},
    ],
    ids=str,
)
def test_options_with_effect_are_taken(given: dict[str, Any]) -> None:
    assert model(**given).fit(CSR).n_iter_ >= 1


@pytest.mark.parametrize("n", [0, -1, 2.5, "ten", True, None])
def test_how_many_to_recommend(n: Any) -> None:
    fitted = model().fit(CSR)
    for ask in (fitted.recommend, fitted.similar_items):
        with pytest.raises(PlanError, match="n must be a whole number at least 1"):
            ask([0], n)
    with pytest.raises(PlanError, match="n must be a whole number at least 1"):
        fitted.fold_in(CSR[:2]).recommend(n)


def test_more_than_there_are() -> None:
    fitted = model().fit(CSR)
    items, scores = fitted.recommend([0, 1], n=10**9, filter_seen=False)
    assert items.shape == (2, 120)
    assert {*items[0].tolist()} == set(range(120))
    assert np.isfinite(scores).all()
    near, _ = fitted.similar_items([3], n=10**9)
    assert near.shape == (1, 120)
    assert near[0, -1] == -1, "an item is not like itself"
    assert fitted.recommend(np.arange(3), np.int64(7))[0].shape == (3, 7)


def test_rows_without_ratings_and_stored_zeros() -> None:
    """A row without ratings is predicted by mean and column; a stored 0 is a rating, a missing one is none."""
    dense = np.array([[1.0, 2, 3, 1], [0, 0, 0, 0], [4, 5, 6, 2]])
    fitted = model().fit(sparse.csr_matrix(dense))
    assert fitted.predict([[1, 2]])[0] == pytest.approx(fitted.mean_ + fitted.item_bias_[2], rel=1e-6)
    assert not fitted.user_factors_[1].any()
    stored = sparse.csr_matrix((np.array([0.0, 1, 2]), ([0, 1, 2], [0, 1, 2])))
    assert model().fit(stored).n_ratings_ == 3
    assert model().fit(dense).n_ratings_ == 8
    np.testing.assert_array_equal(model().fit(dense).user_factors_, fitted.user_factors_)


def test_an_item_without_ratings_is_like_none() -> None:
    dense = np.array([[1.0, 0, 3, 2], [2, 0, 1, 5], [4, 0, 6, 1]])
    fitted = model().fit(sparse.csr_matrix(dense))
    items, scores = fitted.similar_items([1, 0], n=4)
    assert items[0].tolist() == [-1, -1, -1, -1]
    assert {*items[1].tolist()} == {2, 3, -1}
    assert np.isneginf(scores[items < 0]).all()


@pytest.mark.parametrize("how", [{"solver": "als", "implicit": True}, {"biases": False}], ids=str)
def test_a_row_without_ratings_gets_no_items_by_their_number(how: dict[str, Any]) -> None:
    """Without biases nothing ranks the items for it; their order in the matrix is no recommendation."""
    empty = CSR.tolil()
    empty[7] = 0
    fitted = model(**how).fit(empty.tocsr())
    items, scores = fitted.recommend([7, 8], n=3)
    assert items[0].tolist() == [-1, -1, -1]
    assert np.isneginf(scores[0]).all()
    assert (items[1] >= 0).all()
    new = fitted.fold_in(sparse.vstack([CSR[:1], sparse.csr_matrix((1, 120))]).tocsr())
    assert (new.recommend(3)[0][0] >= 0).all()
    assert new.recommend(3)[0][1].tolist() == [-1, -1, -1]


def test_users_are_a_flat_list() -> None:
    with pytest.raises(DataError, match=r"rows are given as a flat list, got shape \(2, 2\)"):
        model().fit(CSR).recommend([[0, 1], [2, 3]])
