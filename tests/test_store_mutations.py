"""Planted bugs: each breaks the protocol in one place, and the replay checker (or the serial truth) must notice.

A checker that passes everything proves nothing. Every bug is run over a few seeds of random schedules, drawn where it
could matter, until it is caught; the same seeds pass without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stretto.comm.budget import Bucket
from stretto.comm.link import Frame, Link
from stretto.comm.messages import Fetch, NodeClock, ShardClock
from stretto.comm.policy import Eager, Managed
from stretto.consistency.rules import ASP, BSP, SSP
from stretto.runtime.tables.checkpoints import WorkerState
from stretto.store import index
from stretto.store.cache import buffer, clocking, in_flight
from stretto.store.cache.cache import Cache
from stretto.store.node import StoreNode
from stretto.store.shard import announced, held, snapshot, versions
from stretto.store.shard.shard import Shard
from stretto.testing import ReplayError
from stretto.testing.schedules import ScheduleFailed, run_seed

Plant = Callable[[pytest.MonkeyPatch], None]


def off_by_one(patch: pytest.MonkeyPatch) -> None:
    """The SoCC text's inequality read with our s: one clock more may be missing."""
    patch.setattr(SSP, "need", lambda self, clock: max(0, clock - self.s - 1))


def lost_on_crash(patch: pytest.MonkeyPatch) -> None:
    """The cut of a checkpoint misses updates of its clocks that come after the row was copied aside."""
    patch.setattr(snapshot._Part, "same_change", lambda self, change: None)


def checkpoint_of_later_clocks(patch: pytest.MonkeyPatch) -> None:
    """Rows are not copied aside, so a checkpoint holds updates of clocks after its own."""
    patch.setattr(snapshot._Part, "copy_aside", lambda self, slots: None)


def double_apply(patch: pytest.MonkeyPatch) -> None:
    """What is sent again after a reset is taken again."""
    honest = Link.receive

    def receive(self: Link, frame: Frame) -> list[Any]:
        again = frame.message is not None and 0 < frame.sequence <= self._received
        return honest(self, frame) or ([frame.message] if again and frame.incarnation == self.incarnation else [])

    patch.setattr(Link, "receive", receive)


def stale_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Changes are revised from the row as it is, whatever version they were computed from."""

    def recall(self: Any, slots: Any, versions: Any, source: Any) -> tuple[Any, int]:
        return source[slots], -1

    patch.setattr(versions.Snapshots, "recall", recall)


def budget_overrun(patch: pytest.MonkeyPatch) -> None:
    """A bucket that forgets half of what is put in."""
    honest = Bucket.take
    patch.setattr(Bucket, "take", lambda self, now, nbytes: honest(self, now, nbytes // 2))


def own_writes_lost(patch: pytest.MonkeyPatch) -> None:
    """Rows that arrive take the place of the row, and of what this node has added and not sent."""
    honest = in_flight.ChangesInFlight.log
    patch.setattr(in_flight.ChangesInFlight, "log", lambda self, shard: (*index.NO_INDEX, *honest(self, shard)[2:]))
    patch.setattr(buffer.PendingChanges, "add_to_held", lambda self, *rows: None)


def fetch_too_early(patch: pytest.MonkeyPatch) -> None:
    """A shard answers at once and says the rows are as fresh as was asked for."""

    def fetch_at_once(self: Shard, fetch: Fetch) -> Any:
        slots = self.tables[fetch.table].slots_of(fetch.keys)
        return [(fetch.node, rows) for rows in self._reply(fetch, slots, max(self.clock, fetch.need))]

    honest = Shard.__init__

    def init(self: Shard, *args: Any) -> None:
        honest(self, *args)
        self._receivers[Fetch] = lambda fetch: fetch_at_once(self, fetch)

    patch.setattr(Shard, "__init__", init)


def clock_before_updates(patch: pytest.MonkeyPatch) -> None:
    """A node says that a clock is over before it has sent its changes."""
    honest = clocking.ClockQueue._send

    def send(self: Any, shard: int, clock: int, sends: Any) -> None:
        mine: list[Any] = []
        honest(self, shard, clock, mine)
        sends += sorted(mine, key=lambda pair: not isinstance(pair[1], NodeClock))

    patch.setattr(clocking.ClockQueue, "_send", send)


def clock_before_rows(patch: pytest.MonkeyPatch) -> None:
    """A shard says that all rows are fresh before it has sent them."""
    honest = Shard._move_on

    def move_on(self: Shard, clock: int) -> Any:
        return sorted(honest(self, clock), key=lambda pair: not isinstance(pair[1], ShardClock))

    patch.setattr(Shard, "_move_on", move_on)


def seen_too_soon(patch: pytest.MonkeyPatch) -> None:
    """Rows claim to hold one Update more of the receiver than they do."""
    honest = Shard._reply

    def reply(self: Shard, fetch: Fetch, slots: Any, through: int) -> Any:
        self._seen[fetch.node] += 1
        found = honest(self, fetch, slots, through)
        self._seen[fetch.node] -= 1
        return found

    patch.setattr(Shard, "_reply", reply)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Messages of the life before a restart are taken. (Their numbers would give them away to the link.)"""
    honest = StoreNode.receive

    def receive(self: StoreNode, now: float, source: int, *frames: Frame) -> None:
        for frame in frames:
            if frame.incarnation < self.incarnation and frame.message is not None:
                assert self.recording is not None
                self.recording.delivered(now, source, self.number, frame.incarnation, frame.sequence)
                self._take(now, frame.message)
        honest(self, now, source, *frames)

    patch.setattr(StoreNode, "receive", receive)


