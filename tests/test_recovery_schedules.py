"""Hundreds of random schedules of recovery, each compared with a run that lost no node; and planted bugs, each of which
the schedules must catch.

`make test` runs 300 from a fresh seed, `make test-full` the first ten thousand as well. A schedule that fails names its
seed and the command that runs it again; STRETTO_SCHEDULES=n makes n the fresh seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stretto.consistency.rules import BSP, SSP
from stretto.runtime.cluster.hosts.failure_detector import FailureDetector, Losses
from stretto.runtime.simulated.tables.driver import SimulatedDriver
from stretto.runtime.tables.run.cut_parts import CutParts
from stretto.runtime.tables.run.evaluations import Evaluations
from stretto.runtime.tables.run.node_cuts import NodeCuts
from stretto.runtime.tables.run.table_run import TableRun
from stretto.testing.recovery import STAGES, draw_base, draw_losses, main, run_seed
from stretto.testing.recovery import Stages as Times
from stretto.testing.schedules import ScheduleFailed

FRESH = int(os.environ.get("STRETTO_SCHEDULES", 1_000_000 + int.from_bytes(os.urandom(4), "big")))
BLOCK = 30


@pytest.mark.parametrize("block", range(10))
def test_three_hundred_fresh_schedules(block: int) -> None:
    first = FRESH + block * BLOCK
    print(f"python -m stretto.testing.recovery --first {first} --count {BLOCK}")
    restarts = [run_seed(seed) for seed in range(first, first + BLOCK)]
    assert sum(map(bool, restarts)) > BLOCK / 2


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_ten_thousand_schedules(block: int) -> None:
    for seed in range(block * 250, (block + 1) * 250):
        run_seed(seed)


def test_draws_cover_every_stage() -> None:
    times = Times([(1.0, 2.0), (3.0, 4.0)], [(7.0, 8.0)], finished=5.0, gathered=6.0)
    seen: Counter[str] = Counter()
    for seed in range(300):
        base = draw_base(seed)
        faults = draw_losses(base, times)
        seen.update(type(fault).__name__ for fault in (*base.faults[:-1], *faults))
        at = float(faults[0].at)
        seen["before"] += at < 2.0
        seen["cut"] += 1.0 <= at <= 2.0 or 3.0 <= at <= 4.0
        seen["gathering"] += 5.0 <= at <= 6.0
        seen["before an evaluation"] += at >= 7.0
        seen["several"] += len(faults) > 1
        seen[type(base.rule).__name__] += 1
        seen[type(base.policy).__name__] += 1
        seen[f"{base.cluster['nodes']} nodes"] += 1
        seen[f"every {base.checkpoint}"] += 1
    expected = ["Crash", "Pause", "Reset", "before", "cut", "before an evaluation", "gathering", "several"]
    expected += ["BSP", "SSP", "Eager", "Lazy"]
    expected += ["Managed", "1 nodes", "2 nodes", "3 nodes", "4 nodes", "every None", "every 1", "every 2"]
    assert [name for name in expected if seen[name] < 5] == []
    assert len(STAGES) == 7


def test_nodes_are_lost_while_a_cut_is_collected_for_its_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parts have arrived, and the cut is never complete in this life; others are evaluated at their cuts."""
    honest_restart, honest_at_cut = TableRun.restart, TableRun.at_cut
    seen: Counter[str] = Counter()

    def restart(self: TableRun, now: float) -> Any:
        assert self.evaluations is not None
        waiting = [cut for clock, cut in self._open.items() if self.evaluations._at(clock)]
        seen["collected"] += any(cut.workers or cut.shards for cut in waiting)
        seen["some shards"] += any(0 < len(cut.shards) < self.nodes for cut in waiting)
        return honest_restart(self, now)

    def at_cut(self: TableRun, cut: CutParts) -> Any:
        due = honest_at_cut(self, cut)
        seen["evaluated"] += len(due)
        seen["evaluated after a restart"] += len(due) * (self.incarnation > 0)
        return due

    monkeypatch.setattr(TableRun, "restart", restart)
    monkeypatch.setattr(TableRun, "at_cut", at_cut)
    for seed in range(60):
        run_seed(seed)
    assert [what for what in ("collected", "some shards", "evaluated after a restart") if seen[what] < 5] == []
    assert seen["evaluated"] > 100


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--verbose"]) == 0
    assert "schedule 3:" in capsys.readouterr().out


# -- planted bugs -----------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def a_worker_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A cut counts as complete although the part of one worker is missing."""

    def complete(self: TableRun, cut: CutParts) -> CutParts | None:
        missing = self.workers - len(cut.workers)
        if missing > 1 or len(cut.residuals) < self.nodes or len(cut.shards) < self.nodes:
            return None
        return self._open.pop(cut.clock, None)

    patch.setattr(TableRun, "_complete", complete)


def a_shard_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A cut counts as complete although a shard's part is missing; the shard begins with the part before."""
    honest = TableRun.restart

    def complete(self: TableRun, cut: CutParts) -> CutParts | None:
        missing = self.nodes - len(cut.shards)
        if len(cut.workers) < self.workers or len(cut.residuals) < self.nodes or missing > 1:
            return None
        cut.shards = {**self.last.shards, **cut.shards}
        return self._open.pop(cut.clock, None)

    def restart(self: TableRun, now: float) -> Any:
        if len(self.last.shards) < self.nodes:
            self.last = CutParts(0)
        return honest(self, now)

    patch.setattr(TableRun, "_complete", complete)
    patch.setattr(TableRun, "restart", restart)


