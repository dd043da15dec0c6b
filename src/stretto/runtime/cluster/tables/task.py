"""Tables on a host: the nodes it holds, and the threads of their workers, for one incarnation.

As on `Threads` (`served.Hall`), at most `host.threads` of the workers' threads run at a time, and one lock is over
everything but reads and adds that need none. What comes from other nodes is handed to the state machines on the wire's
thread, under the same lock, which nobody holds for long.

What the driver is told, each with the node: "moved" (lowest clock of its workers, highest), "worker", "node" and
"shard" (parts of cuts: see `tables.node_cuts`), "recorded" (in runs that record everything: what a worker did since its
last part of a cut), "ended" when all its workers have, "drained" when all that anybody added is at its shard, and
"failed" (worker, clock, error); worker −2: nobody's mistake but ours.

What the driver may ask: "cut" (clock, or None when all have ended), "cancel" (clock), "stop" (clock, or None for now),
"final", "present" (the tables as they are) and "standing".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import TABLES, Begin, HostApi, Told
from stretto.runtime.cluster.hosts.output import end_lines
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.cluster.net.frame_checks import TableCheck
from stretto.runtime.tables.checkpoints import Part
from stretto.runtime.tables.job import Ended, Rest, TableJob
from stretto.runtime.tables.run.node_cuts import CutPlan
from stretto.runtime.tables.turn_order import Turns
from stretto.store.layout import Layout
from stretto.store.node import NodePart

from .final_state import NodeRest
from .node import Room
from .workers import TableSeat

OURS = -2  # whose mistake it was: not a worker's, and not that of the watching function, which is −1
BACKLOG = 64 << 20  # bytes held back on the way to another host, beyond which workers wait
_EASED = 0.02  # seconds between looks at how much is held back
_PIECE = 4 << 20  # bytes of a cut that are copied at a time
_MOST_WAIT = 0.5

__all__ = ["CutPlan", "TablePayload", "TableTask", "make_table_task"]


@dataclass(frozen=True, eq=False)
class TablePayload:
    """What a host needs to know. start: the nodes' parts of the cut that everybody begins from, None at the beginning;
    parts: the workers'; clock: of that cut. began_at: when the run began,
    by the driver's calendar clock (`time.time`), or None: now."""

    job: TableJob
    layout: Layout
    start: dict[int, NodePart] | None = None
    parts: dict[int, Part] = field(default_factory=dict)
    clock: int = 0
    cuts: CutPlan = field(default_factory=CutPlan)
    began_at: float | None = None


class Standing(NamedTuple):
    """Where a worker is. waits: "read", "tick", "network", "turn", or "" while it computes."""

    worker: int
    clock: int
    ended: bool
    waits: str
    seconds: float


def make_table_task(host: HostApi, begin: Begin) -> TableTask:
    """The task of a `Begin` whose payload is a TablePayload."""
    return TableTask(host, begin)


class Pressure:
    """Whether more is on its way to other hosts than should be. high may be read by anybody; the rest under the lock.

    waiting: who has to be woken when it is over."""

    def __init__(self, backlog: Callable[[], int]) -> None:
        self.high = False
        self.waiting: list[TableSeat] = []
        self._backlog = backlog
        self._next = -inf

    def look(self, now: float) -> bool:
        """Find out, unless that was done a moment ago."""
        if now >= self._next:
            self._next = now + _EASED
            self.high = self._backlog() > BACKLOG
        return self.high


