"""One node of a job over tables on a host: its state machine, its workers and its cuts.

Everything is called with the task's lock held, unless stated otherwise. The node's messages are handed to the network
before the lock is released, so that frames leave in the order of their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.link import Frame
from stretto.comm.messages import Keys
from stretto.runtime.cluster.hosts.calls import BeginTask, HostApi
from stretto.runtime.tables.checkpoints import WorkerState
from stretto.runtime.tables.job import FAR, FinalRows, WorkerExit
from stretto.runtime.tables.run.node_cuts import NodeCuts
from stretto.runtime.tables.turn_order import TurnOrder
from stretto.store.node import StoreNode

from .events import NewEvents
from .final_state import NodeFinalState, NodeRecording
from .payload import TablePayload
from .pressure import Pressure
from .workers import ClusterWorker

_REPORT_SECONDS = 0.05  # seconds between two reports of clocks
_NO_KEYS = np.empty(0, np.int64)
_LINK_SECONDS = 0.5  # seconds after which links are checked in any case


class NodeTask(Protocol):
    """What a node uses of the task of its host."""

    host: HostApi
    begin: BeginTask
    payload: TablePayload
    turns: TurnOrder
    pressure: Pressure
    last: int | None  # the clock at which all workers stop
    late: float  # its creation, in seconds of the run
    due: float  # when timers run next
    on_wire: bool  # the network thread holds the lock and runs the timers next

    def now(self) -> float:
        """Seconds since the task was created."""
        ...

    def ship(self, source: int, frames: list[tuple[int, Frame]]) -> None:
        """Send frames of a node to others."""
        ...

    def tell(self, what: str, node: int, value: Any = None) -> None:
        """Report an event to the driver."""
        ...

    def save(self) -> None:
        """Wake the thread that copies a shard's cut."""
        ...


