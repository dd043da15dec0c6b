"""Working sets as a schedule of rounds: bits, optima, screening, and state saved and restored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray
from sklearn.linear_model import ElasticNet, LogisticRegression

import stretto as st
from stretto.errors import PlanError
from stretto.schedule.set_chooser import SetChooser

Array = NDArray[Any]
RUNTIMES: tuple[Any, ...] = (st.Serial(), st.Threads(1), st.Threads(3))


def data(kind: str = "dense", rows: int = 300, size: int = 400) -> tuple[Any, Array]:
    draw = np.random.default_rng(2)
    X = draw.standard_normal((rows, size)) + 0.5 * draw.standard_normal((rows, 1))
    X[:, 3] = 0.0
    if kind == "sparse":
        X[np.abs(X) < 1.0] = 0.0
    beta = np.where(np.arange(size) % 50 == 0, 2.0, 0.0)
    y = X @ beta + 0.3 * draw.standard_normal(rows) + 1.0
    return (scipy.sparse.csr_array(X) if kind == "sparse" else X), y


@pytest.mark.parametrize("pipeline", [1, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_same_bits_on_every_runtime(loss: str, kind: str, pipeline: int) -> None:
    X, y = data(kind)
    target = y if loss == "squared" else np.where(y > 1, 1.0, -1.0)
    found = []
    for runtime, every in zip(RUNTIMES, (200, 7, 30), strict=True):
        spec = st.schedule.working_sets()
        program = st.SparseRegression(X, target, 0.05, loss=loss, intercept=True, schedule=spec)
        result = st.run(program, rounds=200, every=every, pipeline=pipeline, runtime=runtime, record=True)
        jobs = tuple(round.jobs for round in result.record)
        found.append((*(array.tobytes() for array in result.params.values()), jobs, result.choices))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(("intercept", "l1_ratio"), [(True, 1.0), (False, 1.0), (True, 0.7)])
def test_squared_loss_reaches_the_optimum_with_screening(intercept: bool, l1_ratio: float) -> None:
    X, y = data()
    program = st.SparseRegression(
        X, y, 0.1, l1_ratio=l1_ratio, intercept=intercept, schedule=st.schedule.working_sets()
    )
    result = st.run(program, rounds=3000, every=3000)
    model = ElasticNet(0.1, l1_ratio=l1_ratio, fit_intercept=intercept, tol=1e-10, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(result.params["coef"], model.coef_, atol=1e-5)
    assert result.choices[-1].why.endswith("proven zero")
    assert int(result.choices[-1].why.split("; ")[1].split()[0]) > 200
    assert "working set: " in result.choices[0].schedule


def test_logistic_loss_reaches_the_optimum_with_screening() -> None:
    X, y = data(rows=200, size=100)
    target = np.where(y > 1, 1.0, -1.0)
    program = st.SparseRegression(X, target, 0.02, loss="logistic", schedule=st.schedule.working_sets(first=10))
    result = st.run(program, rounds=6000, every=6000)
    model = LogisticRegression(
        C=1 / (0.02 * 200), l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(X, target)
    np.testing.assert_allclose(result.params["coef"], model.coef_[0], atol=1e-3)
    assert not result.choices[-1].why.endswith(" 0 proven zero")


def test_strongly_correlated_columns_do_not_diverge() -> None:
    draw = np.random.default_rng(5)
    X = draw.standard_normal((200, 1)) + 0.1 * draw.standard_normal((200, 100))
    y = X[:, 0] + 0.01 * draw.standard_normal(200)
    result = st.run(st.SparseRegression(X, y, 0.001, schedule=st.schedule.working_sets()), rounds=2000, every=100)
    values = [look.objective for look in result.history]
    assert values[-1] < 0.1 * values[0]
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(values))


def test_far_fewer_updates_than_cyclic() -> None:
    X, y = data()
    limit = st.run(st.SparseRegression(X, y, 0.1, schedule=st.schedule.cyclic(4)), rounds=5000, every=5000).objective
    updates = []
    for spec in (st.schedule.working_sets(width=4), st.schedule.cyclic(4)):
        program = st.SparseRegression(X, y, 0.1, schedule=spec)
        updates.append(st.run(program, every=10, until=lambda look: look.objective <= limit * 1.0001).updates)
    assert updates[0] < 0.7 * updates[1]


class Halve(st.Program):
    """Some numbers are halved towards zero, the others never move."""

    def __init__(self) -> None:
        self.params = {"x": np.where(np.arange(20) % 4 == 0, 1.0, 0.0)}
        self.schedule = st.schedule.working_sets(width=3)

    def update(self, job: int, data: Any, params: Any) -> tuple[int, float]:
        return job, params["x"][job] / 2

    def aggregate(self, results: Any, params: Any) -> None:
        for job, value in results:
            params["x"][job] = value


def test_programs_walk_over_what_moves() -> None:
    result = st.run(Halve(), rounds=30, record=True)
    made = [round.jobs for round in result.record]
    assert made[0] == (0, 1, 2)
    assert sorted(sum(made[:7], ())) == list(range(20))
    assert made[7:9] == [(0, 4, 8), (12, 16)]
    for runtime in RUNTIMES:
        other = st.run(Halve(), rounds=30, record=True, runtime=runtime)
        assert [round.jobs for round in other.record] == made


def test_programs_resume_with_the_same_rounds(tmp_path: Path) -> None:
    whole = st.run(Halve(), rounds=50, pipeline=2, record=True)
    st.run(Halve(), rounds=20, pipeline=2, checkpoint=tmp_path, checkpoint_every=10)
    rest = st.run(Halve(), rounds=50, pipeline=2, checkpoint=tmp_path, resume=True, record=True)
    assert [round.jobs for round in rest.record] == [round.jobs for round in whole.record][20:]
    assert np.array_equal(rest.params["x"], whole.params["x"])


@settings(max_examples=40, deadline=None)
@given(
    some.integers(1, 12), some.integers(1, 5), some.integers(0, 40), some.integers(0, 3), some.integers(0, 2**32 - 1)
)
def test_saved_state_gives_the_same_rounds(size: int, width: int, before: int, flying: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, other = SetChooser(size, width), SetChooser(size, width)
    waiting: list[Any] = []

    def go(chooser: SetChooser, change: Array) -> Any:
        waiting.append(chooser.choose())
        return change

    for _ in range(before):
        go(one, np.zeros(0))
        if len(waiting) > flying:
            jobs = waiting.pop(0)
            one.learn(jobs, draw.integers(0, 2, len(jobs)) * draw.random(len(jobs)))
    other.restore(one.arrays())
    for _ in range(20):
        first, second = one.choose(), other.choose()
        assert np.array_equal(first, second)
        assert len(set(first.tolist())) == len(first) > 0
        waiting.append(first)
        jobs = waiting.pop(0)
        change = draw.random(len(jobs))
        one.learn(jobs, change)
        other.learn(jobs, change)


def test_another_state_is_refused() -> None:
    with pytest.raises(PlanError, match="another schedule"):
        SetChooser(4, 1).restore(SetChooser(5, 1).arrays())
    with pytest.raises(PlanError, match="at least one job"):
        st.schedule.working_sets(width=0)
