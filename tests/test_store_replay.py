"""The replay checker: an honest recording passes, and each way of breaking a promise is found and reported."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import pytest

from stretto.comm.messages import Rows, Update
from stretto.comm.policy import Eager, Managed, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.errors import PlanError
from stretto.store.layout import Layout, TableSpec
from stretto.store.recording import Recording
from stretto.store.shard.functions import adagrad, adarevision, add
from stretto.testing import ReplayError, check_replay

ROWS = 3


def layout(
    rule: Rule | None = None, policy: Policy | None = None, apply: Any = add, workers: int = 2, nodes: int = 2
) -> Layout:
    tables = (TableSpec("weights", apply, rows=ROWS, cols=2),)
    return Layout(tables, nodes, workers, rule or SSP(1), policy or Eager(), witness=True)


class Told:
    """A recording written line by line: every worker adds to every row once in each clock."""

    def __init__(self, made: Layout) -> None:
        self.made = made
        self.recording = Recording(made, record="full")
        self.clock = [0] * made.workers
        self.now = 0.0
        self.keys = np.arange(ROWS)

    def add(self, worker: int, keys: Any = None, delta: float = 1.0) -> None:
        where = self.keys if keys is None else np.array(keys)
        deltas = np.full((len(where), 2), delta, np.float32)
        self.recording.added(self.at(), worker, self.clock[worker], 0, where, deltas)

    def tick(self, worker: int) -> None:
        self.clock[worker] += 1
        self.recording.ticked(self.at(), worker, self.clock[worker])

    def read(self, worker: int, *seen: int, value: float | None = None, keys: Any = None) -> None:
        """A read whose rows all hold so many adds of each worker (each of 1.0)."""
        where = self.keys if keys is None else np.array(keys)
        witness = np.tile(np.array(seen, np.int32), (len(where), 1))
        values = np.full((len(where), 2), sum(seen) if value is None else value, np.float32)
        self.recording.read(self.at(), worker, self.clock[worker], 0, where, witness, values)

    def restart(self, clock: int) -> None:
        self.clock = [clock] * len(self.clock)
        self.recording.restarted(self.at(), clock, len(self.recording.restarts) + 1)

    def end(self, *seen: int, value: float | None = None) -> Recording:
        witness = np.tile(np.array(seen, np.int32), (ROWS, 1))
        values = np.full((ROWS, 2), sum(seen) if value is None else value, np.float32)
        self.recording.final[0], self.recording.final_values[0] = (self.keys, witness), values
        return self.recording

    def at(self) -> float:
        self.now += 0.001
        return self.now


def kinds(recording: Recording) -> set[str]:
    return set(check_replay(recording, raises=False).broken)


def two_clocks(rule: Rule, **given: Any) -> Told:
    """Two workers, two clocks each, in step, nothing read yet."""
    told = Told(layout(rule, **given))
    for _ in range(2):
        for worker in range(2):
            told.add(worker)
        for worker in range(2):
            told.tick(worker)
    return told


# --- honest recordings ------------------------------------------------------------------------------------------------


def test_an_honest_recording_says_what_was_proven() -> None:
    told = two_clocks(SSP(1))
    told.read(0, 2, 1)
    told.read(1, 2, 2)
    report = check_replay(told.end(2, 2))
    assert report.ok
    assert report.oldest == 1
    assert report.staleness.tolist() == [ROWS, ROWS]
    text = str(report)
    assert (
        "SSP(1) kept: 2 reads of 6 rows by 2 workers in 2 clocks; the oldest was 1 clock behind, the bound is 1" in text
    )
    assert "nothing lost or doubled: 4 adds, all in the final tables" in text
    assert "values agree with their adds in 6 rows read and 3 final rows" in text


def test_own_adds_need_not_be_sent_to_be_seen() -> None:
    told = Told(layout(SSP(0)))
    told.add(0)
    told.read(0, 1, 0)
    told.read(1, 0, 0)
    told.read(1, 1, 0)  # fresher than needed
    check_replay(told.end(1, 0))


@pytest.mark.parametrize("rule", [BSP(), SSP(0), SSP(3), ASP()])
def test_rows_nobody_added_to_can_be_read(rule: Rule) -> None:
    told = Told(layout(rule))
    told.read(0, 0, 0)
    told.recording.final[0] = np.zeros(0, np.int64), np.zeros((0, 2), np.int32)
    told.recording.final_values[0] = np.zeros((0, 2), np.float32)
    assert check_replay(told.recording).ok


def test_counts_alone_are_not_enough() -> None:
    with pytest.raises(PlanError, match="run with record='full'"):
        check_replay(Recording(layout()))


def test_a_key_twice_in_one_call_is_two_adds() -> None:
    told = Told(layout(SSP(0)))
    told.add(0, [1, 1])
    told.read(0, 2, 0, keys=[1])
    recording = told.recording
    recording.final[0] = np.array([1]), np.array([[2, 0]], np.int32)
    recording.final_values[0] = np.full((1, 2), 2, np.float32)
    check_replay(recording)


# --- reads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "least"), [(BSP(), 2), (SSP(0), 2), (SSP(1), 1), (SSP(2), 0), (SSP(3), 0), (ASP(), 0)]
)
def test_the_floor_of_every_rule(rule: Rule, least: int) -> None:
    """At clock 2 the other worker's adds of clocks ≤ 2 − s − 1 must be there; one fewer is one too few."""
    for shown in range(3):
        told = two_clocks(rule)
        told.read(0, 2, shown)
        broken = kinds(told.end(2, 2))
        assert broken == ({"too old"} if shown < least else set()), shown


