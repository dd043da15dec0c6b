"""The task of a host in a job over tables: its nodes and the threads of their workers, for one incarnation.

As on `Threads` (`runtime.tables.threads`), at most `host.threads` of the workers' threads run at a time, and one lock
guards everything except reads and adds that need none. Messages of other nodes are passed to the state machines on the
network thread, under the same lock, which is never held for long.

Events that it reports to the driver, each with the node: "moved" (lowest clock of its workers, highest), "worker",
"node" and "shard" (parts of cuts: see `runtime.tables.run.node_cuts`), "recorded" (in full recordings: a worker's
events since its last part of a cut), "ended" when all its workers have, "drained" when all changes have reached its
shard, and "failed" (worker, clock, error); worker −2 is an error of Stretto itself.

Calls that the driver may make: "cut" (clock, or None when all have ended), "cancel" (clock), "stop" (clock, or None for
now), "final", "present" (the current tables) and "standing".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from stretto.comm.link import Frame, by_target
from stretto.errors import RunError
from stretto.runtime import kept_threads
from stretto.runtime.cluster.hosts.calls import TABLES, BeginTask, HostApi, HostEvent
from stretto.runtime.cluster.hosts.output import end_lines
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.cluster.net.frame_checks import TableCheck
from stretto.runtime.stages.data_store import put
from stretto.runtime.tables.job import FinalRows, WorkerExit
from stretto.runtime.tables.turn_order import TurnOrder

from .final_state import NodeFinalState
from .node import NodeWorkers
from .payload import TablePayload
from .pressure import EASED, Pressure
from .workers import ClusterWorker

OURS = -2  # worker number of an error in Stretto itself; −1 is the objective function
_CHUNK = 4 << 20  # bytes of a cut that are copied at a time
_MOST_WAIT = 0.5


class WorkerStatus(NamedTuple):
    """The status of a worker."""

    worker: int
    clock: int
    ended: bool
    waits: str  # "read", "tick", "network", "turn", or "" while it computes
    seconds: float  # for how long


def make_table_task(host: HostApi, begin: BeginTask) -> TableTask:
    """Create the task of a `BeginTask` whose payload is a TablePayload."""
    return TableTask(host, begin)


class TableTask:
    """The tables of one incarnation on a host. `zero`: its creation by the host's clock, to which the nodes' times are
    relative; `late`: the same in seconds of the run, as far as the machines' wall clocks agree.
    """

    channel = TABLES

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        payload = begin.payload
        if not isinstance(payload, TablePayload):
            raise RunError(f"a table task was given a {type(payload).__name__}, not a TablePayload")
        self.host, self.begin, self.payload = host, replace(begin, payload=None), payload
        self.check = TableCheck(payload.layout)  # validates received frames
        self.zero, self.late = host.now(), 0.0
        if payload.began_at is not None:
            self.late = time.time() - payload.began_at
        self.turns = TurnOrder(payload.threads or host.threads)
        self.lock = self.turns.lock
        self.last: int | None = None  # the clock at which all workers stop
        self.due = inf  # when `tend` will be called
        self.on_wire = False  # the network thread holds the lock and calls `tend` next
        mine = begin.nodes_of(host.number)
        others = [node for node, at in enumerate(begin.where) if at != host.number]
        far = list({begin.where[node]: node for node in others}.values())  # one node of each host
        self.pressure = Pressure(lambda: max((host.backlog(self.begin, node) for node in far), default=0))
        self.groups = {node: NodeWorkers(self, node) for node in mine}
        if payload.data:
            put(payload.owner, payload.data)
        self.payload = replace(payload, start=None, parts={}, data={})  # the nodes and workers have taken these
        self._clients = [client for group in self.groups.values() for client in group.clients]
        self._threads: list[kept_threads.Running] = []
        self._failed = self._halted = False
        self._saving = threading.Condition(self.lock)
        self._saver = self._to_save = False  # whether the thread that copies cuts runs, and has something to do
        rows = max(table.cols * table.kept.itemsize * (1 + table.apply.states) for table in payload.layout.tables)
        self._chunk = max(256, _CHUNK // rows)

    def now(self) -> float:
        """Seconds since the task was created."""
        return self.host.now() - self.zero

    # -- what the host calls -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; returns at once."""
        waiting = [(group, client) for group in self.groups.values() for client in group.clients if not client.ended]
        with self.lock:
            for group in self.groups.values():
                group.start()
            self._threads += [
                kept_threads.start(f"stretto-worker-{client.worker}", self._body, group, client)
                for group, client in waiting
            ]
        self.host.rouse()

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Handle frames of node `source` for node `target` of this host. On the network thread."""
        group = self.groups.get(target)
        if group is None:
            return
        with self.lock:
            self.on_wire = True
            try:
                if not self._halted:  # a time not earlier than what happened while the lock was awaited
                    group.receive(self.now(), source, frames)
            except Exception as error:
                self._fail(group, OURS, group.node.shard.clock, error)
            finally:
                self.on_wire = False

    def tend(self, now: float) -> float:
        """Run timers; return when to call again."""
        with self.lock:
            if self._halted:
                return inf
            here = self.now()
            due = here + _MOST_WAIT
            self.on_wire = True
            for group in self.groups.values():
                try:
                    due = min(due, group.tend(here))
                except Exception as error:
                    self._fail(group, OURS, group.node.shard.clock, error)
            self.on_wire = False
            pressure = self.pressure
            if pressure.look(here):
                due = min(due, here + EASED)
            elif pressure.waiting:
                for client in pressure.waiting:
                    self.turns.rouse(client)
                pressure.waiting.clear()
            self.due = due
        return due + self.zero

    def reset(self, now: float, peers: Sequence[int]) -> None:
        """The lost connection to these nodes was re-established. On the network thread."""
        with self.lock:
            self.on_wire = True
            for group in self.groups.values() if not self._halted else ():
                group.reset(peers)
            self.on_wire = False

    def halt(self) -> None:
        """Stop all threads; returns when they have ended."""
        with self.lock:
            self._halted = True
            self.turns.end(self._clients)
            self._saving.notify()
        for thread in self._threads:
            thread.join()

    def ask(self, what: str, *args: Any) -> Any:
        """Answer a call of the driver."""
        known: dict[str, Callable[..., Any]] = {
            "cut": self._ask_cut,
            "cancel": self._ask_cancel,
            "stop": self._ask_stop,
            "final": self._ask_final,
            "present": self._ask_present,
            "standing": self._ask_standing,
        }
        if what not in known:
            raise RunError(f"a host was asked for {what!r}, and tables have no such call; please report this")
        with self.lock:
            return known[what](*args)

    # -- called by nodes, with the lock ------------------------------------------------------------------------------

    def ship(self, source: int, frames: list[tuple[int, Frame]]) -> None:
        """Send frames of a node to others; those with the same target travel together."""
        for target, train in by_target(frames).items():
            self.host.post(self.begin, source, target, TABLES, train)

    def tell(self, what: str, node: int, value: Any = None) -> None:
        """Report an event to the driver."""
        self.host.tell(HostEvent(self.begin.incarnation, self.host.number, what, node, value))

    def save(self) -> None:
        """Wake the thread that copies a shard's cut. The first cut starts it."""
        self._to_save = True
        if not (self._saver or self._halted):
            self._saver = True
            self._threads.append(kept_threads.start("stretto-saver", self._save))
        self._saving.notify()

    # -- threads -----------------------------------------------------------------------------------------------------

    def _body(self, group: NodeWorkers, client: ClusterWorker) -> None:
        try:
            with self.lock:
                self.turns.take(client)
            if not self.turns.ending:
                self.payload.job.work(client)
            with self.lock:
                group.leave(client)
        except WorkerExit:
            with self.lock:
                group.leave(client)
        except BaseException as error:
            with self.lock:
                self._fail(group, client.worker, client.clock, error)
        finally:
            end_lines()
            with self.lock:
                self.turns.drop(client)
                group.left -= 1
                if not group.left and not self._halted:
                    group.tell_ended()

    def _fail(self, group: NodeWorkers, worker: int, clock: int, error: BaseException) -> None:
        """The first error stops the run on this host; the driver stops it on the others."""
        if not (self._failed or self._halted):
            self._failed = True
            group.tell("failed", (worker, clock, portable(error)))
        self.turns.end(self._clients)

    def _save(self) -> None:
        """Copy cuts of shards in chunks, so that no worker waits for a whole copy."""
        while True:
            with self.lock:
                while not (self._to_save or self._halted):
                    self._saving.wait()
                self._to_save = False
                if self._halted:
                    return
            for group in self.groups.values():
                try:
                    while self._take_cut(group):
                        pass
                except Exception as error:
                    with self.lock:
                        self._fail(group, OURS, group.node.shard.clock, error)

    def _take_cut(self, group: NodeWorkers) -> bool:
        from stretto.store.shard.snapshot import joined

        shard, began, pieces = group.node.shard, self.now(), []
        clock = shard.saving
        while clock is not None:
            with self.lock:
                if self._halted or shard.saving != clock:
                    return False
                piece = shard.saved_piece(self._chunk)
                last = shard.saving != clock
            assert piece is not None
            pieces.append(piece)
            if last:
                arrays = joined(pieces)
                with self.lock:
                    if group.cuts.saved(clock):
                        group.tell("shard", (clock, arrays, self.now() - began, group.recording.bytes))
                return True
        return False

    # -- calls of the driver, with the lock --------------------------------------------------------------------------

    def _ask_cut(self, clock: int | None) -> bool:
        """Plan a cut at a clock, or at the end if None. False, without effect, if a worker of this host is past that
        clock.
        """
        if clock is not None and any(not client.ended and client.clock >= clock for client in self._clients):
            return False
        opened: list[NodeWorkers] = []
        for group in self.groups.values():
            clock = group.node.shard.clock if clock is None else clock
            if not group.cuts.open(clock):
                for other in opened:
                    other.cuts.cancel(clock)
                return False
            opened.append(group)
            group.after()
        return True

    def _ask_cancel(self, clock: int) -> None:
        for group in self.groups.values():
            group.cuts.cancel(clock)

    def _ask_stop(self, clock: int | None) -> None:
        """Stop all workers at this clock; None: at once."""
        if clock is None:
            self.turns.end(self._clients)
            return
        self.last = clock
        for group in self.groups.values():
            group.cuts.end(clock)

    def _ask_final(self) -> dict[int, NodeFinalState]:
        return {node: group.rest() for node, group in self.groups.items()}

    def _ask_present(self) -> dict[int, tuple[tuple[FinalRows, ...], int]]:
        """The current tables of the shards, and the bytes that their nodes have sent."""
        return {node: (group.tables(), group.recording.bytes) for node, group in self.groups.items()}

    def _ask_standing(self) -> list[WorkerStatus]:
        now = self.now()
        return [
            WorkerStatus(
                client.worker,
                client.clock,
                client.ended,
                client.waits[0] or ("" if client.turn or client.ended else "turn"),
                now - client.waits[1] if client.waits[0] else 0.0,
            )
            for client in self._clients
        ]