class NodeWorkers:
    """A node and its workers. `asleep`: the node has nothing to send between clocks."""

    def __init__(self, task: NodeTask, number: int) -> None:
        payload, begin = task.payload, task.begin
        layout, job = payload.layout, payload.job
        self.task, self.number = task, number
        self.turns, self.lock, self.pressure = task.turns, task.turns.lock, task.pressure
        self.recording = NodeRecording(layout, job.record)
        saved = payload.start.get(number) if payload.start else None
        self.node = StoreNode(
            layout,
            number,
            incarnation=begin.incarnation,
            recording=self.recording,
            locks=True,
            saved=saved,
            rows=payload.rows.get(number),
        )
        self._in_place = frozenset(payload.rows.get(number, {}))
        # A recording needs one order of all events.
        self.free = [not (lock or self.recording.full) for lock in self.node.cache.needs_lock]
        self.asleep = False
        workers = layout.workers_of(number)
        self.clients = [
            ClusterWorker(
                self,
                worker,
                # A part of a cut may be needed again.
                payload.parts[worker].copy() if worker in payload.parts else WorkerState(clock=payload.clock),
            )
            for worker in workers
        ]
        self.left = sum(not client.ended for client in self.clients)  # threads that have not ended
        self._fresh = NewEvents(self.recording) if self.recording.full else None
        self.cuts = NodeCuts(self.node, payload.cuts, self._tell_cut)
        self.drained = False
        self._started_at = 0.0
        self._first = workers.start
        self._managed = layout.policy.managed
        self._ship = task.ship
        self._due = -inf  # when links have to be checked
        self._reported = (-1, -1)  # the clocks that were reported last, when, and the current lowest
        self._told_at = -inf
        self._low = -1

    # -- called by workers, without the lock -------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the task was created."""
        return self.task.now()

    @contextmanager
    def inside(self) -> Iterator[float]:
        """Hold the lock and send resulting messages at the end; yields the time."""
        with self.lock:
            if self.turns.ending:
                raise WorkerExit
            yield self.task.now()
            self.after()

    def read(self, client: ClusterWorker, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Read under the lock, and wait while the consistency rule does not allow it."""
        with self.inside() as began:
            if self.node.read(began, client.worker, table, keys, out):
                return
            while True:
                self.after()
                self._park(client, "read")
                if self.node.read(self.task.now(), client.worker, table, keys, out):
                    break
            self.recording.waited(client.worker, "read", self.task.now() - began)

    def tick(self, client: ClusterWorker) -> None:
        """End a worker's clock."""
        task, node = self.task, self.node
        if self.pressure.look(task.now()):
            self.ease(client)
        with self.inside() as began:
            self.cuts.open_to(client.clock + 1)
            free = node.tick(began, client.worker)
            client.clock += 1
            self.cuts.reached(client.worker, client.clock, client.part)
            self._moved(began)
            self.after()
            if not free:
                while node.holds_up(client.worker):
                    self._park(client, "tick")
                self.recording.waited(client.worker, "tick", task.now() - began)
            if task.last is not None and client.clock >= task.last:
                raise WorkerExit
            self.turns.yield_(client)

    def ease(self, client: ClusterWorker) -> None:
        """Wait while too many bytes are queued for the network."""
        with self.lock:
            began = self.task.now()
            self.task.host.rouse()
            while self.pressure.high:
                self.pressure.waiting.append(client)
                self._park(client, "network")
            self.recording.waited(client.worker, "tick", self.task.now() - began)

    def rouse(self) -> None:
        """Something was added that might be sent before its clock ends."""
        self.asleep = False
        self.task.host.rouse()

    # -- start, messages and timers ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Before the first worker starts: do not wait for workers that had ended before."""
        now = self._started_at = self.task.now()
        for client in self.clients:
            if client.ended:
                self.cuts.reached(client.worker, FAR, client.part)
                self.node.leave(now, client.worker)
        self._moved(now)
        self.node.poll(now)
        self.after()
        if not self.left:
            self.tell_ended()

    def leave(self, client: ClusterWorker) -> None:
        """A worker has ended."""
        if self.turns.ending:
            return
        client.ended = True
        now = self.task.now()
        self.cuts.reached(client.worker, FAR, client.part)
        self.node.leave(now, client.worker)
        self._moved(now)
        self.after()

    def receive(self, now: float, source: int, frames: Sequence[Frame]) -> None:
        """Handle frames of another node."""
        self.cuts.ahead(frames)
        self.node.receive(now, source, *frames)
        self._due = min(self._due, self.node.tend(now, source))
        self.after()

    def reset(self, peers: Sequence[int]) -> None:
        """Retransmit to these nodes what they have not acknowledged."""
        for peer in peers:
            if peer != self.number:
                self.node.reset(self.task.now(), peer)
        self.after()

    def tend(self, now: float) -> float:
        """Run timers; return when to call again."""
        node = self.node
        self.asleep = self._managed  # set before the check: a thread may be adding
        if now >= self._due or now >= node.wake_at or (self._managed and node.cache.dirty):
            self._due = min(node.tend(now), now + _LINK_SECONDS)
        self.after()
        if node.wake_at < inf:
            self.asleep = False
        due = min(self._due, node.wake_at)
        if self._low != self._reported[0]:
            self._tell_clocks(now)
            if self._low != self._reported[0]:
                due = min(due, self._told_at + _REPORT_SECONDS)
        return due

    def after(self) -> None:
        """Send the messages and reports that the state machine produced."""
        node = self.node
        if node.frames:
            frames, node.frames = node.frames, []
            self._ship(self.number, frames)
        if node.woken:
            for worker in node.woken:
                self.turns.rouse(self.clients[worker - self._first])
            node.woken.clear()
        if node.wake_at < self.task.due and not self.task.on_wire:
            self.task.due = node.wake_at
            self.task.host.rouse()
        shard = node.shard
        if shard.saving is not None:
            self.task.save()
        if shard.clock >= FAR and not self.drained:
            self.drained = True
            self._tell_clocks(inf)
            self.tell("drained", self.rest() if self._in_place else None)

    def rest(self) -> NodeFinalState:
        """The final state of the node."""
        shard, clients = self.node.shard, self.clients
        tables = range(len(self.task.payload.layout.tables))
        return NodeFinalState(
            self.number,
            self.tables(),
            tuple(shard.witness(table) for table in tables) if self.recording.full else (),
            {client.worker: client.clock for client in clients},
            {client.worker: client.local for client in clients},
            sum(client.items for client in clients),
            self.node.cache.staleness,
            shard.clock,
            self.recording.packed(self.task.late),
            self.task.now() - self._started_at,
        )

    def tables(self) -> tuple[FinalRows, ...]:
        """The current tables of the node's shard."""
        shard = self.node.shard
        tables = range(len(self.task.payload.layout.tables))
        return tuple(
            # Rows that are used in place stay where they are.
            FinalRows(_NO_KEYS, shard.tables[table].columns.values[:0])
            if table in self._in_place
            else FinalRows(*shard.table(table), tuple(shard.states(table)))
            for table in tables
        )

    def tell(self, what: str, value: Any = None) -> None:
        """Report an event to the driver."""
        self.task.tell(what, self.number, value)

    def tell_ended(self) -> None:
        """Report that all workers have ended."""
        if not self._in_place:
            self.tell("ended")

    def _tell_cut(self, what: str, value: Any) -> None:
        """Report a part of a cut; with a worker's part, its events since the last, because this process may be lost."""
        if what == "worker" and self._fresh is not None:
            self.tell("recorded", (self.task.late, self._fresh.take(value[1])))
        self.tell(what, value)

    # -- internal ---------------------------------------------------------------------------------------------------

    def _moved(self, now: float) -> None:
        """A worker's clock has advanced."""
        low = min(self.node.clock, FAR)
        if low == self._low:
            return
        self._low = low
        self.cuts.look()
        if low < FAR:
            self.recording.moved_on(now, low, self._most())
        self._tell_clocks(now)

    def _tell_clocks(self, now: float) -> None:
        """Report clocks to the driver, not more often than every _REPORT_SECONDS seconds."""
        if now - self._told_at < _REPORT_SECONDS and self._low < FAR:
            return
        told = self._low, self._most()
        if told != self._reported:
            self._reported, self._told_at = told, min(now, self.task.now())
            if not self._in_place:  # a stage reports its end only: each report is a call of its own
                self.tell("moved", told)

    def _most(self) -> int:
        return max((client.clock for client in self.clients), default=self.task.payload.clock)

    def _park(self, client: ClusterWorker, what: str) -> None:
        client.waits = (what, self.task.now())
        try:
            self.turns.park(client)
        finally:
            client.waits = ("", 0.0)