def test_a_floor_counts_adds_that_are_made_later() -> None:
    """Worker 1 is behind: worker 0, past the bound, must not read what worker 1 will still add to in an old clock."""
    told = Told(layout(SSP(0)))
    told.tick(0)
    told.read(0, 0, 0)
    assert check_replay(told.recording, raises=False).ok
    told.add(1, [1])
    report = check_replay(told.recording, raises=False)
    assert report.broken == {"too old": 1}
    assert "row 1 of table 'weights'" in str(report)
    assert "misses one of clock 0, which SSP(0) requires" in str(report)


def test_bsp_shows_nothing_of_the_open_clock() -> None:
    told = Told(layout(BSP()))
    told.add(1)
    told.read(0, 0, 1)
    assert kinds(told.end(0, 1)) == {"too new"}
    assert kinds(_same_with(SSP(0))) == set()


def _same_with(rule: Rule) -> Recording:
    told = Told(layout(rule))
    told.add(1)
    told.read(0, 0, 1)
    return told.end(0, 1)


def test_own_adds_that_are_missing() -> None:
    told = Told(layout(SSP(2)))
    told.add(0)
    told.add(0)
    told.read(0, 1, 0)
    assert kinds(told.end(2, 0)) == {"own"}


def test_server_functions_hide_own_adds() -> None:
    told = Told(layout(BSP(), apply=adagrad(0.1)))
    told.add(0)
    told.read(0, 0, 0)
    assert kinds(told.end(1, 0)) == set()
    told.read(0, 1, 0)
    assert kinds(told.recording) == {"too new"}


def test_more_adds_than_were_made() -> None:
    told = two_clocks(SSP(3))
    told.read(0, 2, 3)
    assert kinds(told.end(2, 2)) == {"doubled"}


def test_adds_before_they_were_made() -> None:
    told = Told(layout(ASP()))
    told.read(0, 0, 1)
    told.add(1)
    assert kinds(told.end(0, 1)) == {"future"}


def test_reads_that_go_back() -> None:
    told = two_clocks(SSP(3))
    told.read(0, 2, 2)
    told.read(1, 0, 2)  # another worker may see less
    told.read(0, 2, 1)
    assert kinds(told.end(2, 2)) == {"back"}


def test_a_right_count_with_a_wrong_value() -> None:
    told = two_clocks(SSP(1))
    told.read(0, 2, 2, value=3)
    assert kinds(told.end(2, 2)) == {"value"}


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seen", "kind"), [((2, 1), {"lost"}), ((3, 2), {"doubled"}), ((1, 3), {"lost", "doubled"})])
def test_lost_and_doubled(seen: tuple[int, int], kind: set[str]) -> None:
    assert kinds(two_clocks(SSP(1)).end(*seen)) == kind


def test_a_lost_add_and_a_doubled_one_do_not_hide_each_other() -> None:
    told = Told(layout(SSP(1)))
    told.add(0, delta=1)
    told.add(0, delta=5)
    assert kinds(told.end(2, 0, value=6)) == set()
    assert kinds(told.end(2, 0, value=10)) == {"value"}


