"""Data in parts: how they are cut and merged, what nodes get of the parameters, and the order of updates of a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as hs
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import stretto as st
from programs_cut import Cut, Remembering
from programs_made import bits
from rounds_fleet import Stepped
from stretto.errors import PlanError, RunError
from stretto.programs.parts import merged, parts_of
from stretto.runtime.cluster.rounds.patches import PatchLog, apply_patch, changed, copied
from stretto.schedule.pipeline import AGGREGATE, CHOOSE, UPDATE, Pipeline, StageTask


def test_data_are_cut_by_rows() -> None:
    rows = np.arange(10)
    assert [part.tolist() for part in parts_of("P", 3, rows) or ()] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    X = sp.random_array((10, 4), density=0.5, format="csr", rng=0)
    cut = parts_of("P", 2, {"X": X, "y": rows})
    assert cut is not None
    assert [part["X"].shape for part in cut] == [(5, 4), (5, 4)]
    assert np.array_equal(np.vstack([part["X"].toarray() for part in cut]), X.toarray())
    assert parts_of("P", ["a", "b"], None) == ["a", "b"]
    by_columns = parts_of("P", 2, np.asfortranarray(np.arange(20.0).reshape(10, 2)))
    assert by_columns is not None
    assert all(part.flags.f_contiguous for part in by_columns), "as it is once it was sent"
    assert parts_of("P", None, rows) is None


@pytest.mark.parametrize(
    ("parts", "data", "words"),
    [
        ([], None, "parts is empty; give at least one"),
        (11, np.arange(10), "parts=11, and data have 10 rows; give at most 10"),
        (2, (np.zeros(3), np.zeros(4)), "they have 3 and 4 rows; give arrays with the same number of rows"),
        (2, None, "data are None; give an array, a CSR matrix"),
        (2, "text", "data are a str; give an array"),
        (2, sp.csc_array((4, 4)), r"a csc matrix is not; give data.tocsr\(\)"),
        (0, np.arange(3), "parts=0 is less than 1"),
    ],
)
def test_data_that_cannot_be_cut(parts: Any, data: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        parts_of("P", parts, data)


def test_merged_from_the_left() -> None:
    values = [1e16, 1.0, -1e16]
    assert merged(values, None) == (1e16 + 1.0) - 1e16
    assert merged([(1, np.ones(2)), (2, np.ones(2))], None)[1].tolist() == [2.0, 2.0]
    assert merged(["a", "b", "c"], lambda a, b: f"({a}{b})") == "((ab)c)"
    assert merged([None, None], None) is None


SHAPES = r"it returned float64 \[2\] for part 2 and float64 \[1\] for part 1; return the same from every part"
DICT = r"round 1, job 1 of 3: 1: RunError: it returned a dict, which parts cannot be added"


@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(2), Stepped(3, 0)], ids=["serial", "threads", "stepped"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros, rf"failed in round \d, job 2 of 3: 2, part 2 of 5: .*{SHAPES}"),
        (lambda job: {"a": 1}, DICT),
    ],
)
def test_results_that_do_not_add_up(runtime: Any, wrong: Any, words: str) -> None:
    def update(self: Any, job: int, part: Any, params: Any) -> Any:
        return wrong(1 if part[0][0, 0] == first or job == 1 else job)

    program = type("Wrong", (Cut,), {"update": update, "schedule": lambda self, state: [1, 2, 3]})()
    first = program.data[0][0, 0]
    with pytest.raises(RunError, match=words):
        st.run(program, rounds=3, runtime=runtime)


@pytest.mark.parametrize("runtime", [Stepped(2, 0), st.Simulated(nodes=2)], ids=["stepped", "simulated"])
def test_errors_on_nodes_name_round_job_and_part(runtime: Any) -> None:
    def fails(self: Any, job: int, part: Any, params: Any) -> Any:
        if job == 4 and len(part[1]) == 17:
            raise ZeroDivisionError("no rows")
        return Cut.update(self, job, part, params)

    program = type("Bad", (Cut,), {"update": fails, "schedule": lambda self, state: [state.round, state.round + 1]})(3)
    with pytest.raises(
        RunError, match=r"Bad: `update` failed in round 3, job 2 of 2: 4, part 2 of 3: ZeroDiv"
    ) as caught:
        st.run(program, rounds=9, pipeline=2, runtime=runtime)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "in fails" in caught.value.__cause__.__notes__[0], "its traceback on the node is a note"

    unsent = type("Unsent", (Cut,), {"update": lambda self, job, part, params: (i for i in range(3))})()
    with pytest.raises(RunError, match=r"round 1, job 1 of 3: \d, part 1 of 5: NotPicklable: it returned a generator"):
        st.run(unsent, rounds=2, runtime=runtime)
    jobs = type("Jobs", (Cut,), {"schedule": lambda self, state: [lambda: 0]})()
    with pytest.raises(RunError, match=r"jobs of round 1 cannot be pickled to be sent to nodes: .*have the schedule"):
        st.run(jobs, rounds=2, runtime=runtime)
    writes = type("Writes", (Cut,), {"update": lambda self, job, part, params: params["beta"].fill(1.0)})()
    with pytest.raises(RunError, match="`update` may not write params: return the result"):
        st.run(writes, rounds=2, runtime=runtime)
    lazy = type("Lazy", (Remembering,), {"local": lambda self, part: 1 // 0})()
    with pytest.raises(RunError, match="Lazy: `local` failed for part 1: ZeroDivisionError"):
        st.run(lazy, rounds=2, runtime=runtime)
    locked = type("Locked", (Remembering,), {"local": lambda self, part: {"mean": 0.0, "rounds": 0, "f": lambda: 0}})()
    with pytest.raises(RunError, match=r"`local` failed in round 16, part 1: RunError: a dict cannot be pickled"):
        st.run(locked, rounds=20, runtime=runtime)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parts": None, "merge": max}, "`merge` is for data that are cut; give parts="),
        ({"merge": 3}, "`merge` is 3, which cannot be called"),
        ({"local": lambda part: 0}, r"`update` takes .* and will be given \(job, part, params, local\)"),
        ({"schedule": st.schedule.rotation(3)}, "wait for each other within a round"),
    ],
)
def test_programs_that_are_refused(changes: dict[str, Any], words: str) -> None:
    program = Cut()
    for name, value in changes.items():
        setattr(program, name, value)
    with pytest.raises(PlanError, match=words):
        st.run(program, rounds=1)


def test_functions_and_parts_without_a_class() -> None:
    def start() -> Any:
        return st.program(
            update=lambda job, part, params: (part[part % 3 == job].sum(), 1),
            aggregate=lambda results, params: params["sums"].__setitem__(slice(None), [total for total, _ in results]),
            schedule=lambda state: range(3) if state.round == 1 else None,
            data=np.arange(20.0),
            parts=4,
            params={"sums": np.zeros(3)},
        )

    runtimes: list[Any] = [st.Serial(), st.Simulated(nodes=3), Stepped(2, 1)]
    found = {bits(st.run(start(), runtime=runtime)) for runtime in runtimes}
    assert len(found) == 1
    assert st.run(start()).params["sums"].tolist() == [63.0, 70.0, 57.0]


# -- parameters as patches -------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(data=hs.data(), seed=hs.integers(0, 2**32), steps=hs.integers(1, 8))
def test_patches_lead_from_any_version_to_any_later_one(data: Any, seed: int, steps: int) -> None:
    chance = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        "a": chance.random(40),
        "f": np.asfortranarray(chance.random((6, 5))),
        "c": chance.random(7) + 1j,
        "n": np.array(0.0),
        "t": np.zeros(5, "S3"),
    }
    log, versions = PatchLog(arrays), [{name: array.copy(order="K") for name, array in arrays.items()}]
    for _ in range(steps):
        for name, array in arrays.items():
            if chance.random() < 0.5 and array.ndim:
                touched = chance.random(array.shape) < chance.choice([0.05, 0.9])
                array[touched] = b"x" if name == "t" else chance.choice([np.nan, -0.0, chance.random()])
        if log.advance(arrays) == len(versions):
            versions.append({name: array.copy(order="K") for name, array in arrays.items()})
    assert log.stamp == len(versions) - 1
    first = data.draw(hs.integers(0, log.stamp))
    log.trim(first)
    for has in (None, *range(log.stamp + 1)):
        for to in range(max(first, has or 0), log.stamp + 1):
            base, patches = log.since(has, to)
            found = base if base is not None else {name: copied(array) for name, array in versions[has or 0].items()}
            for patch in patches:
                apply_patch(found, patch)
            for name, array in versions[to].items():
                assert found[name].tobytes() == array.tobytes()
                assert found[name].flags.f_contiguous == array.flags.f_contiguous


def test_bytes_decide_what_changed() -> None:
    assert changed(np.array([0.0, np.nan, 1.0]), np.array([-0.0, np.nan, 1.0])).tolist() == [0]


def test_nodes_get_what_changed() -> None:
    """One coordinate of 100,000 changes in a round: a round sends far less than the parameters are."""

    def start() -> Any:
        return st.program(
            update=lambda job, data, params: (job, params["x"][job] + 1.0),
            aggregate=lambda results, params: [params["x"].__setitem__(job, value) for job, value in results] and None,
            schedule=st.schedule.cyclic(width=2),
            params={"x": np.zeros(100_000)},
        )

    cluster = st.Simulated(nodes=2, link="1Mbit", latency=0.0)
    seconds = [look.seconds for look in st.run(start(), rounds=20, runtime=cluster).history]
    assert seconds[1] > 6.0, "the first round sends 0.8 MB to each"
    assert seconds[-1] - seconds[1] < 0.2 * seconds[1]


# -- the pipeline, where the updates of a part are ordered -----------------------------------------------------------


class OrderedRounds(RuleBasedStateMachine):
    """Any order of taking and ending tasks: updates of a part one after another, none past a round that is saved."""

    @initialize(depth=hs.integers(1, 4), parts=hs.integers(1, 3), every=hs.none() | hs.integers(1, 4))
    def start(self, depth: int, parts: int, every: int | None) -> None:
        self.parts, self.every = parts, every
        self.pipeline = Pipeline(depth, 12, ordered=parts, save_every=every)
        self.last: dict[int, tuple[int, int]] = {}
        self.ended: set[StageTask] = set()

    @rule()
    def take(self) -> None:
        task = self.pipeline.take()
        if task is None:
            return
        assert task not in self.ended
        if task.stage == UPDATE:
            part = task.job % self.parts
            others = [one for one in self.pipeline.running if one.stage == UPDATE and one != task]
            assert all(one.job % self.parts != part for one in others), "one update of a part at a time"
            assert self.last.get(part, (0, 0)) < (task.round, task.job), "in serial order"
            self.last[part] = task.round, task.job
            if self.every:
                assert self.pipeline.done >= (task.round - 1) // self.every * self.every
        if task.stage == AGGREGATE and self.every and task.round % self.every == 0:
            later = [one for one in self.ended | self.pipeline.running if one.stage == UPDATE]
            assert all(one.round <= task.round for one in later), "states are those after this round"

    @precondition(lambda self: bool(self.pipeline.running))
    @rule(data=hs.data())
    def end(self, data: Any) -> None:
        task = data.draw(hs.sampled_from(sorted(self.pipeline.running)))
        self.ended.add(task)
        if task.stage == CHOOSE:
            self.pipeline.chosen(task, self.parts * data.draw(hs.integers(1, 3)))
        elif task.stage == UPDATE:
            self.pipeline.updated(task)
        else:
            self.pipeline.aggregated(task)

    @invariant()
    def never_stuck(self) -> None:
        if hasattr(self, "pipeline") and not self.pipeline.running and not self.pipeline.ready:
            assert self.pipeline.done == 12


TestOrderedRounds = OrderedRounds.TestCase
TestOrderedRounds.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
