"""`schedule="auto"`: candidates, trials, and runs with the same choices and bits on every runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray

import stretto as st
from stretto.errors import PlanError
from stretto.programs.values import ProgramResult
from stretto.schedule.automatic.candidates import COMPILED, Candidate, RoundCost, candidates, conflicting_share
from stretto.schedule.automatic.trials import Trials
from stretto.schedule.columns import columns_of

Array = NDArray[Any]
RUNTIMES: tuple[Any, ...] = (st.Serial(), st.Threads(1), st.Threads(3))


def data(rows: int = 300, size: int = 80, share: float = 0.0, seed: int = 1) -> tuple[Array, Array]:
    """Columns with a common part: the share of their variance."""
    draw = np.random.default_rng(seed)
    X = np.sqrt(1 - share) * draw.standard_normal((rows, size)) + np.sqrt(share) * draw.standard_normal((rows, 1))
    beta = np.where(np.arange(size) % 9 == 0, draw.standard_normal(size), 0.0)
    return X, X @ beta + 0.1 * draw.standard_normal(rows)


def bits(result: ProgramResult) -> tuple[Any, ...]:
    jobs = tuple(round.jobs for round in result.record)
    return (*(array.tobytes() for array in result.params.values()), jobs, result.choices)


# --- a sparse regression ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("pipeline", [1, 3])
def test_same_bits_and_choices_on_every_runtime(loss: str, pipeline: int) -> None:
    X, y = data(share=0.05)
    target = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)
    found = []
    for runtime, every in zip(RUNTIMES, (50, 7, 400), strict=True):
        program = st.SparseRegression(X, target, 0.01, loss=loss, intercept=True, schedule="auto")
        result = st.run(program, rounds=400, every=every, pipeline=pipeline, runtime=runtime, record=True, seed=3)
        found.append(bits(result))
    assert all(one == found[0] for one in found)
    assert len(found[0][-1]) > 2


def test_reaches_the_optimum_and_reads_what_it_should() -> None:
    X, y = data()
    program = st.SparseRegression(X, y, 0.01, schedule="auto")
    result = st.run(program, rounds=500, every=500, pipeline=2, record=True, runtime=st.Threads(2))
    expected = st.Lasso(0.01, fit_intercept=False, tol=1e-10).fit(X, y).coef_
    np.testing.assert_allclose(result.params["coef"], expected, atol=1e-6)
    np.testing.assert_allclose(result.params["fitted"], X @ expected, atol=1e-4)
    assert [round.number for round in result.record] == list(range(1, 501))
    assert all(0 <= round.number - round.read <= 2 for round in result.record)
    assert sum(len(round.jobs) for round in result.record) == result.updates


def test_correlated_columns_do_not_diverge_and_independent_ones_go_wide() -> None:
    X, y = data(size=120, share=0.95)
    result = st.run(st.SparseRegression(X, y, 0.01, schedule="auto"), rounds=3000, every=3000)
    assert result.history[-1].objective < result.history[0].objective
    assert [one.schedule for one in candidates(120, X).tried] == [st.schedule.cyclic(1, shuffle=True)]
    eye = np.eye(300)
    first = candidates(300, eye, widest=128).tried[0].schedule
    assert getattr(first, "width", 0) == 128


def test_explains_candidates_and_what_is_left_out() -> None:
    X, y = data(size=120, share=0.95)
    text = st.SparseRegression(X, y, 0.01, schedule="auto").explain()
    assert "candidate 1: cyclic" in text
    assert "left out: prioritised" in text
    assert "spectral radius" in text
    plan = st.SparseRegression(X, y, 0.01, schedule=st.schedule.auto(32)).plan(rounds=20)
    assert "up to 32 together" in plan.explain()
    assert plan.run().rounds == 20


def test_the_run_ends_where_it_is_told_to() -> None:
    X, y = data()
    for rounds in (0, 1, 9, 17):
        result = st.run(st.SparseRegression(X, y, 0.01, schedule="auto"), rounds=rounds, every=5)
        assert result.rounds == rounds
        assert result.stopped == "rounds"
    limit = 0.5 * result.history[0].objective
    program = st.SparseRegression(X, y, 0.01, schedule="auto")
    assert st.run(program, every=3, until=lambda look: look.objective < limit).stopped == "until"


def test_wrong_widths_are_refused() -> None:
    with pytest.raises(PlanError, match="at least one job"):
        st.schedule.auto(0)
    with pytest.raises(PlanError, match="width"):
        st.schedule.auto(2.5)  # type: ignore[arg-type]


# --- programs ---------------------------------------------------------------------------------------------------------


class Lasso(st.Program):
    """½‖y − Xβ‖² + λ‖β‖₁ in Python; with_columns: the schedule may see the columns."""

    def __init__(self, X: Array, y: Array, *, with_columns: bool = True, with_objective: bool = True) -> None:
        self.data, self.squares, self.lam = (X, y), np.square(X).sum(axis=0), 3.0
        self.params = {"beta": np.zeros(X.shape[1]), "residual": y.copy()}
        self.columns = X if with_columns else ()
        self.schedule = "auto"
        self.objective = self._objective if with_objective else None

    def update(self, job: int, data: Any, params: Any) -> tuple[int, float]:
        u = data[0][:, job] @ params["residual"] + self.squares[job] * params["beta"][job]
        new = np.sign(u) * max(abs(u) - self.lam, 0.0) / self.squares[job]
        return job, float(new - params["beta"][job])

    def aggregate(self, results: Any, params: Any) -> None:
        for job, step in results:
            params["beta"][job] += step
            params["residual"] -= self.data[0][:, job] * step

    def _objective(self, data: Any, params: Any) -> float:
        return float(0.5 * params["residual"] @ params["residual"] + self.lam * np.abs(params["beta"]).sum())


@pytest.mark.parametrize("with_columns", [True, False])
def test_programs_have_the_same_bits_on_every_runtime(with_columns: bool) -> None:
    X, y = data(rows=60, size=30, share=0.1)
    runtimes: tuple[Any, ...] = (*RUNTIMES, st.Threads(2))
    found = []
    for runtime, every in zip(runtimes, (1, 10, 7, 300), strict=True):
        program = Lasso(X, y, with_columns=with_columns)
        found.append(bits(st.run(program, rounds=300, every=every, runtime=runtime, record=True, pipeline=2)))
    assert all(one == found[0] for one in found)
    assert len(found[0][-1]) > 2


def test_nodes_of_any_number_make_the_same_choices() -> None:
    X, y = data(rows=60, size=30)
    found = []
    for nodes in (1, 4):
        result = st.run(Lasso(X, y), rounds=120, every=40, runtime=st.Simulated(nodes=nodes, latency="1ms"))
        found.append((result.params["beta"].tobytes(), result.choices))
    assert found[0] == found[1]
    text = Lasso(X, y).explain(runtime=st.Simulated(nodes=2))
    assert "3: round t is chosen from" in text  # rounds in flight that hide the latency
    assert "1: a round is chosen" in Lasso(X, y).explain()


def test_without_columns_rounds_grow_only_while_the_objective_falls() -> None:
    X, y = data(rows=60, size=30)
    wide = st.run(Lasso(X, y, with_columns=False), rounds=1500, every=1500)
    assert any("2 together" in one.schedule for one in wide.choices)
    same = np.repeat(X[:, :1], 30, axis=1)  # two at a time oscillate, three diverge
    narrow = st.run(Lasso(same, y, with_columns=False), rounds=1500, every=1500)
    assert not any("4 together" in one.schedule for one in narrow.choices)
    assert narrow.history[-1].objective <= narrow.history[0].objective


def test_without_an_objective_one_safe_candidate_is_used() -> None:
    X, y = data(rows=60, size=30)
    program = Lasso(X, y, with_columns=False, with_objective=False)
    result = st.run(program, rounds=60, record=True)
    assert result.choices == ()
    assert {len(round.jobs) for round in result.record} == {1}
    assert "no objective" in program.explain()


def test_checkpoints_hold_the_trials(tmp_path: Path) -> None:
    X, y = data(rows=60, size=30)
    whole = st.run(Lasso(X, y), rounds=240, pipeline=2, record=True)
    st.run(Lasso(X, y), rounds=100, pipeline=2, checkpoint=tmp_path, checkpoint_every=50)
    rest = st.run(Lasso(X, y), rounds=240, pipeline=2, checkpoint=tmp_path, resume=True, record=True)
    assert rest.params["beta"].tobytes() == whole.params["beta"].tobytes()
    assert rest.choices == whole.choices
    assert [round.jobs for round in rest.record] == [round.jobs for round in whole.record][100:]


# --- loops ------------------------------------------------------------------------------------------------------------


def descend(X: Array, r: Array, beta: Array, scale: Array) -> None:
    for j in range(len(beta)):
        step = (X[j] @ r) / scale[j]
        beta[j] += step
        r -= step * X[j]


@st.parallel(schedule="auto")
def halve(x: Array) -> None:
    for i in range(len(x)):
        x[i] = 0.5 * x[i]


def test_loops_take_what_is_safe() -> None:
    X, y = data(rows=50, size=20)
    found = []
    for runtime in RUNTIMES:
        loop = st.parallel(schedule="auto", runtime=runtime)(descend)
        beta, r = np.zeros(20), y.copy()
        for _ in range(100):
            loop(np.ascontiguousarray(X.T), r, beta, np.square(X).sum(axis=0))
        found.append(beta.tobytes())
    assert len(set(found)) == 1
    np.testing.assert_allclose(np.frombuffer(found[0]), np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-6)
    x = np.ones(1000)
    halve(x)
    assert (x == 0.5).all()
    assert "no job reads an outdated value" in halve.explain(x)


def delayed(X: Array, r: Array, changes: Any, beta: Array, scale: Array) -> None:
    for j in range(len(beta)):
        step = (X[j] @ r) / scale[j]
        beta[j] += step
        changes -= step * X[j]


def loss(X: Array, r: Array, changes: Any, beta: Array, scale: Array) -> float:
    return float(r @ r)


def test_loops_with_an_objective_change_their_choice_between_calls() -> None:
    X, y = data(rows=200, size=60)
    found, seen = [], []
    for runtime in (*RUNTIMES, st.Simulated(nodes=3, threads=1)):
        loop = st.parallel(schedule="auto", objective=loss, runtime=runtime)(delayed)
        r = y.copy()
        arrays = np.ascontiguousarray(X.T), r, st.buffer(r), np.zeros(60), np.square(X).sum(axis=0)
        used = []
        for _ in range(60):
            loop(*arrays)
            used.append((len(loop.choices), {len(jobs) for jobs in loop.rounds}))
        found.append((arrays[3].tobytes(), loop.choices))
        seen.append(used)
    assert all(one == found[0] for one in found)  # choices follow from work, never from time
    assert len(found[0][1]) > 2
    assert seen[0][0][0] == 1  # the first candidate, to begin with
    np.testing.assert_allclose(np.frombuffer(found[0][0]), np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-3)
    text = " ".join(loop.explain(*arrays).split())
    for choice in found[0][1]:
        assert f"after round {choice.round:,}: {choice.schedule}, {choice.why}"[:60] in text
    assert loop.plan(*arrays).fingerprint != st.parallel(schedule="auto")(delayed).plan(*arrays).fingerprint


def test_choices_of_loops_are_resumed(tmp_path: Path) -> None:
    X, y = data(rows=200, size=60)

    def fit(epochs: int, folder: Path) -> Any:
        loop = st.parallel(schedule="auto", objective=loss, runtime=st.Serial())(delayed)
        columns, scale, r, beta = np.ascontiguousarray(X.T), np.square(X).sum(axis=0), y.copy(), np.zeros(60)
        changes = st.buffer(r)
        for _ in st.epochs(epochs, folder, states={"r": r, "beta": beta}, every=5):
            loop(columns, r, changes, beta, scale)
        return beta.tobytes(), loop.choices

    fit(20, tmp_path / "one")
    found = fit(40, tmp_path / "one")
    assert found == fit(40, tmp_path / "two")
    for folder in ("one", "two"):
        lines = (tmp_path / folder / "events.jsonl").read_text().splitlines()
        events = [one for one in map(json.loads, lines) if one["event"] == "ScheduleChosen"]
        assert [(one["round"], one["why"]) for one in events] == [(one.round, one.why) for one in found[1]]


def test_objectives_that_are_refused() -> None:
    for options, says in (
        ({"objective": loss}, "is for loops with a schedule"),
        ({"objective": loss, "schedule": st.schedule.cyclic()}, 'objective= is for schedule="auto"'),
        ({"objective": 3, "schedule": "auto"}, "objective must be a function"),
    ):
        with pytest.raises(PlanError, match=says):
            st.parallel(**options)(descend)
    wrong = st.parallel(schedule="auto", objective=lambda x: "much")(halve.plain)
    with pytest.raises(PlanError, match="halve: the result of <lambda>: objective must be a number; got 'much'"):
        wrong(np.ones(50))


# --- candidates and trials, alone -------------------------------------------------------------------------------------


def test_conflicts_are_predicted_from_pairs() -> None:
    assert conflicting_share(columns_of(np.eye(100))) == 0.0
    assert conflicting_share(columns_of(np.ones((10, 5)))) == 1.0
    long = candidates(50, data(rows=20_000, size=50)[0])
    assert isinstance(long.tried[0].schedule, type(st.schedule.prioritised()))  # choosing costs little there


def candidate(width: int, after: int | None = None, *, learns: bool = False) -> Candidate:
    return Candidate(st.schedule.cyclic(width), 0.0, learns, after, "")


def simulate(rates: list[float], steps: int, *, found: list[Candidate] | None = None) -> Trials:
    """Trials of candidates that take off their share of the objective in a sweep."""
    trials = Trials(tuple(found or [candidate(k + 1) for k in range(len(rates))]), RoundCost(0.0), 100.0)
    objective, number = 1.0, 0
    trials.observe(0, objective)
    for _ in range(steps):
        objective *= 1.0 - ([*rates, 0.01][trials.current])
        number += 10
        trials.account(100.0, 10, 10, trials.current)
        assert trials.due
        trials.observe(number, objective)
    return trials


@settings(max_examples=50, deadline=None)
@given(some.lists(some.floats(0.05, 0.5), min_size=2, max_size=5))
def test_the_best_is_chosen(rates: list[float]) -> None:
    trials = simulate(rates, len(rates) + 1)
    assert rates[trials.current] >= 0.8 * max(rates)


@settings(max_examples=50, deadline=None)
@given(some.lists(some.floats(-0.5, 0.5), min_size=1, max_size=5), some.integers(0, 30), some.integers(0, 30))
def test_state_saved_and_restored_decides_the_same(rates: list[float], before: int, after: int) -> None:
    whole, part = simulate(rates, before), simulate(rates, before)
    other = Trials(whole.candidates[:-1], RoundCost(0.0), 100.0)
    other.restore(part.array())
    for k in range(after):
        for trials in (whole, other):
            trials.account(100.0, 10, 10, trials.current)
            trials.observe(before * 10 + k, 1.0 / (2 + k))
    assert whole.decisions == other.decisions
    assert whole.array().tobytes() == other.array().tobytes()


def test_what_raises_the_objective_is_dropped() -> None:
    trials = simulate([-0.2, 0.1, -0.3], 12)
    assert trials.current == 1
    assert sum(one.schedule.startswith("cyclic: all in turn, 3") for one in trials.decisions) <= 1
    assert simulate([-0.2], 5).candidates[simulate([-0.2], 5).current].schedule == st.schedule.cyclic(1, shuffle=True)


def test_further_candidates_wait_for_the_one_before() -> None:
    found = [candidate(1), candidate(2, 0), candidate(4, 1), candidate(8, 2)]
    assert simulate([0.1, 0.2, 0.05, 0.4], 12, found=found).current == 1
    assert simulate([0.1, 0.2, 0.3, 0.4], 12, found=found).current == 3


def test_tried_again_when_progress_falls() -> None:
    trials = simulate([0.3, 0.2], 40)
    assert any(one.why.startswith("tried again") for one in trials.decisions)
    assert COMPILED.round > 0
