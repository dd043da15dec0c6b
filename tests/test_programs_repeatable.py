"""Updates that differ between two calls are found and named with their round, job and part."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import stretto as st
from programs_cut import Cut, Own, Remembering
from programs_made import bits
from rounds_fleet import Stepped
from stretto.errors import PlanError, RunError
from stretto.programs.repeatable import same_bits

RUNTIMES = (st.Serial(), st.Threads(2), st.Simulated(nodes=2), Stepped(2, 0))
DRAWS = np.random.default_rng(0)


class Drawing(Cut):
    """Part 4 draws from a generator that all share, from round `first` on."""

    schedule = st.schedule.cyclic(width=3)
    first = 1

    def update(self, job: int, part: Any, params: Any) -> Any:
        where, gradient, rows = super().update(job, part, params)
        if rows == len(part[1]) and part[1][0] == self.marked and params["steps"] >= self.first - 1:
            gradient += DRAWS.random()
        return where, gradient, rows

    @property
    def marked(self) -> float:
        return float(self.mark)

    def __init__(self) -> None:
        super().__init__()
        self.mark = self.data[1][30]  # the first row of part 4 of 5


class Forgetful(Remembering):
    """The state of a part depends on what is outside of it."""

    def update(self, job: int, part: Any, params: Any, local: Any = None) -> Any:
        result = super().update(job, part, params, local)
        local["clock"] = time.perf_counter_ns()
        return result


class Popping(Cut):
    left: Any = None

    def update(self, job: int, part: Any, params: Any) -> Any:
        if part[1][0] == self.data_first:
            self.left.pop()
        return super().update(job, part, params)

    def __init__(self) -> None:
        super().__init__()
        self.left, self.data_first = [1], float(self.data[1][0])


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: type(runtime).__name__)
def test_a_difference_is_named_with_round_job_and_part(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.programs.repeatable.CHEAP", 60.0)  # a busy machine may interrupt a short update
    where = r"`update` failed in round 1, job 1 of 3: 0, part 4 of 5: NotRepeatable: "
    with pytest.raises(
        RunError, match=rf"Drawing: {where}two calls .* different results: .*st\.uniform.*check_every=0"
    ):
        st.run(Drawing(), rounds=3, runtime=runtime)
    assert st.run(Drawing(), rounds=3, runtime=runtime, check_every=0).rounds == 3
    with pytest.raises(RunError, match=r"Forgetful: .*round 1, job 1 of 3: \d, part 1 of 5: .*states of the part"):
        st.run(Forgetful(), rounds=3, runtime=runtime)
    with pytest.raises(RunError, match=r"Popping: .*part 1 of 5: .*a second call .* raised IndexError: pop from"):
        st.run(Popping(), rounds=3, runtime=runtime)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: type(runtime).__name__)
def test_later_rounds_are_checked_where_that_is_asked_for(runtime: Any) -> None:
    late: Any = type("Late", (Drawing,), {"first": 6})
    assert st.run(late(), rounds=9, runtime=runtime).rounds == 9  # round 1 is in order
    with pytest.raises(RunError, match=r"Late: `update` failed in round 7, job 1 of 3: .*part 4 of 5: NotRepeatable"):
        st.run(late(), rounds=9, runtime=runtime, check_every=3)


@pytest.mark.parametrize("made", [Cut, Remembering, Own], ids=lambda made: made.__name__)
def test_checks_change_no_number(made: Any) -> None:
    found = {
        bits(st.run(made(), rounds=7, every=3, pipeline=2, check_every=every, runtime=runtime))
        for every in (None, 0, 1, 3)
        for runtime in (st.Serial(), st.Simulated(nodes=3))
    }
    assert len(found) == 1


def test_slow_updates_are_made_once_unless_asked() -> None:
    calls: list[int] = []

    def update(job: int, data: Any, params: Any) -> Any:
        calls.append(job)
        time.sleep(0.06)  # longer than what counts as cheap
        return job

    def made() -> Any:
        return st.program(
            update=update, aggregate=lambda results, params: None, schedule=lambda state: [7], params={"x": np.zeros(1)}
        )

    for every, expected in ((None, 2), (0, 2), (1, 4), (2, 3)):
        calls.clear()
        st.run(made(), rounds=2, check_every=every, runtime=st.Serial())
        assert len(calls) == expected, every
    with pytest.raises(PlanError, match="check_every=-1"):
        st.run(made(), rounds=1, check_every=-1)


def test_the_same_bits() -> None:
    class Plain:
        pass

    nan = float("nan")
    assert same_bits({"a": [nan, (1, np.arange(3))]}, {"a": [nan, (1, np.arange(3))]})
    assert same_bits({1, 2}, {2, 1})
    assert same_bits(np.array([1, None], object), np.array([1, None], object))
    assert same_bits(Plain(), Plain())  # nothing to tell them apart by
    for one, other in (
        (0.0, -0.0), (1, 1.0), (np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(2, np.float32)), ([1], [1, 1]),
        ({"a": 1}, {"b": 1}), ("a", "b"), ({1}, {2}), (np.float64(0.0), np.float64(-0.0)),
    ):  # fmt: skip
        assert not same_bits(one, other)
