"""`TableRun` by itself: driven by hypothesis against a plain account of what was said, and its rules one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stretto.runtime.cluster.hosts.failure_detector import STARTS, FailureDetector, Losses
from stretto.runtime.tables.job import FAR, TableEvaluation
from stretto.runtime.tables.run.cut_parts import CutParts
from stretto.runtime.tables.run.evaluations import Evaluate, Evaluations, KeepClock
from stretto.runtime.tables.run.table_run import TableRun
from stretto.runtime.tables.run.times import Period, TimePoints

WORKERS, NODES = 3, 2
KINDS = ("worker", "node", "shard")


@dataclass
class Kept:
    """A worker's part."""

    clock: int
    life: int


class Course(RuleBasedStateMachine):
    """Workers tick, parts of cuts arrive in any order, twice and late, and nodes are lost at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluations = Evaluations(every=2, exact=True)
        self.run = TableRun(WORKERS, NODES, evaluations=self.evaluations)
        self.now = 0.0
        self.evaluate(self.run.begin(0.0))
        self.clocks = [0] * WORKERS
        self.parts: dict[int, set[tuple[str, int]]] = {}  # of this life
        self.drained: set[int] = set()
        self.life, self.last = 0, 0

    def evaluate(self, due: list[Evaluate]) -> None:
        for at in due:
            self.run.evaluated(TableEvaluation(at.clock, self.now, 0, float(at.clock)), enough=False)

    @rule(worker=st.integers(0, WORKERS - 1))
    def tick(self, worker: int) -> None:
        self.now += 1.0
        if self.clocks[worker] > min(self.clocks) + 2:
            return
        self.clocks[worker] += 1
        before = self.run.low
        assert self.run.moved(worker, self.clocks[worker], self.clocks[worker]) == (min(self.clocks) > before)
        self.evaluate(self.run.closed(self.run.low))

    @rule(
        clock=st.integers(1, 12), kind=st.sampled_from(["worker", "node", "shard"]), number=st.integers(0, WORKERS - 1)
    )
    def part(self, clock: int, kind: str, number: int) -> None:
        """Only what can be: a part of a clock that was reached, and of shards when all workers had."""
        self.now += 1.0
        reached = self.clocks[number] if kind == "worker" else min(self.clocks)
        if clock > reached or (kind != "worker" and number >= NODES):
            return
        before = {at for at in self.parts if self.whole(at)}
        self.parts.setdefault(clock, set()).add((kind, number))
        if kind == "worker":
            cut = self.run.worker_part(clock, number, Kept(clock, self.life))
        elif kind == "node":
            cut = self.run.node_part(clock, number, {"life": self.life})
        else:
            cut = self.run.shard_part(clock, number, {"life": self.life, "clock": clock}, self.now, 10)
        complete = self.whole(clock) and clock not in before and clock > self.last
        assert (cut is not None) == complete
        if cut is not None:
            assert cut.clock == clock
            assert (cut.nbytes, sorted(cut.shards), len(cut.workers)) == (10 * NODES, [0, 1], WORKERS)
            self.run.keep(cut)
            self.last = clock

    def whole(self, clock: int) -> bool:
        return len(self.parts.get(clock, ())) == WORKERS + 2 * NODES

    @rule()
    def lose(self) -> None:
        self.now += 1.0
        before = list(self.run.history)
        self.evaluate(self.run.restart(self.now))
        self.life += 1
        assert self.run.incarnation == self.life
        assert self.run.last.clock == self.run.low == self.run.most == self.last
        kept = [look for look in before if look.clock <= self.last]
        assert self.run.history[: len(kept)] == kept
        self.clocks = [self.last] * WORKERS
        self.parts.clear()
        self.drained.clear()

    @invariant()
    def evaluations_are_those_of_this_life(self) -> None:
        clocks = [look.clock for look in self.run.history]
        assert clocks == list(range(0, min(self.clocks) + 1, 2))
        assert [look.seconds for look in self.run.history] == sorted(look.seconds for look in self.run.history)

    @invariant()
    def the_last_cut_is_of_one_life(self) -> None:
        cut = self.run.last
        lives = {part.life for part in cut.workers.values()} | {part["life"] for part in cut.residuals.values()}
        assert len(lives | {part["life"] for part in cut.shards.values()}) <= 1
        assert cut.clock == self.last

    @precondition(lambda self: min(self.clocks) > 0)
    @rule(node=st.integers(0, NODES - 1))
    def end(self, node: int) -> None:
        """Shards are drained one by one; a restart begins again."""
        self.drained.add(node)
        assert self.run.drained(node) == (len(self.drained) == NODES)


Course.TestCase.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
TestCourse = Course.TestCase


def complete(run: TableRun, clock: int, now: float = 0.0) -> CutParts:
    """Every part of a cut."""
    for worker in range(run.workers):
        assert run.worker_part(clock, worker, Kept(clock, 0)) is None
    cut = None
    for node in range(run.nodes):
        assert run.node_part(clock, node, {}) is None
        assert cut is None
        cut = run.shard_part(clock, node, {}, now)
    assert cut is not None
    return cut


def test_an_older_cut_does_not_take_the_place_of_a_newer_one() -> None:
    run = TableRun(1, 1)
    run.begin(0.0)
    run.worker_part(5, 0, Kept(5, 0))
    run.node_part(5, 0, {})
    run.keep(complete(run, 10))
    assert run.shard_part(5, 0, {}, 1.0) is None
    assert run.last.clock == 10


def test_cuts_by_time_are_planned_where_nobody_is() -> None:
    run = TableRun(2, 1, interval=lambda saving: 10 * saving, save_seconds=1.0)
    run.begin(0.0)
    run.moved(0, 3, 3)
    assert run.due_in(4.0) == 6.0
    assert run.cut_due(9.0) is None
    assert run.cut_due(10.0) == 4
    assert run.cut_due(20.0) is None  # one at a time
    run.keep(complete(run, 4))
    run.saved(20.0, 2.0)
    assert run.due_in(21.0) == 19.0
    assert run.save_due(40.0)
    assert not run.save_due(39.0)


def test_a_cut_is_planned_as_far_ahead_as_telling_takes() -> None:
    run = TableRun(2, 2, members=2, interval=lambda saving: 1.0, ahead=0.3)
    run.begin(0.0)
    run.moved(0, 10, 12)
    run.moved(1, 10, 11)
    assert run.cut_due(1.0) == 12 + 2 + 3  # a clock takes a tenth of a second
    run.refused(17)
    assert run.planned is None
    assert run.cut_due(1.0, at_once=True) == 17
    run.interrupt(17)
    assert run.cut_due(9.0, at_once=True) is None
    assert run.stopped == "interrupted"


def test_the_cut_of_the_end_comes_after_the_last_clock() -> None:
    run = TableRun(2, 1)
    run.begin(0.0)
    run.worker_part(FAR, 0, Kept(7, 0))
    run.worker_part(FAR, 1, Kept(5, 0))
    run.node_part(FAR, 0, {})
    cut = run.shard_part(FAR, 0, {}, 1.0)
    assert cut is not None
    assert cut.clock == 8


def test_the_first_reason_to_stop_counts_and_enough_is_enough() -> None:
    run = TableRun(1, 1, evaluations=Evaluations(every=1))
    run.begin(0.0)
    run.moved(0, 1, 1)
    run.evaluated(TableEvaluation(1, 1.0, 0, 0.0), enough=True)
    assert run.stopped == "until"
    run.interrupt()
    assert run.stopped == "until"
    assert (run.closed(2), run.ended(), run.due_at) == ([], [], math.inf)


def test_a_restart_evaluates_the_clock_that_it_goes_back_to() -> None:
    """The cut was complete, but the node was gone before the tables could be evaluated."""
    run = TableRun(1, 1, evaluations=Evaluations(every=2, exact=True))
    for due in run.begin(0.0):
        run.evaluated(TableEvaluation(due.clock, 0.0, 0, 0.0), enough=False)
    run.moved(0, 2, 2)
    assert not run.missed(2)
    assert run.missed(3)
    run.keep(complete(run, 2))
    assert run.restart(5.0) == [Evaluate(2)]


# -- evaluations by time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "seconds"),
    [(Period(0.1), [0.1, 0.2, 0.3, 0.4, 0.5]), (TimePoints((0.1, 0.35)), [0.1, 0.35, math.inf, math.inf, math.inf])],
)
def test_seconds_that_are_due(times: Any, seconds: list[float]) -> None:
    now, found = 0.0, []
    for _ in seconds:
        now = times.after(now)
        found.append(now)
    assert found == pytest.approx(seconds)


def test_by_time_the_tables_are_evaluated_as_they_are() -> None:
    due = Evaluations(every=None, seconds=Period(1.0))
    assert due.begin(0, 0.0) == [Evaluate(0)]
    due.made(TableEvaluation(0, 0.0, 0, 0.0))
    assert due.time(0.5, 0, 3) == []
    assert due.time(1.0, 0, 3) == [Evaluate(0)]  # the slowest worker is where it was
    due.made(TableEvaluation(0, 1.0, 0, 0.0))
    assert due.closed(4, 4) == []
    assert due.last(0) == [Evaluate(0)]  # the tables may be others by now
    assert due.time(5.5, FAR, FAR) == []
    assert due.due_at == 6.0


def test_by_time_under_an_exact_rule_the_next_clock_is_evaluated() -> None:
    due = Evaluations(every=None, exact=True, seconds=Period(1.0))
    due.begin(0, 0.0)
    due.made(TableEvaluation(0, 0.0, 0, 0.0))
    assert due.time(1.2, 4, 5) == [KeepClock(6)]
    assert due.closed(5, 7) == []
    assert due.closed(7, 7) == [Evaluate(6, past=True)]
    assert due.time(2.5, 7, 7) == [KeepClock(8)]
    due.refused(8)  # somebody was there before
    assert due.time(2.6, 7, 9) == [KeepClock(10)]
    assert due.begin(7, 2.7, due.history) == []  # a node was lost before the clock was reached: due once more
    assert due.time(2.7, 7, 7) == [KeepClock(8)]


# -- losses -----------------------------------------------------------------------------------------------------------


def test_a_job_gives_up_when_losses_get_it_nowhere() -> None:
    losses = Losses()
    run = TableRun(1, 1, losses=losses)
    run.begin(0.0)
    for host in range(STARTS - 1):
        assert losses.lost(host) == ""
        losses.began()
    run.moved(0, 1, 1)  # it got further
    for host in range(STARTS - 1):
        assert losses.lost(host) == ""
        losses.began()
        run.restart(1.0)
        run.moved(0, 1, 1)  # but not beyond where it was
    assert "got no further" in losses.lost(0)
    early = Losses()
    assert [early.lost(3) for _ in range(STARTS - 1)] == [""] * (STARTS - 1)
    assert "before it had begun" in early.lost(3)
    assert "restarts=1" in [Losses(1).lost(0), (two := Losses(1)).lost(0), two.lost(1)][-1]


def test_reports_of_silence_are_asked_again() -> None:
    detector = FailureDetector(patience=5.0, grace=1.0)
    detector.silent(10.0, 0, 2, 5.0)
    detector.silent(10.0, 1, 2, 5.1)
    assert detector.judge(10.9, lambda by, whom: 9.0, ()) is None
    assert detector.judge(11.0, lambda by, whom: 1.0 if by == 0 else 6.0, ()) == (2, 1, 6.0)
    detector.begin()
    assert detector.judge(20.0, lambda by, whom: 9.0, ()) is None