def test_a_row_that_no_shard_has() -> None:
    told = two_clocks(SSP(1))
    recording = told.end(2, 2)
    keys, witness = recording.final[0]
    recording.final[0] = keys[1:], witness[1:]
    recording.final_values[0] = recording.final_values[0][1:]
    assert kinds(recording) == {"lost"}


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_a_restart_undoes_later_clocks() -> None:
    told = two_clocks(SSP(1))
    told.restart(1)
    told.read(0, 1, 1)
    told.add(0)
    told.tick(0)
    told.add(1)
    told.tick(1)
    assert kinds(told.end(2, 2)) == set()
    assert kinds(told.end(3, 3)) == {"doubled"}


@pytest.mark.parametrize("shown", [0, 2])
def test_a_checkpoint_that_misses_an_add_or_has_one_too_many(shown: int) -> None:
    told = two_clocks(SSP(0))
    told.restart(1)
    told.read(0, 1, shown)
    found = kinds(told.end(1, 1))
    assert found == ({"too old", "own"} & found or {"too old"} if shown == 0 else {"doubled"})


def test_two_restarts_go_back_to_the_earlier_clock() -> None:
    told = two_clocks(SSP(0))
    told.restart(2)
    told.restart(1)
    told.read(0, 1, 1)
    report = check_replay(told.end(1, 1))
    assert "2 restarts" in str(report)


def test_a_restart_to_a_clock_nobody_reached() -> None:
    told = two_clocks(SSP(0))
    told.restart(3)
    told.read(1, 2, 2)
    assert kinds(told.end(2, 2)) == {"clock"}


# --- clocks and the wire ----------------------------------------------------------------------------------------------


def test_a_tick_that_is_left_out() -> None:
    told = Told(layout(SSP(0)))
    told.clock[0] = 1
    told.tick(0)
    assert kinds(told.recording) == {"clock"}


def test_an_event_in_another_clock_than_its_worker() -> None:
    told = Told(layout(SSP(5)))
    told.recording.read(0.0, 0, 2, 0, told.keys, np.zeros((ROWS, 2), np.int32), np.zeros((ROWS, 2), np.float32))
    assert kinds(told.recording) == {"clock"}


@pytest.mark.parametrize(
    ("sequence", "words"), [((1, 2, 2, 3), "again"), ((1, 3, 2), "where number 2 was next"), ((2,), "number 1")]
)
def test_messages_out_of_order(sequence: tuple[int, ...], words: str) -> None:
    told = Told(layout())
    for number in (1, 2, 3):
        told.recording.delivered(told.at(), 1, 0, 0, number)
    assert kinds(told.recording) == set()
    for number in sequence:
        told.recording.delivered(told.at(), 0, 1, 0, number)
    report = check_replay(told.recording, raises=False)
    assert set(report.broken) == {"order"}
    assert words in str(report)


def test_a_message_of_an_earlier_life() -> None:
    told = Told(layout())
    told.recording.delivered(told.at(), 0, 1, 0, 1)
    told.restart(0)
    told.recording.delivered(told.at(), 0, 1, 0, 2)
    assert kinds(told.recording) == {"order"}


def budget(times: list[float], sizes: list[int], reasons: str = "clock", links: Any = None) -> set[str]:
    policy = Managed(2000.0, links=links or {})
    told = Told(layout(policy=policy))
    for now, size in zip(times, sizes, strict=True):
        told.recording.sent(now, 0, 1, "updates", reasons, size, None)
    return kinds(told.recording)


def test_budgets() -> None:
    """1000 bytes/s: after a message of 100 bytes the next goes a tenth of a second later."""
    assert budget([0.0, 0.1, 0.2, 1.0], [100, 100, 500, 900]) == set()
    assert budget([0.0, 0.09], [100, 100]) == {"budget"}
    assert budget([0.0, 0.1, 0.15, 0.2], [100, 50, 60, 100]) == {"budget"}
    assert budget([0.0, 0.0, 0.0], [100, 100, 100], reasons="again") == set()
    assert budget([0.0, 0.1], [100, 100], links={(0, 1): 1000.0}) == {"budget"}
    assert budget([0.0, 0.1], [100, 100], links={(1, 0): 1000.0}) == set()


