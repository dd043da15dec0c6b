"""Early stopping on a ranking metric: what is watched is what `st.evaluate` measures, with every solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.data.generate.ratings import ratings
from stretto.errors import DataError, PlanError

DATA = ratings(6_000, 150, 90, rank=3, noise=0.3, seed=1, row_skew=0.3, col_skew=0.6, step=1.0).data
TRAIN, TEST = st.split.by_user(DATA, test=0.25)


def model(**parameters: Any) -> st.MatrixFactorization:
    given: dict[str, Any] = {"n_components": 4, "max_iter": 6, "random_state": 0, "n_iter_no_change": 2}
    return st.MatrixFactorization(**given | parameters)


@pytest.mark.parametrize(
    "solver", [{"solver": "sgd"}, {"solver": "als"}, {"solver": "ccd"}, {"solver": "als", "implicit": True}]
)
def test_what_is_watched_is_what_evaluate_measures(solver: dict[str, Any]) -> None:
    fitted = model(early_stopping="recall@5", tol=0.0, **solver).fit(TRAIN, validation=TEST)
    found = st.evaluate(fitted, TEST, metrics="recall@5")
    assert fitted.history_[-1]["test_recall@5"] == pytest.approx(found["recall@5"], rel=1e-12)
    usual = "test_ndcg@10" if fitted.implicit else "test_rmse"
    assert usual in fitted.history_[-1]


def test_it_stops_when_the_metric_no_longer_rises() -> None:
    given = {"solver": "als", "n_components": 16, "l2_regularization": 0.001, "max_iter": 30}
    fitted = model(early_stopping="ndcg@10", **given).fit(TRAIN, validation=TEST)
    values = [epoch["test_ndcg@10"] for epoch in fitted.history_]
    assert 2 < fitted.n_iter_ < 30
    best = int(np.argmax(values))
    assert len(values) - 1 - best >= 2, "two epochs without improvement"
    whole = model(n_iter_no_change=3, **given).fit(TRAIN, validation=TEST)
    assert whole.n_iter_ == 30
    assert fitted.fingerprint_ == whole.fingerprint_, "watching changes no plan"
    again = model(early_stopping="ndcg@10", n_jobs=3, **given).fit(TRAIN, validation=TEST)
    assert again.history_ == fitted.history_
    assert again.user_factors_.tobytes() == fitted.user_factors_.tobytes()


def test_a_share_is_held_out_without_a_validation_set() -> None:
    fitted = model(early_stopping="hit_rate@3", validation_fraction=0.2).fit(DATA)
    assert 0.75 < fitted.n_ratings_ / len(DATA) < 0.85
    assert 0 < fitted.history_[0]["test_hit_rate@3"] < 1


def test_ndcg_of_implicit_feedback_is_measured_once() -> None:
    plain = model(solver="als", implicit=True, early_stopping=True).fit(TRAIN, validation=TEST)
    named = model(solver="als", implicit=True, early_stopping="ndcg@10").fit(TRAIN, validation=TEST)
    assert named.history_ == plain.history_


@pytest.mark.parametrize(
    ("name", "message"),
    [("ndgc@10", "there is no metric 'ndgc@10'"), ("coverage@10", "it watches precision"), ("rmse", "True watches")],
)
def test_what_cannot_be_watched_is_refused(name: str, message: str) -> None:
    with pytest.raises((DataError, PlanError), match=message):
        model(early_stopping=name).fit(TRAIN)
