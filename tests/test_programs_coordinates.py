"""Sparse regression in rounds: the same bits on every runtime, what a round reads, and the optimum."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.linear_model import ElasticNet, LogisticRegression

from stretto import schedule
from stretto.errors import DataError, Diverged, PlanError, RunError
from stretto.programs.coordinates.regression import SparseRegression
from stretto.programs.run import run
from stretto.programs.values import Look, ProgramResult
from stretto.runtime.runtimes import Serial, Threads
from stretto.schedule.spec import Schedule

Array = NDArray[Any]
ROWS, SIZE = 700, 90  # enough rows for two blocks

SPECS = {
    "cyclic": schedule.cyclic(4),
    "shuffled": schedule.cyclic(4, shuffle=True),
    "random": schedule.random(6),
    "prioritised": schedule.prioritised(12, threshold=0.2),
    "priority alone": schedule.prioritised(4, conflicts=None),
    "three schedulers": schedule.prioritised(8, threshold=0.2, schedulers=3),
}


def data(kind: str = "dense", loss: str = "squared", rows: int = ROWS, size: int = SIZE) -> tuple[Any, Array]:
    """A matrix with an all-zero, a constant and a repeated column, and a target that needs few of them."""
    random = np.random.default_rng(3)
    X = random.standard_normal((rows, size)) + 0.3 * random.standard_normal((rows, 1))
    X[:, 1], X[:, 2], X[:, 3] = 0.0, 2.0, X[:, 0]
    if kind == "sparse":
        X[np.abs(X) < 1.0] = 0.0
    beta = np.where(np.arange(size) % 9 == 0, random.standard_normal(size), 0.0)
    y = X @ beta + 0.5 * random.standard_normal(rows) + 1.0
    target = y if loss == "squared" else np.where(y > np.median(y), 1.0, -1.0)
    return (scipy.sparse.csr_array(X) if kind == "sparse" else X), target


def make(kind: str = "dense", loss: str = "squared", *, spec: Schedule, **settings: Any) -> SparseRegression:
    X, y = data(kind, loss)
    return SparseRegression(X, y, settings.pop("alpha", 0.05), loss=loss, schedule=spec, **settings)


def bits(result: ProgramResult) -> tuple[Any, ...]:
    values = tuple(result.params[name].tobytes() for name in ("coef", "intercept", "fitted"))
    return (*values, result.updates, tuple(round.jobs for round in result.record))


@pytest.mark.parametrize("pipeline", [1, 2, 3])
@pytest.mark.parametrize("by", ["rows", "columns"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", SPECS)
def test_same_bits_on_every_runtime(name: str, kind: str, loss: str, by: str, pipeline: int) -> None:
    found = []
    for runtime, every in ((Serial(), 60), (Threads(1), 7), (Threads(2), 60), (Threads(3), 11)):
        program = make(kind, loss, spec=SPECS[name], by=by, intercept=name != "random", l1_ratio=0.8)
        result = run(program, rounds=60, every=every, pipeline=pipeline, runtime=runtime, record=True, seed=4)
        found.append(bits(result))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("pipeline", [1, 2, 3, 4])
@pytest.mark.parametrize("by", ["rows", "columns"])
def test_rounds_read_what_was_there_pipeline_rounds_before(pipeline: int, by: str) -> None:
    program = make(spec=schedule.prioritised(12, threshold=0.2), by=by)
    result = run(program, rounds=80, pipeline=pipeline, every=80, runtime=Threads(3), record=True)
    assert [round.number for round in result.record] == list(range(1, 81))
    assert [round.read for round in result.record] == [max(0, t - pipeline) for t in range(1, 81)]


def by_hand(X: Array, y: Array, result: ProgramResult, pipeline: int, l1: float, l2: float, *, logistic: bool) -> Array:
    """The recorded rounds again, in plain NumPy: everything as it was after round t − pipeline."""
    versions = [np.zeros(X.shape[1])]
    h = np.sum(X * X, axis=0) / (4 if logistic else 1)
    for number, round in enumerate(result.record, 1):
        then, now = versions[max(0, number - pipeline)], versions[-1].copy()
        z = X @ then
        pull = y / (1 + np.exp(y * z)) if logistic else y - z
        for j in round.jobs:
            u = h[j] * then[j] + X[:, j] @ pull
            new = np.sign(u) * max(abs(u) - l1, 0) / (h[j] + l2) if h[j] else 0.0
            now[j] += new - then[j]
        versions.append(now)
    return versions[-1]


@pytest.mark.parametrize("pipeline", [1, 3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["shuffled", "random", "prioritised"])
def test_rounds_are_those_of_a_plain_loop(name: str, kind: str, loss: str, pipeline: int) -> None:
    X, y = data(kind, loss)
    program = SparseRegression(X, y, 0.05, l1_ratio=0.7, loss=loss, schedule=SPECS[name], by="rows")
    result = run(program, rounds=100, every=100, pipeline=pipeline, record=True, runtime=Threads(2))
    plain = X.toarray() if kind == "sparse" else X
    expected = by_hand(plain, y, result, pipeline, *program.penalty, logistic=loss == "logistic")
    np.testing.assert_allclose(result.params["coef"], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.params["fitted"], plain @ expected, rtol=1e-9, atol=1e-9)


def test_small_sets_are_in_flight_more_than_once() -> None:
    """Three coordinates, four rounds at a time: each is in several rounds under way."""
    random = np.random.default_rng(0)
    X, y = random.standard_normal((50, 3)), random.standard_normal(50)
    program = SparseRegression(X, y, 0.01, schedule=schedule.cyclic(2))
    result = run(program, rounds=30, pipeline=4, record=True, every=30, runtime=Threads(2))
    expected = by_hand(X, y, result, 4, *program.penalty, logistic=False)
    np.testing.assert_allclose(result.params["coef"], expected, rtol=1e-9)


@pytest.mark.parametrize("intercept", [False, True], ids=["through zero", "intercept"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_optimum_is_scikit_learns(kind: str, loss: str, intercept: bool) -> None:
    X, y = data(kind, loss)
    alpha, ratio = 0.03, 1.0
    program = SparseRegression(
        X, y, alpha, l1_ratio=ratio, loss=loss, intercept=intercept, schedule=schedule.prioritised(16)
    )
    result = run(program, rounds=6000, every=2000)
    model: Any
    if loss == "squared":
        model = ElasticNet(alpha=alpha, l1_ratio=ratio, fit_intercept=intercept, tol=1e-12, max_iter=10**5)
    else:
        model = LogisticRegression(
            C=1 / (alpha * ROWS), l1_ratio=ratio, solver="saga", fit_intercept=intercept, tol=1e-9, max_iter=10**4
        )
    model.fit(X, y)
    theirs = {
        "coef": model.coef_.ravel(),
        "intercept": np.atleast_1d(model.intercept_),
        "fitted": X @ model.coef_.ravel(),
    }
    assert result.objective <= program.objective(None, theirs) + 1e-7
    assert result.objective == pytest.approx(program.objective(None, result.params), rel=1e-12)
    if intercept:
        np.testing.assert_allclose(result.params["intercept"], theirs["intercept"], atol=1e-3)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_from_alpha_max_on_everything_stays_zero(loss: str) -> None:
    X, y = data("sparse", loss)
    pull = y - y.mean() if loss == "squared" else y / 2
    centred = X.toarray() - X.toarray().mean(axis=0)
    alpha = float(np.abs(centred.T @ pull).max()) / ROWS
    for scale, zero in ((1.0 + 1e-9, True), (0.98, False)):
        program = SparseRegression(X, y, scale * alpha, loss=loss, intercept=True, schedule=schedule.cyclic(1))
        if loss == "logistic":
            program.params["intercept"][0] = 0.0  # as many of one class as of the other
        result = run(program, rounds=4 * SIZE, every=SIZE)
        assert (not result.params["coef"].any()) is zero


def test_functions_of_the_users_run_the_same_rounds_from_python() -> None:
    compiled = make("sparse", spec=schedule.prioritised(8, threshold=0.2), intercept=True)
    own = make("sparse", spec=schedule.prioritised(8, threshold=0.2, by=lambda change: change * change), intercept=True)
    one = run(compiled, rounds=60, pipeline=2, record=True)
    other = run(own, rounds=60, pipeline=2, record=True, runtime=Threads(2))
    assert [round.jobs for round in one.record] == [round.jobs for round in other.record]
    assert bits(one) == bits(other)
    assert one.objective == other.objective
    assert one.history[-1].samples == other.history[-1].samples


def test_a_run_goes_on_where_the_last_one_ended() -> None:
    program = make(spec=schedule.cyclic(3), intercept=True)
    first = run(program, rounds=30, every=30)
    second = run(program, rounds=30, every=30)
    whole = run(make(spec=schedule.cyclic(3), intercept=True), rounds=60, every=60)
    assert second.history[0].objective == pytest.approx(first.objective)
    np.testing.assert_allclose(second.params["coef"], whole.params["coef"], atol=1e-10)


def test_wide_random_rounds_on_correlated_data_turn_back_and_prioritised_ones_do_not() -> None:
    random = np.random.default_rng(0)
    common = np.repeat(random.standard_normal((200, 20)), 20, axis=1)  # groups of 20 that nearly agree
    X = common + 0.3 * random.standard_normal((200, 400))
    y = X[:, ::40].sum(axis=1) + random.standard_normal(200)
    objectives = {}
    for spec in (schedule.random(1), schedule.random(64), schedule.prioritised(64)):
        program = SparseRegression(X, y, 0.05, schedule=spec)
        try:
            result = run(program, rounds=300, every=10, until=lambda look: look.objective > 1e6)
            objectives[repr(spec)[:9], spec.width] = [look.objective for look in result.history]
        except Diverged:
            objectives[repr(spec)[:9], spec.width] = [np.inf]
    assert objectives["Random(wi", 64][-1] > 10 * objectives["Random(wi", 64][0] or objectives["Random(wi", 64] == [
        np.inf
    ]
    assert objectives["Prioritis", 64][-1] <= objectives["Random(wi", 1][-1]
    assert "warning" in SparseRegression(X, y, 0.05, schedule=schedule.random(64)).explain()
    assert "warning" not in SparseRegression(X, y, 0.05, schedule=schedule.random(1)).explain()
    assert "warning" not in SparseRegression(X, y, 0.05, schedule=schedule.prioritised(64)).explain()


def test_numbers_that_are_not_finite_say_what_to_do() -> None:
    X = np.ones((50, 40)) + 1e-3 * np.random.default_rng(0).standard_normal((50, 40))
    with pytest.raises(Diverged, match=r"after round \d+; .* smaller width"):
        run(SparseRegression(X, X[:, 0], 1e-6, schedule=schedule.random(40)), rounds=5000, every=5000)


def test_where_one_looks_changes_nothing_and_until_ends_it() -> None:
    looks: list[Look] = []

    def enough(look: Look) -> bool:
        looks.append(look)
        return look.round >= 40

    result = run(make(spec=SPECS["prioritised"]), every=8, until=enough, pipeline=3, record=True)
    assert result.stopped == "until"
    assert result.rounds == 40 == len(result.record)
    assert [look.round for look in looks] == [8, 16, 24, 32, 40]
    assert [look.round for look in result.history] == [0, 8, 16, 24, 32, 40]
    other = run(make(spec=SPECS["prioritised"]), rounds=40, every=40, pipeline=3)
    assert other.params["coef"].tobytes() == result.params["coef"].tobytes()
    assert other.history[-1].samples == result.history[-1].samples > 0
    assert 0 < other.schedule_seconds <= other.busy_seconds


def test_an_until_that_fails_says_in_which_round() -> None:
    def fail(look: Look) -> bool:
        raise KeyError(f"at {look.round}")

    with pytest.raises(RunError, match="SparseRegression: `until` failed in round 8: KeyError: 'at 8'") as caught:
        run(make(spec=SPECS["prioritised"]), every=8, until=fail)
    assert isinstance(caught.value.__cause__, KeyError)


def test_seconds_and_ctrl_c_end_a_run_with_what_is_there() -> None:
    result = run(make(spec=schedule.cyclic(1)), seconds=0.05, every=10**9)
    assert result.stopped == "seconds"
    assert result.rounds > 0
    program = make(spec=schedule.cyclic(1))

    def interrupt(look: Look) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    result = run(program, every=20, until=interrupt)
    assert result.stopped == "interrupted"
    assert result.rounds == 20
    np.testing.assert_array_equal(program.params["coef"], result.params["coef"])


def test_explain_says_what_runs_and_why() -> None:
    program = make("sparse", spec=schedule.prioritised(8, threshold=0.2), intercept=True)
    text = program.explain(pipeline=3, runtime=Threads(2))
    for part in (
        "identical",
        "CSR turned into CSC once",
        "up to 8 of 16 candidates",
        "below 0.2",
        "t − 3",
        "safe width",
    ):
        assert part in text, part
    assert program.fingerprint(3) in text
    assert program.fingerprint(3) != program.fingerprint(1) != program.fingerprint(1, seed=1)
    assert (
        make("sparse", spec=schedule.random(8)).fingerprint() != make("sparse", spec=schedule.random(9)).fingerprint()
    )
    assert "by rows" in make(spec=schedule.random(8)).explain()
    X, y = data(rows=100)
    assert "by columns" in SparseRegression(X, y, 0.1).explain()


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"loss": "hinge"}, PlanError, "loss='hinge' is not one of"),
        ({"by": "blocks"}, PlanError, "by='blocks'"),
        ({"alpha": -1.0}, PlanError, "alpha is 0 or more"),
        ({"y": np.zeros(3)}, DataError, "one number for each row"),
        ({"y": np.full(ROWS, np.nan)}, DataError, "NaN or infinity at row 0"),
        ({"y": np.arange(ROWS) / 1.0, "loss": "logistic"}, DataError, "−1 and 1"),
        ({"schedule": "random"}, PlanError, "does not choose rounds"),
        ({"schedule": schedule.random}, PlanError, r"write schedule=st.schedule.random\(…\)"),
        ({"schedule": schedule.rotation(4)}, PlanError, "blocks that wait for each other"),
        ({"alpha": "strong"}, PlanError, "alpha is 0 or more .* got alpha='strong'"),
        ({"X": np.zeros((0, 3)), "y": np.zeros(0)}, DataError, "at least one sample"),
    ],
    ids=[
        *("loss", "by", "alpha", "short y", "nan", "classes", "schedule"),
        *("no parentheses", "rotation", "alpha in words", "no rows"),
    ],
)
def test_input_that_cannot_be_used_is_refused(settings: dict[str, Any], error: type[Exception], says: str) -> None:
    X, y = data()
    given = {"X": X, "y": y, "alpha": 0.1, **settings}
    with pytest.raises(error, match=says):
        SparseRegression(given.pop("X"), given.pop("y"), given.pop("alpha"), **given)


def test_a_run_is_told_with_its_plan_and_its_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """verbose=2 shows the plan first; a run that fails says why, as the other engine's does."""
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 1)), 20, axis=1)
    program = SparseRegression(X, X[:, 0], alpha=1e-6, schedule=schedule.cyclic(width=20))
    with pytest.raises(Diverged):
        run(program, rounds=3000, verbose=2)
    said = capsys.readouterr().err
    assert "safe width" in said
    assert "failed" in said
    assert "Diverged" in said
