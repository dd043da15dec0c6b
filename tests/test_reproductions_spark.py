"""The comparison with Spark without Spark: objectives of both programs, judges, blocks of SGD, and measuring."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse
from reproductions import spark_objectives as objectives
from reproductions import spark_session, spark_sgd

import stretto as st

pytestmark = pytest.mark.slow  # reproductions are no part of `make test`


def mllib_scaled(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, reg: float, elastic: float) -> float:
    """MLlib's objective as its source computes it: on columns and target of standard deviation 1."""
    spread, scales = y.std(ddof=1), X.std(axis=0, ddof=1)
    scaled = w * scales / spread
    rest = y / spread - (X / scales) @ scaled - b / spread
    effective = reg / spread
    l1 = np.abs(scaled / scales).sum()  # without standardisation it divides the penalties by the scales
    l2 = np.square(scaled / scales).sum()
    return float(rest @ rest / (2 * len(y)) + effective * (elastic * l1 + (1 - elastic) / 2 * l2))


@pytest.mark.parametrize("seed", range(5))
def test_mllib_s_objective_is_ours_in_other_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 6)) * rng.uniform(0.1, 9, 6)
    y, w, b = 7 * rng.normal(size=40) + 3, rng.normal(size=6), float(rng.normal())
    penalty = objectives.stretto_penalty(alpha=float(rng.uniform(0.1, 2)), l1_ratio=float(rng.uniform(0.1, 0.9)))
    spread = objectives.spread_of(y, "l-bfgs")
    reg, elastic = objectives.spark_penalty(penalty, spread)
    back = objectives.mllib_penalty(reg, elastic, spread)
    assert (back.l1, back.l2) == pytest.approx((penalty.l1, penalty.l2))
    theirs = spread**2 * mllib_scaled(X, y, w, b, reg, elastic)
    assert theirs == pytest.approx(objectives.squared(X, y, w, b, penalty), rel=1e-12)


def test_objectives_are_those_that_stretto_reports() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = X @ [2.0, 0, 0, -1, 0] + rng.normal(size=60)
    net = st.ElasticNet(0.3, l1_ratio=0.4, tol=1e-8).fit(X, y)
    penalty = objectives.stretto_penalty(0.3, 0.4)
    assert objectives.squared(X, y, net.coef_, net.intercept_, penalty) == pytest.approx(net.objective_)
    labels = np.where(y > 0, 1.0, -1.0)
    reg = 0.05
    sorter = st.LogisticRegression(C=1 / (reg * 60), l1_ratio=1.0, tol=1e-8).fit(X, labels)
    value = objectives.logistic(X, labels, sorter.coef_[0], sorter.intercept_[0], objectives.Penalty(reg, 0))
    assert value == pytest.approx(reg * sorter.objective_[0])


def test_the_strongest_penalty_leaves_nothing_and_a_weaker_one_something() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 4))
    y = X[:, 0] + rng.normal(size=50)
    strongest = objectives.strongest(X, y)
    assert not st.Lasso(1.001 * strongest).fit(X, y).coef_.any()
    assert st.Lasso(0.9 * strongest).fit(X, y).coef_.any()
    labels = np.where(y > 0, 1.0, -1.0)
    strongest = objectives.strongest_logistic(X, labels)
    for share, some in ((1.001, False), (0.9, True)):
        found = st.LogisticRegression(C=1 / (50 * share * strongest), l1_ratio=1.0, tol=1e-6).fit(X, labels)
        assert found.coef_.any() == some


def test_errors_and_objective_of_factors() -> None:
    W, H = np.array([[1.0, 0], [0, 2]]), np.array([[3.0, 1], [1, 1]])
    rows, cols, values = np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([2.0, 2, 4])
    # Products 3, 2, 2: off by 1, 0, -2.
    assert objectives.rmse(rows, cols, values, W, H) == pytest.approx(np.sqrt(5 / 3))
    squares = (1 + 10) + (4 + 10) + (4 + 2)
    assert objectives.factor_objective(rows, cols, values, W, H, 0.1) == pytest.approx(5 + 0.1 * squares)


def test_folding_in_finds_the_topic_of_a_document() -> None:
    phi = np.array([[0.7, 0.2, 0.05, 0.05], [0.05, 0.05, 0.3, 0.6]])
    seen = scipy.sparse.csr_matrix(np.array([[20, 6, 0, 0], [0, 0, 9, 20], [7, 2, 3, 6]]))
    theta = objectives.fold_in(phi, seen, 0.1)
    assert theta.sum(axis=1) == pytest.approx([1, 1, 1])
    assert theta[0, 0] > 0.95
    assert theta[1, 1] > 0.95
    assert 0.3 < theta[2, 0] < 0.7
    with pytest.raises(ValueError, match="no word"):
        objectives.fold_in(phi, scipy.sparse.csr_matrix((1, 4)), 0.1)


def test_blocks_hold_every_rating_once() -> None:
    rng = np.random.default_rng(0)
    places = rng.permutation(13 * 7)[:40]
    rows, cols, values = places // 7, places % 7, rng.normal(size=40)
    by_row, by_col = spark_sgd.bounds(13, 3), spark_sgd.bounds(7, 3)
    found = {
        (int(i + by_row[p]), int(j + by_col[q])): value
        for p, blocks in enumerate(spark_sgd.blocks(rows, cols, values, (13, 7), 3))
        for q, block in enumerate(blocks)
        for i, j, value in zip(*block, strict=True)
    }
    assert len(found) == 40
    assert [found[i, j] for i, j in zip(rows.tolist(), cols.tolist(), strict=True)] == pytest.approx(values, rel=1e-6)


def test_both_updates_take_the_same_steps_and_learn() -> None:
    rng = np.random.default_rng(0)
    places = rng.permutation(30 * 20)[:300]
    rows, cols = places // 20, places % 20
    values = rng.uniform(1, 5, size=300)
    [[block]] = spark_sgd.blocks(rows, cols, values, (30, 20), 1)
    how = spark_sgd.Settings(mean=3.0)
    made = {}
    for kind, update in spark_sgd.UPDATES.items():
        [W], [H] = spark_sgd.first_factors(30, 1, how, 1), spark_sgd.first_factors(20, 1, how, 2)
        before = objectives.rmse(rows, cols, values, W, H)
        for _ in range(5):
            update(block, W, H, 0.02, 0.05)
        assert objectives.rmse(rows, cols, values, W, H) < 0.97 * before
        made[kind] = W, H
    np.testing.assert_allclose(made["python"][0], made["numba"][0], rtol=1e-3)
    np.testing.assert_allclose(made["python"][1], made["numba"][1], rtol=1e-3)


def test_a_missing_spark_ends_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install"):
        spark_session.require()


def test_processes_are_measured() -> None:
    me = os.getpid()
    assert spark_session.process_seconds(me) > 0
    assert spark_session.peak_memory(me) > 10
    assert me in spark_session.descendants(os.getppid())
    assert spark_session.process_seconds(2**30) == 0
    assert spark_session.first_within([5.0, 3.0, 1.0], 3.0) == 1
    assert spark_session.first_within([5.0], 3.0) is None
    assert spark_session.times(0.5, 6.0) == "12×"