def an_evaluation_of_a_lost_life_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Evaluations of clocks that are recomputed stay in the history."""
    honest = Evaluations.begin
    patch.setattr(Evaluations, "begin", lambda self, clock, now, history=None: honest(self, clock, now))


def no_evaluation_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A restart forgets the evaluations that were made before."""
    honest = Evaluations.begin
    patch.setattr(
        Evaluations,
        "begin",
        lambda self, clock, now, history=None: honest(self, clock, now, None if history is None else []),
    )


def a_part_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """Parts are counted as they arrive: one that arrives twice stands for one that does not."""
    honest = TableRun.worker_part

    def worker_part(self: TableRun, clock: int, worker: int, part: Any) -> Any:
        cut = self._cut(clock)
        if cut is not None and worker in cut.workers:
            worker = next(other for other in range(self.workers + 1) if other not in cut.workers)
        return honest(self, clock, worker, part)

    patch.setattr(TableRun, "worker_part", worker_part)


def a_workers_part_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The first worker begins anew after a restart."""
    honest = TableRun.keep

    def keep(self: TableRun, cut: CutParts) -> None:
        cut.workers.pop(0, None)
        honest(self, cut)

    patch.setattr(TableRun, "keep", keep)


def the_wrong_clock(patch: pytest.MonkeyPatch) -> None:
    """A run goes on one clock later than its cut."""
    honest = TableRun.keep

    def keep(self: TableRun, cut: CutParts) -> None:
        cut.clock += 1
        honest(self, cut)

    patch.setattr(TableRun, "keep", keep)


def parts_of_an_earlier_life_count(patch: pytest.MonkeyPatch) -> None:
    """What had arrived of a cut when a node was lost is still there in the next life, and what was under way comes."""
    honest_life = TableRun._life
    honest_take = SimulatedDriver._take

    def life(self: TableRun, now: float) -> None:
        kept = dict(self._open)
        honest_life(self, now)
        self._open.update(kept)

    def cut_of(self: TableRun, clock: int) -> CutParts | None:
        return self._open.setdefault(clock, CutParts(clock))

    patch.setattr(TableRun, "_life", life)
    patch.setattr(TableRun, "_cut", cut_of)
    patch.setattr(
        SimulatedDriver, "_take", lambda self, told: honest_take(self, told._replace(incarnation=self.run.incarnation))
    )


def lives_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    """A restart does not begin a new incarnation, so frames of the old one are taken."""
    honest = TableRun.restart

    def restart(self: TableRun, now: float) -> Any:
        due = honest(self, now)
        self.incarnation -= 1
        return due

    patch.setattr(TableRun, "restart", restart)


def leftovers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What rounding had left on a node is not part of a cut."""
    honest = TableRun.node_part
    patch.setattr(TableRun, "node_part", lambda self, clock, node, residuals: honest(self, clock, node, {}))


def an_older_cut_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Workers go back to the last cut, the rows of the shards to the one before."""
    honest = TableRun.keep

    def keep(self: TableRun, cut: CutParts) -> None:
        cut.shards = self.last.shards or cut.shards
        honest(self, cut)

    patch.setattr(TableRun, "keep", keep)


def a_worker_gives_its_part_too_late(patch: pytest.MonkeyPatch) -> None:
    """A worker's part is taken one clock after the cut."""
    honest = NodeCuts.reached

    def reached(self: NodeCuts, worker: int, clock: int, part: Any) -> bool:
        return honest(self, worker, clock if clock >= 2**30 else clock - 1, part)

    patch.setattr(NodeCuts, "reached", reached)


def nobody_notices(patch: pytest.MonkeyPatch) -> None:
    """The failure detector never decides."""
    patch.setattr(FailureDetector, "judge", lambda self, now, silence, answering: None)


def gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    """The first loss ends the job."""
    patch.setattr(Losses, "lost", lambda self, host: "gave up")


PLANTS: tuple[Plant, ...] = (
    a_worker_is_not_waited_for,
    a_shard_is_not_waited_for,
    an_evaluation_of_a_lost_life_is_kept,
    no_evaluation_is_kept,
    a_part_counts_twice,
    a_workers_part_is_forgotten,
    the_wrong_clock,
    parts_of_an_earlier_life_count,
    lives_are_not_told_apart,
    leftovers_are_forgotten,
    an_older_cut_is_kept,
    a_worker_gives_its_part_too_late,
    nobody_notices,
    gives_up_at_once,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant) -> None:
    # A clock that is recomputed under BSP has the same bits, so parts of two lives would fit together.
    rule = SSP(2) if plant is parts_of_an_earlier_life_count else BSP()
    # A cut that is kept is evaluated just before, so only cuts that are not kept leave evaluations behind.
    checkpoint = 2 if plant is an_evaluation_of_a_lost_life_is_kept else 1
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(200):
            try:
                run_seed(seed, rule=rule, clocks=5, nodes=3, checkpoint=checkpoint)
            except ScheduleFailed as failed:
                print(f"caught by schedule {seed}: {str(failed.__cause__)[:200]}")
                break
        else:
            raise AssertionError("not caught in 200 schedules")
    run_seed(seed, rule=rule, clocks=5, nodes=3, checkpoint=checkpoint)
