"""`st.evaluate`, its table and `st.scorer`, against NumPy and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import stretto as st
from ranking_brute import brute
from stretto.data.generate.ratings import ratings
from stretto.errors import DataError, PlanError

DATA = ratings(6_000, 150, 90, rank=3, noise=0.3, seed=1, row_skew=0.3, col_skew=0.6, step=1.0).data
X = DATA.to_csr()
TRAIN, TEST = st.split.by_user(X, test=0.25)
RANKED = (
    "precision@5",
    "recall@5",
    "ndcg@5",
    "map@5",
    "mrr@5",
    "hit_rate@5",
    "auc@5",
    "novelty@5",
    "popularity_bias@5",
)


def model(**parameters: Any) -> st.MatrixFactorization:
    given: dict[str, Any] = {"n_components": 4, "solver": "als", "max_iter": 4, "random_state": 0}
    return st.MatrixFactorization(**given | parameters)


@pytest.fixture(scope="module")
def rated() -> Any:
    return model().fit(TRAIN)


def expected(fitted: Any, threshold: float, *, graded: bool, filter_seen: bool) -> Any:
    """[users with relevant items, metrics] by a full sort of all scores."""
    scores = fitted.user_factors_ @ fitted.item_factors_.T + fitted.item_bias_
    train, test = TRAIN.to_csr(), TEST.to_csr()
    counts = np.diff(train.tocsc().indptr)
    information = -np.log2((counts + 1) / (150 + 1))
    users, found = [], []
    for u in range(150):
        seen = frozenset(train[u].indices.tolist() if filter_seen else ())
        row = test[u]
        kept = row.data >= threshold
        gains = dict(
            zip(row.indices[kept].tolist(), row.data[kept].tolist() if graded else [1.0] * kept.sum(), strict=True)
        )
        if gains:
            order = [j for j in np.argsort(-scores[u], kind="stable").tolist() if j not in seen]
            users.append(u)
            found.append(
                [
                    brute(*split(name), order, gains, items=90, information=information.tolist(), seen=seen)
                    for name in RANKED
                ]
            )
    return users, np.array(found)


def split(name: str) -> tuple[str, int]:
    metric, _, k = name.partition("@")
    return metric, int(k)


@pytest.mark.parametrize(
    ("threshold", "graded", "filter_seen"), [(4.0, False, True), (3.0, True, True), (4.0, False, False)]
)
def test_every_metric_is_that_of_a_full_sort(rated: Any, threshold: float, graded: bool, filter_seen: bool) -> None:
    found = st.evaluate(rated, TEST, metrics=RANKED, threshold=threshold, graded=graded, filter_seen=filter_seen)
    users, wanted = expected(rated, threshold, graded=graded, filter_seen=filter_seen)
    assert found.users["MatrixFactorization"].tolist() == users
    for at, name in enumerate(RANKED):
        mine = found.per_user["MatrixFactorization"][name]
        np.testing.assert_allclose(mine, wanted[:, at], rtol=1e-9, err_msg=name)
        one = found.score(name)
        half = 1.959964 * wanted[:, at].std(ddof=1) / np.sqrt(len(users))
        assert (one.value, one.high - one.low, one.users) == pytest.approx((wanted[:, at].mean(), 2 * half, len(users)))


def test_the_bits_do_not_depend_on_the_threads(rated: Any) -> None:
    names = (*RANKED, "coverage@5", "rmse")
    found = [st.evaluate(rated.set_params(n_jobs=n), TEST, metrics=names) for n in (1, 3)]
    assert repr(found[0].scores) == repr(found[1].scores)
    for name in RANKED:
        a, b = (one.per_user["MatrixFactorization"][name] for one in found)
        assert a.tobytes() == b.tobytes()


def test_lists_of_recommend_give_the_same(rated: Any) -> None:
    ids, _ = rated.recommend(np.arange(150), 10)
    names = ("ndcg@10", "map@10", "coverage@10", "novelty@10")
    found = st.evaluate(rated, TEST, metrics=names)
    lists = st.metrics.ranking(ids, TEST.to_csr(), names, train=TRAIN.to_csr())
    assert {name: found[name] for name in names} == pytest.approx(lists)


def test_ndcg_of_implicit_feedback_is_that_of_score() -> None:
    fitted = model(implicit=True).fit(TRAIN)
    assert st.evaluate(fitted, TEST, metrics="ndcg@10")["ndcg@10"] == pytest.approx(fitted.score(TEST), rel=1e-12)
    matrix = st.evaluate(fitted, TEST.to_csr(), metrics="ndcg@10")
    assert matrix["ndcg@10"] == pytest.approx(fitted.score(TEST.to_csr()), rel=1e-12)


def test_errors_of_ratings(rated: Any) -> None:
    found = st.evaluate(rated, TEST, metrics=("rmse", "mae"))
    error = rated.predict((TEST.rows, TEST.cols)) - TEST.values
    assert found["rmse"] == pytest.approx(-rated.score(TEST))
    assert found["mae"] == pytest.approx(np.abs(error).mean())
    assert found.score("rmse").low < found["rmse"] < found.score("rmse").high
    rng = np.random.default_rng(0)
    rows = [np.flatnonzero(TEST.rows == u) for u in np.unique(TEST.rows)]
    drawn = [np.concatenate([rows[u] for u in rng.integers(0, len(rows), len(rows))]) for _ in range(400)]
    spread = np.std([np.abs(error[at]).mean() for at in drawn])
    mae = found.score("mae")
    assert (mae.high - mae.low) / (2 * 1.96) == pytest.approx(spread, rel=0.15)


def test_intervals_hold_the_mean_of_all_users() -> None:
    """The metric over 4,000 users is within intervals made from 40 of them about 19 times of 20."""
    from stretto.evaluation.table import interval

    values = np.random.default_rng(0).beta(0.4, 2.0, 4000)
    parts = [interval(part, 0.95) for part in values.reshape(100, 40)]
    inside = sum(low <= values.mean() <= high for _, low, high, _ in parts)
    assert 88 <= inside <= 99


def test_new_users_are_folded_in_or_left_out() -> None:
    train, test = st.split.cold_users(X, test=0.2)
    found = st.evaluate(model(), None, split=(train, test), metrics=("ndcg@10", "rmse"))
    new = np.unique(test.rows)
    assert set(found.users["MatrixFactorization"]) <= set(new)
    assert found.new_users > 0.9 * len(new)
    fitted = found.models["MatrixFactorization"]
    assert found["rmse"] == pytest.approx(-fitted.score(X[new]), rel=1e-5)
    with pytest.raises(DataError, match="no held-out user"):
        st.scorer("ndcg@10", new_users="skip")(fitted, test)
    mixed = st.Data.from_arrays(
        np.append(TEST.rows, test.rows), np.append(TEST.cols, test.cols), np.append(TEST.values, test.values), X.shape
    )
    left = [row for row in range(150) if row not in set(new.tolist())]
    both = st.evaluate(fitted, mixed, metrics="ndcg@10", new_users="skip")
    assert both.users["MatrixFactorization"].tolist() == [row for row in np.unique(TEST.rows).tolist() if row in left]


def test_popular_items_are_a_baseline_that_knows_nobody() -> None:
    found = st.evaluate(model(implicit=True), X, split="leave_k_out", metrics=("ndcg@10", "coverage@10"), popular=True)
    train, test = st.split.leave_k_out(X)
    counts = np.diff(train.to_csr().tocsc().indptr)
    seen = train.to_csr()
    order = np.argsort(-counts, kind="stable")
    lists = np.array([[j for j in order if j not in set(seen[u].indices)][:10] for u in range(150)])
    assert found.score("ndcg@10", "most popular").value == pytest.approx(st.metrics.ndcg(lists, test.to_csr()))
    assert found.score("coverage@10", "most popular").value == st.metrics.coverage(lists, test.to_csr())


def test_models_beside_each_other(rated: Any) -> None:
    found = st.evaluate({"four": model(), "one": model(n_components=1)}, X, split="random", metrics=("ndcg@10", "rmse"))
    value, low, high = found.difference("ndcg@10", "four", "one")
    a, b = (found.per_user[name]["ndcg@10"] for name in ("four", "one"))
    assert value == pytest.approx((a - b).mean())
    assert high - low == pytest.approx(2 * 1.959964 * (a - b).std(ddof=1) / np.sqrt(len(a)))
    frame = found.to_frame()
    assert frame.columns.tolist() == ["model", "metric", "value", "low", "high", "users"]
    assert frame["model"].tolist() == ["four", "four", "one", "one"]
    text = str(found)
    assert text.splitlines()[0].split() == ["metric", "four", "one"]
    assert f"{found['ndcg@10']:.4f} [" in text
    assert "95 % confidence intervals" in text
    page = found._repr_html_()
    assert page.count("<tr>") == 3
    assert f"{found['rmse']:.4f}" in page
    with pytest.raises(DataError, match=r"no 'recall@10' of 'four'; there are ndcg@10, rmse of four, one"):
        found["recall@10"]
    with pytest.raises(DataError, match="one number for all users"):
        found.difference("rmse", "four", "one")


def test_ids_of_tables(rated: Any) -> None:
    """Held-out ratings in another order, with users and items that training never saw."""
    pandas = pytest.importorskip("pandas")

    def frame(data: Any) -> Any:
        names = {"user": [f"u{row:03}" for row in data.rows], "item": [f"i{col:03}" for col in data.cols]}
        return pandas.DataFrame(names | {"rating": data.values})

    fitted = model().fit(frame(TRAIN))
    wanted = st.evaluate(rated, TEST, metrics=("recall@10", "ndcg@10", "rmse"))
    found = st.evaluate(fitted, frame(TEST).sample(frac=1, random_state=0), metrics=("recall@10", "ndcg@10", "rmse"))
    assert [one.value for one in found.scores] == pytest.approx([one.value for one in wanted.scores])
    one = pandas.DataFrame({"user": ["u000", "u000"], "item": ["i999", "i998"], "rating": [5.0, 5.0]})
    assert st.evaluate(fitted, one, metrics="recall@10")["recall@10"] == 0.0


# --- scikit-learn's tools ---------------------------------------------------------------------------------------------


def test_a_grid_search_over_pairs_takes_the_scorer() -> None:
    pairs, values = np.stack([DATA.rows, DATA.cols], axis=1), DATA.values
    folds = KFold(3, shuffle=True, random_state=0)
    scorers = {"ndcg": st.scorer("ndcg@10", threshold=4), "rmse": st.scorer("rmse")}
    search = GridSearchCV(model(), {"n_components": [1, 3]}, scoring=scorers, refit="ndcg", cv=folds).fit(pairs, values)
    train, test = next(folds.split(pairs))
    fitted = model(n_components=1).fit(pairs[train], values[train])
    one = st.evaluate(fitted, pairs[test], values[test], metrics=("ndcg@10", "rmse"), threshold=4)
    assert search.cv_results_["split0_test_ndcg"][0] == one["ndcg@10"]
    assert search.cv_results_["split0_test_rmse"][0] == -one["rmse"]
    plain = cross_val_score(model(n_components=1), pairs, values, cv=folds)
    np.testing.assert_allclose([search.cv_results_[f"split{k}_test_rmse"][0] for k in range(3)], plain, rtol=1e-6)


def test_folds_of_a_matrix_hold_out_users() -> None:
    implicit = model(implicit=True)
    found = cross_val_score(implicit, X, cv=3, scoring=st.scorer("ndcg@10"))
    np.testing.assert_allclose(found, cross_val_score(implicit, X, cv=3), rtol=1e-9)
    assert repr(st.scorer("ndcg", threshold=3)).startswith("st.scorer('ndcg@10', threshold=3")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: st.evaluate(m, TEST, metrics="ndcg10"), "evaluate: there is no metric 'ndcg10'"),
        (lambda m: st.evaluate(m, X, split="sideways"), "split must be one of 'random', 'leave_k_out'"),
        (lambda m: st.evaluate(m, X, split="by_time"), "needs the times"),
        (lambda m: st.evaluate(m, X, split=lambda data: data), r"a split returns \(train, test\)"),
        (lambda m: st.evaluate(m, X, split=3), "split must be a method of st.split"),
        (lambda m: st.evaluate(m, TEST, confidence=95), "confidence must be a number more than 0 and less than 1"),
        (lambda m: st.evaluate(m, TEST, new_users="drop"), "new_users must be one of 'fold_in', 'skip'"),
        (lambda m: st.evaluate(object(), TEST), "model is a MatrixFactorization, or a dict"),
        (lambda m: st.evaluate({}, TEST), "got no model"),
        (lambda m: st.evaluate(m, TEST.take(np.zeros(0, int))), "no ratings to measure on"),
        (lambda m: st.evaluate(model(implicit=True).fit(TRAIN), TEST, metrics="rmse"), "this model predicts none"),
        (lambda m: st.scorer("accuracy"), "scorer: there is no metric 'accuracy'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(rated: Any, call: Any, message: str) -> None:
    with pytest.raises((DataError, PlanError), match=message):
        call(rated)


def test_an_unfitted_model_needs_a_split() -> None:
    with pytest.raises(Exception, match="not fitted"):
        st.evaluate(model(), sparse.eye(4, format="csr"))
