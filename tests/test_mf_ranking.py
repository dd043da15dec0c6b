"""Ranking losses of `MatrixFactorization`: equal bits, planted preferences, weights, new rows, and implicit's BPR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import stretto as st
from stretto.errors import PlanError
from stretto.solvers.factorization.ndcg import Ranking, ndcg
from stretto.solvers.factorization.rated_items import RatedItems
from test_mf_implicit import TEST, TRAIN, counts, ranked

LOSSES: dict[str, dict[str, Any]] = {
    "bpr": {"loss": "bpr"},
    "warp": {"loss": "warp"},
    "logistic": {"loss": "logistic", "implicit": True},
}


def model(loss: str = "bpr", **parameters: Any) -> st.MatrixFactorization:
    given: dict[str, Any] = {"n_components": 8, "max_iter": 20, "random_state": 0, "n_jobs": 2}
    return st.MatrixFactorization(**given | LOSSES[loss] | parameters)


def groups(users: int = 240, items: int = 160, kinds: int = 4, seed: int = 0) -> tuple[Any, Any]:
    """(matrix, group of each item): users have a third of the items of their group, and nothing else."""
    rng = np.random.default_rng(seed)
    of_user, of_item = rng.integers(kinds, size=users), rng.integers(kinds, size=items)
    own = of_user[:, None] == of_item
    return sparse.csr_matrix(((rng.random((users, items)) < 0.33) & own).astype(np.float32)), (own, of_item)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_bits_at_any_number_of_workers(loss: str) -> None:
    X = counts(600, 300)
    fits = [model(loss, n_jobs=jobs, max_iter=3, width=4).fit(X) for jobs in (1, 2, 4)]
    assert fits[0].plan_.order.rows == 4  # there is something to run at the same time
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_"):
        values = {getattr(fit, name).tobytes() for fit in fits}
        assert len(values) == 1
    assert len({fit.fingerprint_ for fit in fits}) == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_planted_preferences_are_found(loss: str) -> None:
    X, (own, _) = groups()
    fitted = model(loss, max_iter=40).fit(X)
    items, scores = fitted.recommend(np.arange(X.shape[0]), n=5)
    assert own[np.arange(X.shape[0])[:, None], items].mean() > 0.95
    assert np.all(np.diff(scores, axis=1) <= 0)
    assert not X[np.repeat(np.arange(X.shape[0]), 5), items.ravel()].any()  # what they have is left out


@pytest.mark.parametrize("loss", LOSSES)
def test_score_is_ndcg_and_better_than_popularity(loss: str) -> None:
    fitted = model(loss).fit(TRAIN, validation=TEST)
    scores = fitted.user_factors_.astype(float) @ fitted.item_factors_.T + fitted.item_bias_
    dense = TRAIN.to_csr().toarray(), TEST.to_csr().toarray()
    assert fitted.score(TEST) == pytest.approx(ranked(scores, *dense), rel=1e-5)
    assert fitted.history_[-1]["test_ndcg@10"] == pytest.approx(fitted.score(TEST), rel=1e-5)
    popular = np.tile(np.bincount(TRAIN.cols, minlength=TRAIN.shape[1]).astype(float), (TRAIN.shape[0], 1))
    assert fitted.score(TEST) > 1.1 * ranked(popular, *dense)
    assert fitted.history_[-1]["objective"] < fitted.history_[0]["objective"]


def test_bpr_ranks_no_worse_than_implicit() -> None:
    bpr = pytest.importorskip("implicit.cpu.bpr")
    X = counts(1500, 400, seed=3)
    train, test = (part.to_csr() for part in st.split(X, test=0.2))
    ours = model(n_components=16).fit(train)
    peer = bpr.BayesianPersonalizedRanking(factors=16, iterations=100, random_state=0, num_threads=1)
    peer.fit(train, show_progress=False)
    seen = RatedItems(train.indptr.astype(np.int64), train.indices.astype(np.int32))
    entries = st.as_data(test)
    ranking = Ranking.of(entries, seen, X.shape[1])
    ids, _ = peer.recommend(ranking.rows, train[ranking.rows], N=10)
    assert ours.score(entries) > ndcg(ids.astype(np.int32), ranking.relevant) - 0.005


def test_a_heavier_value_counts_for_more() -> None:
    X, _ = groups()
    heavy = X.copy()
    user, item = (int(index[7]) for index in X.nonzero())
    heavy[user, item] = 8.0
    plain, more, without = (
        model(alpha=alpha).fit(data).predict([(user, item)])[0]
        for data, alpha in ((X, 5.0), (heavy, 5.0), (heavy, 0.0))
    )
    assert more > plain + 0.02
    assert without == model(alpha=0.0).fit(X).predict([(user, item)])[0]


def test_the_unit_of_the_counts_does_not_matter() -> None:
    X = counts()
    plain = model(max_iter=5).fit(X)
    other = model(max_iter=5).fit(X * np.float32(60.0))
    np.testing.assert_allclose(other.item_factors_, plain.item_factors_, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_new_rows_are_folded_in(loss: str) -> None:
    X, (own, _) = groups()
    fitted = model(loss, max_iter=40).fit(X[40:])
    new = fitted.fold_in(X[:40])
    items, _ = new.recommend(n=5)
    assert own[np.arange(40)[:, None], items].mean() > 0.95
    alone = fitted.fold_in(X[3:4]).factors[0]
    np.testing.assert_array_equal(alone, new.factors[3])
    assert fitted.score(X[:40]) > 0.1  # 0.03 by chance


@pytest.mark.parametrize("loss", LOSSES)
def test_a_new_user_does_not_depend_on_who_else_is_folded_in(loss: str, tmp_path: Any) -> None:
    """The weight of a value is relative to the mean one of training, not to that of the rows of one call."""
    X = counts()
    fitted = model(loss, alpha=5.0).fit(X[40:])
    alone = fitted.fold_in(X[3:4])
    beside = fitted.fold_in(sparse.vstack([X[3:4], 100 * X[4:40]]).tocsr())
    np.testing.assert_array_equal(beside.factors[0], alone.factors[0])
    np.testing.assert_array_equal(beside.bias[0], alone.bias[0])
    fitted.save(tmp_path / "model")
    again = st.MatrixFactorization.load(tmp_path / "model").fold_in(X[3:4])
    np.testing.assert_array_equal(again.factors, alone.factors)


def test_streaming_from_disk_gives_the_same_bits() -> None:
    data = st.generate_ratings(60_000, 3_000, 1_500, seed=0).data
    whole = model(max_iter=2, n_components=16, duplicates="keep").fit(data)
    streamed = model(max_iter=2, n_components=16, duplicates="keep", memory="700KiB").fit(data)
    assert streamed.plan_.physical.tile is not None
    np.testing.assert_array_equal(streamed.item_factors_, whole.item_factors_)


def test_a_fit_goes_on_and_is_saved(tmp_path: Any) -> None:
    X = counts()
    fitted = model(max_iter=3, warm_start=True).fit(X)
    first = fitted.history_[-1]["objective"]
    fitted.fit(X)
    assert fitted.history_[-1]["objective"] < first
    fitted.partial_fit(X[:, :30])
    fitted.save(tmp_path / "model")
    again = st.MatrixFactorization.load(tmp_path / "model")
    for one, other in zip(again.recommend([0, 1]), fitted.recommend([0, 1]), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))


def test_early_stopping_watches_the_ranking() -> None:
    fitted = model(max_iter=200, early_stopping=True, n_iter_no_change=2).fit(TRAIN, validation=TEST)
    found = [history["test_ndcg@10"] for history in fitted.history_]
    assert fitted.n_iter_ == len(found) < 200


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "bpr", "solver": "als"}, "solves loss='squared' alone"),
        ({"loss": "warp", "optimizer": "adagrad"}, "ranking losses have optimizer='sgd'"),
        ({"implicit": True}, "learns to rank with the losses 'bpr', 'warp', 'logistic'"),
        ({"loss": "warp", "schedule": "adaptive"}, "ranking losses have 'linear'"),
        ({"negatives": 3}, "negatives=3 has no effect"),
        ({"loss": "bpr", "negatives": 0}, "negatives"),
    ],
)
def test_options_that_do_not_fit_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        st.MatrixFactorization(**parameters).fit(counts(20, 10))