def arrival_order(patch: pytest.MonkeyPatch) -> None:
    """A BSP shard applies what came first first, instead of by worker."""

    def batches(self: Any, clock: int, table: int, limit: int | None) -> Any:
        return [held._batch(list(self._clocks[clock][table].values()))]

    patch.setattr(held.HeldUpdates, "batches", batches)


def shared_local(patch: pytest.MonkeyPatch) -> None:
    """A worker's part of a checkpoint is not a copy, and goes on changing."""
    patch.setattr(WorkerState, "copy", lambda self: WorkerState(self.local, self.cursors, self.clock, self.ended))


def sent_twice(patch: pytest.MonkeyPatch) -> None:
    """What was sent early stays in the buffer, and goes again with the next change."""
    honest = buffer.UpdateBuffer.batch

    def batch(self: Any, slip: Any, places: Any, keep: bool, **given: Any) -> Any:
        return honest(self, slip, places, keep=True, **given)

    patch.setattr(buffer.UpdateBuffer, "batch", batch)


def bold_speculation(patch: pytest.MonkeyPatch) -> None:
    """Every row counts as untouched by what is missing."""
    patch.setattr(
        announced.ShardAnnouncements, "settled", lambda self, table, slots, need: np.ones(len(slots), dtype=bool)
    )


def leftovers_lost(patch: pytest.MonkeyPatch) -> None:
    """What rounding to 16 bits had left is not part of a checkpoint."""
    patch.setattr(Cache, "residuals", lambda self, clock=None: {})


def released_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A version is given back although changes computed from it wait to be sent."""
    honest = clocking.ClockQueue.release

    def release(self: Any, shard: int, clock: int, *rest: Any) -> None:
        honest(self, shard, 0, *rest)

    patch.setattr(clocking.ClockQueue, "release", release)


@dataclass(frozen=True)
class Bug:
    """plant: how. given: where schedules are drawn. signs: kinds of violations, one of which the checker must find, or
    words of the error that another check raises."""

    plant: Plant
    given: dict[str, Any]
    signs: tuple[str, ...]
    seeds: int = 40


CRASHING = {"crashes": 2, "checkpoint": 1, "clocks": 6, "nodes": 3, "kinds": ("add",), "policy": Eager()}
BUGS = (
    Bug(off_by_one, {"rule": SSP(1), "nodes": 3, "clocks": 5}, ("too old",)),
    Bug(lost_on_crash, {"rule": SSP(3), **CRASHING}, ("too old", "lost", "own")),
    Bug(checkpoint_of_later_clocks, {"rule": SSP(3), **CRASHING}, ("doubled", "future")),
    Bug(double_apply, {"rule": SSP(1), "nodes": 4, "kinds": ("add",)}, ("order",)),
    Bug(stale_snapshot, {"rule": SSP(2), "nodes": 3, "crashes": 0, "kinds": ("adarevision",)}, ("version",)),
    Bug(budget_overrun, {"nodes": 3, "policy": Managed(1e5, window=32)}, ("budget",)),
    Bug(own_writes_lost, {"rule": SSP(2), "nodes": 3, "kinds": ("add",)}, ("own", "back", "value")),
    Bug(fetch_too_early, {"rule": SSP(0), "nodes": 3, "kinds": ("add",), "clocks": 5}, ("too old",)),
    Bug(clock_before_updates, {"rule": SSP(0), "nodes": 3, "clocks": 5}, ("too old",)),
    Bug(clock_before_rows, {"rule": SSP(0), "nodes": 3, "clocks": 5, "policy": Managed(1e5)}, ("too old",)),
    Bug(seen_too_soon, {"rule": ASP(), "nodes": 2, "kinds": ("add",)}, ("own", "back", "value")),
    Bug(no_fence, {"nodes": 3, "crashes": 2}, ("order",)),
    Bug(sent_twice, {"rule": SSP(1), "nodes": 3, "kinds": ("add",), "policy": Managed(1e6)}, ("doubled", "future")),
    Bug(bold_speculation, {"rule": SSP(0, speculate=True), "nodes": 3, "clocks": 5}, ("too old",)),
    Bug(released_too_soon, {"rule": SSP(2), "nodes": 3, "kinds": ("adarevision",)}, ("nothing is kept any more",)),
    Bug(arrival_order, {"rule": BSP(), "nodes": 3, "workers": 6}, ("serial run",)),
    Bug(shared_local, {"rule": BSP(), **CRASHING}, ("serial run",)),
    Bug(leftovers_lost, {"rule": BSP(), **CRASHING, "policy": Eager("f2")}, ("serial run",)),
)


def caught(bug: Bug) -> tuple[int, set[str]]:
    """The first seed that fails as expected, and what was found."""
    for seed in range(bug.seeds):
        try:
            run_seed(seed, **bug.given)
        except ScheduleFailed as failed:
            cause = failed.__cause__
            kinds = set(cause.report.broken) if isinstance(cause, ReplayError) else set()
            found = kinds or {sign for sign in bug.signs if sign in str(cause)}
            if found & set(bug.signs):
                return seed, found
    raise AssertionError(f"not caught in {bug.seeds} schedules")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        seed, found = caught(bug)
    print(f"{bug.plant.__name__}: caught by seed {seed}: {', '.join(sorted(found))}")
    for honest in range(seed + 1):
        run_seed(honest, **bug.given)


def test_the_plants_are_gone() -> None:
    """Nothing planted stays behind for other tests."""
    assert SSP(1).need(5) == 4
    assert np.isclose(Bucket(10.0).ready_at(), 0.0)
    run_seed(7)
