"""`st.metrics`: lists of any recommender, against scikit-learn where it defines the same, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score, ndcg_score, roc_auc_score

import stretto as st
from stretto.errors import DataError, PlanError

USERS, ITEMS = 40, 60
EVERY = ("precision@5", "recall@5", "ndcg@5", "map@5", "mrr@5", "hit_rate@5", "auc@5", "coverage@5")


@pytest.fixture(scope="module")
def lists() -> Any:
    """Scores, items by falling score, and relevant items with grades; the first user has none."""
    rng = np.random.default_rng(0)
    scores = rng.permuted(np.tile(np.arange(ITEMS, dtype=float), (USERS, 1)), axis=1)
    taken = np.where(rng.random((USERS, ITEMS)) < 0.1, rng.integers(1, 6, (USERS, ITEMS)), 0)
    taken[0], taken[1:, 3] = 0, 2
    return scores, np.argsort(-scores, axis=1), sparse.csr_matrix(taken.astype(np.float32))


def each(lists: Any, name: str, **options: Any) -> Any:
    return st.metrics.ranking(lists[1], lists[2], name, per_user=True, **options)[name]


@pytest.mark.parametrize("k", [1, 5, 60])
@pytest.mark.parametrize("graded", [False, True])
def test_ndcg_is_that_of_scikit_learn(lists: Any, k: int, graded: bool) -> None:
    grades = lists[2].toarray() if graded else (lists[2].toarray() > 0).astype(float)
    found = each(lists, f"ndcg@{k}", graded=graded)
    for u in range(1, USERS):
        assert found[u] == pytest.approx(ndcg_score(grades[u : u + 1], lists[0][u : u + 1], k=k), rel=1e-12)
    assert math.isnan(found[0])
    assert st.metrics.ndcg(lists[1], lists[2], k, graded=graded) == pytest.approx(
        ndcg_score(grades[1:], lists[0][1:], k=k)
    )


def test_precision_and_area_over_all_items_are_those_of_scikit_learn(lists: Any) -> None:
    truth = lists[2].toarray() > 0
    precisions, areas = each(lists, f"map@{ITEMS}"), each(lists, f"auc@{ITEMS}")
    for u in range(1, USERS):
        assert precisions[u] == pytest.approx(average_precision_score(truth[u], lists[0][u]), rel=1e-12)
        assert areas[u] == pytest.approx(roc_auc_score(truth[u], lists[0][u]), rel=1e-12)
    assert st.metrics.map(lists[1], lists[2], ITEMS) == pytest.approx(
        label_ranking_average_precision_score(truth[1:], lists[0][1:])
    )


def test_one_function_for_each_metric(lists: Any) -> None:
    train = sparse.random(30, ITEMS, density=0.2, format="csr", random_state=1)
    names = (*EVERY, "novelty@5", "popularity_bias@5")
    together = st.metrics.ranking(lists[1], lists[2], names, train=train)
    for name in names:
        function = getattr(st.metrics, name.partition("@")[0])
        options = {"train": train} if name.startswith(("novelty", "popularity")) else {}
        assert function(lists[1], lists[2], 5, **options) == together[name]
    shares = (np.bincount(train.indices, minlength=ITEMS) + 1) / 31
    assert together["novelty@5"] == pytest.approx(-np.log2(shares)[lists[1][1:, :5]].mean())
    assert together["coverage@5"] == len(np.unique(lists[1][:, :5])) / ITEMS


def test_popular_items_have_a_bias() -> None:
    had = np.zeros((64, 6))
    had[:, 0], had[:7, 1:] = 1, 1  # item 0: everybody; the others: seven
    taken = sparse.csr_matrix(np.eye(6)[[1, 2, 3]])
    popular = np.zeros((3, 1), int)
    found = st.metrics.popularity_bias(popular, taken, 1, train=sparse.csr_matrix(had))
    assert found == pytest.approx(math.log2(65 / 8))
    assert st.metrics.popularity_bias([[4], [5], [4]], taken, 1, train=sparse.csr_matrix(had)) == pytest.approx(0)


def test_ids_of_any_kind(lists: Any) -> None:
    ranked, held = lists[1], [row.indices.tolist() for row in lists[2]]
    wanted = st.metrics.ranking(ranked, lists[2], EVERY)
    assert st.metrics.ranking(ranked, held, EVERY, items=ITEMS) == wanted
    names = np.array([f"item {j}" for j in range(ITEMS)], object)
    assert st.metrics.ranking(names[ranked], [set(names[row]) for row in held], EVERY, items=ITEMS) == wanted
    short = [[3, -1], [-1, -1]]
    assert st.metrics.recall(short, [{3, 4}, {1}], 2) == 0.25
    assert st.metrics.recall([["c", ""], ["", ""]], [["c", "d"], ["a"]], 2) == 0.25


def test_the_number_of_threads_changes_no_bit(lists: Any) -> None:
    many = np.tile(lists[1], (100, 1)), sparse.vstack([lists[2]] * 100).tocsr()
    found = [st.metrics.ranking(*many, EVERY, per_user=True, n_jobs=n) for n in (1, 3)]
    for name in EVERY:
        assert np.asarray(found[0][name]).tobytes() == np.asarray(found[1][name]).tobytes()


def test_values_at_or_below_zero_are_not_relevant(lists: Any) -> None:
    coo = lists[2].tocoo()
    free = np.flatnonzero(lists[2][1].toarray()[0] == 0)[0]
    rows, cols = np.append(coo.row, [1, 0]), np.append(coo.col, [free, 2])
    more = sparse.csr_matrix((np.append(coo.data, [-1.0, 0.0]), (rows, cols)), shape=coo.shape)
    assert st.metrics.ranking(lists[1], more, EVERY) == st.metrics.ranking(lists[1], lists[2], EVERY)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: st.metrics.ranking(a, b, "ndgc@10"), r"no metric 'ndgc@10'.*such as 'ndcg@10'"),
        (lambda a, b: st.metrics.ranking(a, b, "ndcg@0"), "no metric 'ndcg@0'"),
        (lambda a, b: st.metrics.ranking(a, b, []), "name at least one metric"),
        (lambda a, b: st.metrics.ranking(a, b, 3), "metrics are names"),
        (lambda a, b: st.metrics.ranking(a, b, "rmse"), "error of predicted ratings; use st.evaluate"),
        (lambda a, b: st.metrics.recall(a[:, :4], b), r"recall@10 counts 10 places, and recommended has 4"),
        (lambda a, b: st.metrics.recall(a[:3], b), "3 rows and relevant 40"),
        (lambda a, b: st.metrics.recall(a[0], b), "one row of items for each user"),
        (lambda a, b: st.metrics.recall(a % 7, b), "an item twice in row 0"),
        (lambda a, b: st.metrics.recall(a + 5, b), "recommended has item 64, and relevant has 60 columns"),
        (lambda a, b: st.metrics.recall(a.astype(float), b), "whole numbers; recommended has dtype float64"),
        (lambda a, b: st.metrics.auc(a, [[1]] * USERS), "auc@10 needs the number of items"),
        (lambda a, b: st.metrics.auc(a, b, items=0), "items must be a whole number at least 1"),
        (lambda a, b: st.metrics.ndcg(a, [[1]] * USERS, graded=True), "give relevant as one"),
        (lambda a, b: st.metrics.recall(a, [[1]]), "40 rows and relevant 1"),
        (lambda a, b: st.metrics.recall(a, 5), "a list with a collection of items for each user"),
        (lambda a, b: st.metrics.recall(a, [[-1]] * USERS), "an item below 0"),
        (lambda a, b: st.metrics.novelty(a, b, train=None), "need train"),
        (lambda a, b: st.metrics.novelty(a, b, train=sparse.eye(3)), "train has 3 columns"),
    ],
)
def test_what_cannot_be_measured_is_refused(lists: Any, call: Any, message: str) -> None:
    with pytest.raises((DataError, PlanError), match=message):
        call(lists[1], lists[2])