class TableTask:
    """zero: when it was made, by the host's clock; the nodes' times count from there. late: when that was, in seconds
    of the run, as far as the machines' calendar clocks agree."""

    channel = TABLES

    def __init__(self, host: HostApi, begin: Begin) -> None:
        payload = begin.payload
        if not isinstance(payload, TablePayload):
            raise RunError(f"a table task was given a {type(payload).__name__}, not a TablePayload")
        self.host, self.begin, self.payload = host, replace(begin, payload=None), payload
        self.check = TableCheck(payload.layout)  # what frames may hold
        self.zero, self.late = host.now(), 0.0
        if payload.began_at is not None:
            self.late = time.time() - payload.began_at
        self.turns = Turns(host.threads)
        self.lock = self.turns.lock
        self.last: int | None = None  # the clock at which everybody stops
        self.due = inf  # when `tend` will be called
        self.on_wire = False  # the lock is held by the wire's thread, which calls `tend` next
        mine = begin.nodes_of(host.number)
        others = [node for node, at in enumerate(begin.where) if at != host.number]
        far = list({begin.where[node]: node for node in others}.values())  # one of each host
        self.pressure = Pressure(lambda: max((host.backlog(node) for node in far), default=0))
        self.rooms = {node: Room(self, node) for node in mine}
        self.payload = replace(payload, start=None, parts={})  # they are where they belong now
        self._seats = [seat for room in self.rooms.values() for seat in room.seats]
        self._threads: list[threading.Thread] = []
        self._failed = self._halted = False
        self._saving = threading.Condition(self.lock)
        self._to_save = False
        rows = max(table.cols * table.kept.itemsize * (1 + table.apply.states) for table in payload.layout.tables)
        self._piece = max(256, _PIECE // rows)

    def now(self) -> float:
        """Seconds since the task was made."""
        return self.host.now() - self.zero

    # -- what the host calls -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; returns at once."""
        for room in self.rooms.values():
            for seat in room.seats:
                if not seat.ended:
                    self._thread(f"worker-{seat.worker}", self._body, room, seat)
        self._thread("saver", self._save)
        with self.lock:
            for room in self.rooms.values():
                room.start()
        for thread in self._threads:
            thread.start()
        self.host.rouse()

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Frames of node `source` for node `target` of this host. On the wire's thread."""
        room = self.rooms.get(target)
        if room is None:
            return
        with self.lock:
            self.on_wire = True
            try:
                if not self._halted:  # by a time that is not before what happened while the lock was waited for
                    room.receive(self.now(), source, frames)
            except Exception as error:
                self._fail(room, OURS, room.node.shard.clock, error)
            finally:
                self.on_wire = False

    def tend(self, now: float) -> float:
        """Timers: when to call again."""
        with self.lock:
            if self._halted:
                return inf
            here = self.now()
            due = here + _MOST_WAIT
            self.on_wire = True
            for room in self.rooms.values():
                try:
                    due = min(due, room.tend(here))
                except Exception as error:
                    self._fail(room, OURS, room.node.shard.clock, error)
            self.on_wire = False
            pressure = self.pressure
            if pressure.look(here):
                due = min(due, here + _EASED)
            elif pressure.waiting:
                for seat in pressure.waiting:
                    self.turns.rouse(seat)
                pressure.waiting.clear()
            self.due = due
        return due + self.zero

    def reset(self, now: float, peers: Sequence[int]) -> None:
        """The connection to these nodes was lost and is there again. On the wire's thread."""
        with self.lock:
            self.on_wire = True
            for room in self.rooms.values() if not self._halted else ():
                room.reset(peers)
            self.on_wire = False

    def halt(self) -> None:
        """End all threads; returns when they have ended."""
        with self.lock:
            self._halted = True
            self.turns.end(self._seats)
            self._saving.notify()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def ask(self, what: str, *args: Any) -> Any:
        """A call of the driver's."""
        known: dict[str, Callable[..., Any]] = {
            "cut": self._ask_cut,
            "cancel": self._ask_cancel,
            "stop": self._ask_stop,
            "final": self._ask_final,
            "present": self._ask_present,
            "standing": self._ask_standing,
        }
        if what not in known:
            raise RunError(f"a table task was asked for {what!r}, which it does not know")
        with self.lock:
            return known[what](*args)

    # -- what rooms call, with the lock ------------------------------------------------------------------------------

    def ship(self, source: int, frames: list[tuple[int, Frame]]) -> None:
        """Frames of a node to others; those with the same target travel together."""
        trains: dict[int, list[Frame]] = {}
        for target, frame in frames:
            if target in trains:
                trains[target].append(frame)
            else:
                trains[target] = [frame]
        for target, train in trains.items():
            self.host.post(self.begin, source, target, TABLES, train)

    def tell(self, what: str, node: int, value: Any = None) -> None:
        """Have the driver told."""
        self.host.tell(Told(self.begin.incarnation, self.host.number, what, node, value))

    def save(self) -> None:
        """A shard has a cut to be taken away."""
        self._to_save = True
        self._saving.notify()

    # -- threads -----------------------------------------------------------------------------------------------------

    def _thread(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args, name=f"stretto-{name}", daemon=True))

    def _body(self, room: Room, seat: TableSeat) -> None:
        try:
            with self.lock:
                self.turns.take(seat)
            if not self.turns.ending:
                self.payload.job.work(seat)
            with self.lock:
                room.leave(seat)
        except Ended:
            with self.lock:
                room.leave(seat)
        except BaseException as error:
            with self.lock:
                self._fail(room, seat.worker, seat.clock, error)
        finally:
            end_lines()
            with self.lock:
                self.turns.drop(seat)
                room.left -= 1
                if not room.left and not self._halted:
                    room.tell("ended")

    def _fail(self, room: Room, worker: int, clock: int, error: BaseException) -> None:
        """The first error ends the run on this host; the driver ends it elsewhere."""
        if not (self._failed or self._halted):
            self._failed = True
            room.tell("failed", (worker, clock, portable(error)))
        self.turns.end(self._seats)

    def _save(self) -> None:
        """Take cuts away from shards piece by piece, so that nobody has to wait for a whole one to be copied."""
        while True:
            with self.lock:
                while not (self._to_save or self._halted):
                    self._saving.wait()
                self._to_save = False
                if self._halted:
                    return
            for room in self.rooms.values():
                try:
                    while self._take_cut(room):
                        pass
                except Exception as error:
                    with self.lock:
                        self._fail(room, OURS, room.node.shard.clock, error)

    def _take_cut(self, room: Room) -> bool:
        from stretto.store.shard.snapshot import joined

        shard, began, pieces = room.node.shard, self.now(), []
        clock = shard.saving
        while clock is not None:
            with self.lock:
                if self._halted or shard.saving != clock:
                    return False
                piece = shard.saved_piece(self._piece)
                last = shard.saving != clock
            assert piece is not None
            pieces.append(piece)
            if last:
                arrays = joined(pieces)
                with self.lock:
                    if room.cuts.saved(clock):
                        room.tell("shard", (clock, arrays, self.now() - began, room.recording.bytes))
                return True
        return False

    # -- what the driver asks, with the lock -------------------------------------------------------------------------

    def _ask_cut(self, clock: int | None) -> bool:
        """One more cut. True if nobody here was that far; otherwise nothing has happened. None: of the end."""
        if clock is not None and any(not seat.ended and seat.clock >= clock for seat in self._seats):
            return False
        opened: list[Room] = []
        for room in self.rooms.values():
            clock = room.node.shard.clock if clock is None else clock
            if not room.cuts.open(clock):
                for other in opened:
                    other.cuts.cancel(clock)
                return False
            opened.append(room)
            room.after()
        return True

    def _ask_cancel(self, clock: int) -> None:
        for room in self.rooms.values():
            room.cuts.cancel(clock)

    def _ask_stop(self, clock: int | None) -> None:
        """Everybody ends at this clock; None: now, wherever they are."""
        if clock is None:
            self.turns.end(self._seats)
            return
        self.last = clock
        for room in self.rooms.values():
            room.cuts.end(clock)

    def _ask_final(self) -> dict[int, NodeRest]:
        return {node: room.rest() for node, room in self.rooms.items()}

    def _ask_present(self) -> dict[int, tuple[tuple[Rest, ...], int]]:
        """What shards hold now, and the bytes that their nodes have sent."""
        return {node: (room.tables(), room.recording.bytes) for node, room in self.rooms.items()}

    def _ask_standing(self) -> list[Standing]:
        now = self.now()
        return [
            Standing(
                seat.worker,
                seat.clock,
                seat.ended,
                seat.waits[0] or ("" if seat.turn or seat.ended else "turn"),
                now - seat.waits[1] if seat.waits[0] else 0.0,
            )
            for seat in self._seats
        ]
