"""When a user's program goes wrong: its own traceback, whose round and job, and the same error on every runtime."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stretto as st
from programs_made import RUNTIMES, Greedy, Lasso, regression
from stretto.errors import DataError, Diverged, PlanError, RunError
from stretto.programs.choosing import moved
from stretto.programs.program import Program, program
from stretto.programs.run import run
from stretto.runtime.rounds.rounds import Rounds
from stretto.runtime.runtimes import Runtime, Serial, Threads

X, Y = regression()


class Odd(Exception):
    pass


def lasso(**methods: Callable[..., Any]) -> Lasso:
    return type("Mine", (Lasso,), methods)(X, Y)  # type: ignore[no-any-return]


def numbered(self: Any, state: Any) -> list[int]:
    return [10 * state.round + k for k in range(4)]


def helper(job: int) -> None:
    raise Odd(f"cannot do {job}")


@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
@pytest.mark.parametrize("depth", [1, 3])
def test_update_fails_with_its_own_traceback_and_the_rounds_job(runtime: Runtime, depth: int) -> None:
    """Two jobs fail, and so does a later round that may well come first: the serial order says which error it is."""

    def update(self: Any, job: int, data: Any, params: Any) -> tuple[int, float]:
        if job in (22, 23, 30, 31):
            helper(job)
        return job % 40, 0.0

    with pytest.raises(RunError) as caught:
        run(lasso(schedule=numbered, update=update), pipeline=depth, rounds=9, runtime=runtime)
    assert str(caught.value) == "Mine: `update` failed in round 2, job 3 of 4: 22: Odd: cannot do 22"
    cause = caught.value.__cause__
    assert isinstance(cause, Odd)
    frames = traceback.extract_tb(cause.__traceback__)
    assert [frame.name for frame in frames] == ["update", "helper"], "the user's own frames and nobody else's"
    assert "raise Odd" in (frames[-1].line or "")


@pytest.mark.parametrize("part", ["schedule", "aggregate", "objective", "until", "samples"])
@pytest.mark.parametrize("runtime", [Serial(), Threads(3)], ids=str)
def test_the_other_parts_fail_likewise(part: str, runtime: Runtime) -> None:
    seen: list[int] = []

    def fail(*args: Any) -> Any:
        seen.append(1)
        if len(seen) == 3:
            raise Odd("third time")
        return real(*args)

    real: Any = (lambda look: False) if part == "until" else getattr(Lasso, part)
    made = lasso(**({} if part == "until" else {part: fail}))
    with pytest.raises(RunError, match=rf"Mine: `{part}` failed in round \d: Odd: third time$") as caught:
        run(made, rounds=5, pipeline=2, runtime=runtime, until=fail if part == "until" else None)
    assert isinstance(caught.value.__cause__, Odd)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)] == ["fail"]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_what_fails_beyond_the_end_was_never_asked_for(runtime: Runtime) -> None:
    """Round 4 is chosen ahead and fails, but the run is over after round 2."""

    def schedule(self: Any, state: Any) -> list[int]:
        if state.round == 4:
            raise Odd
        return [0]

    result = run(lasso(schedule=schedule), until=lambda look: look.round == 2, pipeline=3, runtime=runtime)
    assert (result.stopped, result.rounds) == ("until", 2)


def test_a_long_job_is_shortened_and_nothing_runs_on_afterwards() -> None:
    before = threading.active_count()
    made = lasso(schedule=lambda self, state: ["x" * 500], update=lambda self, *args: helper(1))
    with pytest.raises(RunError, match=r"job 1 of 1: 'x{70,79}…: Odd") as caught:
        run(made, rounds=3, runtime=Threads(4))
    assert len(str(caught.value)) < 160
    assert threading.active_count() == before


def test_the_version_before_the_failure_is_kept() -> None:
    """With versions to spare, half an aggregation is not left in the parameters."""

    def aggregate(self: Any, results: Any, params: Any) -> None:
        params["beta"] += 1
        if params["beta"][0] == 4:
            raise Odd

    made = lasso(aggregate=aggregate)
    with pytest.raises(RunError, match="round 4"):
        run(made, rounds=9, pipeline=3)
    assert (made.params["beta"] == 3).all()


@pytest.mark.parametrize("runtime", [Serial(), Threads(2)], ids=str)
@pytest.mark.parametrize(
    ("part", "write"),
    [
        ("update", lambda self, job, data, params: params["beta"].__setitem__(0, 1.0)),
        ("update", lambda self, job, data, params: params.__setitem__("beta", 1.0)),
        ("update", lambda self, job, data, params: params["beta"].fill(1.0)),
        ("schedule", lambda self, state: state.params["beta"].sort()),
        ("objective", lambda self, data, params: params["beta"].fill(0.0)),
    ],
    ids=["item", "name", "method", "schedule", "objective"],
)
def test_whoever_may_only_read_cannot_write(part: str, write: Callable[..., Any], runtime: Runtime) -> None:
    made = lasso(**{part: write})
    with pytest.raises(RunError, match=rf"`{part}` may not write params: return the result and let `aggregate` write"):
        run(made, rounds=2, runtime=runtime)
    assert not made.params["beta"].any()


@pytest.mark.parametrize("depth", [1, 2])
def test_nan_names_round_and_array(depth: int) -> None:
    def aggregate(self: Any, results: Any, params: Any) -> None:
        params["r"][0] = 1.0
        if params["beta"][0] == 2:
            params["r"][5] = np.nan
        params["beta"] += 1

    made = lasso(aggregate=aggregate)
    with pytest.raises(Diverged, match=r"Mine: params\['r'\] holds NaN after round 3; take smaller steps"):
        run(made, rounds=9, pipeline=depth)
    made = lasso(aggregate=lambda self, results, params: params.__setitem__("beta", np.inf))
    assert run(made, rounds=1).rounds == 1, "infinity may be meant"


@pytest.mark.parametrize("runtime", [Serial(), Threads(2)], ids=str)
def test_ctrl_c_drains_and_returns_what_is_there(runtime: Runtime) -> None:
    """The signal comes in the middle of a job of round 4: what is over by then counts, what is in flight does not."""
    asked = threading.Event()
    real = Rounds.ask

    def ask(rounds: Rounds) -> None:
        real(rounds)
        asked.set()

    def update(self: Any, job: int, data: Any, params: Any) -> tuple[int, float]:
        if job == 40 and not asked.is_set():
            signal.raise_signal(signal.SIGINT) if runtime == Serial() else signal.pthread_kill(main, signal.SIGINT)
            assert asked.wait(60)
        return job % 40, 1.0

    main = threading.main_thread().ident or 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rounds, "ask", ask)
        made = lasso(schedule=numbered, update=update)
        result = run(made, rounds=50, pipeline=2, runtime=runtime)
    assert result.stopped == "interrupted"
    assert result.rounds in (2, 3), "round 3 may or may not be over"
    whole = run(lasso(schedule=numbered, update=update), rounds=result.rounds, pipeline=2)
    for name, array in whole.params.items():
        assert np.array_equal(result.params[name], array)
        assert np.array_equal(made.params[name], array)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_no_ordinary_error_is_passed_on() -> None:
    def update(self: Any, job: int, data: Any, params: Any) -> None:
        raise SystemExit(3)

    for runtime in RUNTIMES:
        with pytest.raises(SystemExit):
            run(lasso(update=update), rounds=2, pipeline=2, runtime=runtime)


class Nothing(Program):
    pass


def test_a_missing_part_is_named() -> None:
    with pytest.raises(PlanError, match=r"Nothing has no `schedule`; give it a ready schedule such as"):
        run(Nothing(), rounds=1)
    whole = {"schedule": Greedy(2), "update": lambda job, data, params: 0, "aggregate": lambda results, params: None}
    for part, words in (("update", r"update\(self, job, data, params\)"), ("aggregate", r"aggregate\(self, results")):
        made = Nothing()
        for name, value in whole.items():
            if name != part:
                setattr(made, name, value)
        with pytest.raises(PlanError, match=rf"Nothing has no `{part}`; give it a method {words}"):
            run(made, rounds=1)
        with pytest.raises(PlanError, match=rf"Nothing has no `{part}`"):
            made.explain()
    made = Nothing()
    for name, value in whole.items():
        setattr(made, name, value)
    with pytest.raises(PlanError, match=r"Nothing has no `params`; set self\.params to a dict"):
        run(made, rounds=1)


SHARED = st.zeros(6)


class Unspeakable:
    def __repr__(self) -> str:
        raise Odd("no words")


def test_a_job_without_a_repr_does_not_hide_the_error() -> None:
    made = lasso(schedule=lambda self, state: [Unspeakable()], update=lambda self, *args: helper(1))
    with pytest.raises(RunError, match="round 1, job 1 of 1: <Unspeakable without a repr>: Odd: cannot do 1"):
        run(made, rounds=3)


@pytest.mark.parametrize("dtype", ["?", "u1", "i4", "f4", "c16"])
def test_any_kind_of_number_tells_how_far_it_moved(dtype: str) -> None:
    before = np.array([[1, 1], [1, 0]], dtype=dtype)
    after = np.array([[0, 1], [1, 0]], dtype=dtype)
    assert np.abs(moved(before[:, 0], after[:, 0])).tolist() == [1.0, 0.0]
    assert moved(before, after).tolist() == [1.0, 0.0]
    made = refused(params={"x": np.zeros(4, dtype)}, aggregate=lambda results, params: params["x"].fill(1))
    assert run(made, rounds=3, pipeline=2).rounds == 3


def refused(**parts: Any) -> Program:
    given: dict[str, Any] = {
        "update": lambda job, data, params: 0.0,
        "aggregate": lambda results, params: None,
        "schedule": Greedy(2),
        "params": {"x": np.zeros(4)},
        "name": "P",
    }
    return program(**(given | parts))


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        ({"params": [np.zeros(3)]}, PlanError, "P: params is a dict of the arrays that are learned.*got list"),
        ({"params": {}}, PlanError, "P: params is a dict"),
        ({"params": {"x": 3.0}}, PlanError, r"P: params\['x'\] is a float, not an array of numbers"),
        ({"params": {"x": np.array([None])}}, PlanError, "an array of objects, not an array of numbers"),
        ({"params": {"x": np.broadcast_to(0.0, 4)}}, PlanError, "read-only array; pass a copy"),
        ({"params": {"x": np.array([np.nan])}}, DataError, r"params\['x'\] holds NaN before the first round"),
        ({"params": {"x": SHARED.array[:4], "y": np.ones(2), "z": SHARED}}, PlanError,
         r"P: params\['x'\] and params\['z'\] share memory; .* pass a copy"),
        ({"params": {"x": np.array(1.0)}}, PlanError, "the first array of params is a single number"),
        ({"size": 2.5}, PlanError, "P: size must be a whole number; got 2.5"),
        ({"schedule": st.schedule.cyclic}, PlanError,
         r"P: `schedule` is a function .* write schedule=st.schedule.cyclic\(…\)"),
        ({"schedule": lambda state: np.array(3)}, RunError,
         r"P: schedule returned array\(3\) for round 1; return a list"),
        ({"objective": lambda data, params: "low"}, RunError,
         "P: `objective` failed in round 0: TypeError: it returned 'low'; return one number"),
        ({"params": {"x": np.zeros(4, dtype=[("a", "f8")])}}, RunError,
         "P: `aggregate` failed in round 1: TypeError: how far .* moved is not known"),
        ({"size": 0}, PlanError, "size=0: a schedule needs at least one job"),
        ({"update": lambda job, params: 0}, PlanError, r"`update` takes \(job, params\), and will be given \(job, d"),
        ({"aggregate": lambda: 0}, PlanError, r"`aggregate` takes \(\), and will be given \(results, params\)"),
        ({"objective": lambda params: 0}, PlanError, r"`objective` takes \(params\)"),
        ({"schedule": "cyclic"}, PlanError, "`schedule` is 'cyclic', which cannot be called"),
        ({"schedule": lambda state: 3}, RunError, "P: schedule returned 3 for round 1; return a list of jobs, or None"),
        ({"schedule": lambda state: "ab"}, RunError, "P: schedule returned 'ab'"),
        ({"aggregate": lambda results, params: [1.0]}, RunError, r"returned float64, shape \(1,\) in round 1"),
        ({"aggregate": lambda results, params: ["a"] * 2}, RunError, "return how far each of the 2 jobs moved"),
        ({"size": 3}, RunError, r"Greedy\(width=2\) learns from how far each job moved; return that from `aggregate`"),
    ],
)  # fmt: skip
def test_programs_that_are_refused(parts: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run(refused(**parts), rounds=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pipeline": 0}, "pipeline=0 is less than 1"),
        ({"rounds": -1}, "rounds=-1 is less than 0"),
        ({"every": 0.5}, "every=0.5 is not a whole number"),
        ({"seconds": 0}, "seconds=0 is not a positive time"),
        ({"seconds": "5"}, "seconds='5' is not a positive time; leave it out"),
        ({"seed": "a"}, "seed='a' is not a whole number; give one"),
        ({"seed": 2**64}, "does not fit in 64 bits; give one from"),
        ({"verbose": "loud"}, "verbose='loud' is not a whole number; give one of at least 0"),
        ({"until": 3}, r"until=3 cannot be called; give a function until\(look\)"),
        ({"runtime": Threads}, r"is not a runtime; give st.Threads\(n\)"),
        ({"runtime": Threads("2")}, "n_jobs must be a whole number; got '2'"),  # type: ignore[arg-type]
        ({"runtime": 4}, r"runtime=4 is not a runtime; give st.Threads\(n\), st.Serial\(\)"),
        ({}, "P: nothing would end this run, since ready schedules never end by themselves; pass rounds=, until= or "),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        run(refused(), **options)


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(PlanError, match=r"st.run runs an st.Program, got a class; make one: run\(Lasso\(…\)\)"):
        run(Lasso, rounds=1)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="got State"):
        run(st.zeros(3), rounds=1)  # type: ignore[arg-type]