def test_the_words_of_a_budget() -> None:
    told = Told(layout(policy=Managed(2000.0)))
    for now in (0.0, 1.0, 1.05):
        told.recording.sent(now, 0, 1, "rows", "clock", 100, None)
    with pytest.raises(
        ReplayError, match=r"node 0 sent rows: 200 bytes in 0\.05 s .* allow 50 and the last message of 100"
    ):
        check_replay(told.recording)


# --- adarevision ------------------------------------------------------------------------------------------------------


def revised(change: Callable[[dict[str, Any]], None] | None = None) -> set[str]:
    """Two nodes read version 0 of a row and change it; the second change is revised. Values by hand, rate 1."""
    told = Told(layout(SSP(1), apply=adarevision(1.0)))
    g = np.array([[2.0, 0.5]], np.float32)
    facts: dict[str, Any] = {"old": np.zeros((1, 2)), "versions": [0, 0], "sent": np.zeros((1, 2))}
    if change is not None:
        change(facts)
    key, none = np.array([1]), np.zeros((1, 2), np.int32)
    version = np.zeros(1, np.int32)
    for node in range(2):
        rows = Rows(0, 0, key, facts["sent"].astype(np.float32), 0, 0, 0, True, version, None, none)
        told.recording.given_rows(told.at(), node, rows)
    zeros, ones = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
    start: Any = (zeros, zeros, ones, ones, np.float32(1))
    w, total, z, most, rate = start
    for node in range(2):
        witness = np.eye(2, dtype=np.int32)[[node]]
        told.add(node, key, delta=0.0)
        versions = np.array([facts["versions"][node]], np.int32)
        told.recording.given_update(told.at(), 0, Update(0, node, 1, 0, -1, key, g, 0, False, versions, witness))
        b = total - (facts["old"].astype(np.float32) if node else zeros)
        first = rate / np.sqrt(most)
        z = z + (g * g + (g * b + g * b))
        most = np.maximum(most, z)
        then = rate / np.sqrt(most)
        w = w + ((first - then) * b - then * g)
        total = total + g
    told.recording.final[0] = key, np.ones((1, 2), np.int32)
    told.recording.final_values[0] = w.astype(np.float32)
    return kinds(told.recording)


def test_adarevision_is_worked_out_anew() -> None:
    assert revised() == set()
    assert revised(lambda facts: facts.update(old=np.full((1, 2), 2.0))) == {"version"}
    assert revised(lambda facts: facts.update(versions=[0, 1])) == {"version"}
    assert revised(lambda facts: facts.update(sent=np.ones((1, 2)))) == {"version"}


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", [25, pytest.param(125, marks=pytest.mark.slow)])
def test_many_reads(clocks: int) -> None:
    """Sixteen workers in step, 800 reads of four rows in a clock: seconds, not minutes; and one bad read is found."""
    workers, rng = 16, np.random.default_rng(5)
    made = Layout((TableSpec("weights", add, rows=500, cols=1),), 4, workers, SSP(1), witness=True)
    recording = Recording(made, record="full")
    counts = np.zeros((500, workers), np.int32)
    for clock in range(clocks):
        closed = counts.copy()
        for worker in range(workers):
            for _ in range(50):
                keys = rng.integers(0, 500, 4)
                witness = closed[keys]
                witness[:, worker] = counts[keys, worker]
                values = witness.sum(axis=1, dtype=np.float32)[:, None]
                recording.read(clock * 1.0, worker, clock, 0, keys, witness, values)
            keys = rng.integers(0, 500, 20)
            recording.added(clock + 0.5, worker, clock, 0, keys, np.ones((20, 1), np.float32))
            np.add.at(counts[:, worker], keys, 1)
        for worker in range(workers):
            recording.ticked(clock + 0.9, worker, clock + 1)
    recording.final[0] = np.arange(500), counts
    recording.final_values[0] = counts.sum(axis=1, dtype=np.float32)[:, None]
    began = process_time()
    report = check_replay(recording)
    assert process_time() - began < 20 * clocks / 125
    assert report.numbers["reads"] == 800 * clocks
    last = recording.reads[-1]
    late = last.seen.copy()
    late[0, (last.worker + 1) % workers] += 1
    recording.reads[-1] = last._replace(seen=late)
    assert kinds(recording) == {"doubled"}
