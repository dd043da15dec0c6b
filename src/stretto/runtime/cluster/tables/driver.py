"""The driver of a job over tables on a cluster: evaluations, checkpoints, and restarts after a lost host.

Hosts run the workers and report their clocks and their parts of cuts. `tables.run.table_run` decides what follows. The
driver carries it out: it evaluates the objective, saves checkpoints, and restarts from the last complete cut when a
host is lost. An evaluation at a clock uses a cut, and every cut is a checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import HostEvent
from stretto.runtime.cluster.hosts.failure_detector import Losses
from stretto.runtime.cluster.hosts.fleet import HostLost
from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.cluster.settings import ClusterSettings
from stretto.runtime.cluster.tables.array_parts import split, whole
from stretto.runtime.files.checkpoint import interval_seconds, writing
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.tables.checkpoints import CheckpointFolder, TableCheckpoint, WorkerState
from stretto.runtime.tables.job import ClockState, JobData, TableJob, TableMeasure, TableOutcome
from stretto.runtime.tables.run.cut_parts import CutParts
from stretto.runtime.tables.run.evaluations import Evaluate, Evaluations
from stretto.runtime.tables.run.node_cuts import CutPlan
from stretto.runtime.tables.run.table_run import TableRun
from stretto.runtime.tables.stalls import Stalls, WorkerPosition, warn
from stretto.store.layout import Layout
from stretto.store.node import NodePart
from stretto.store.recording import Traffic

from .events import EventHistory
from .final_state import NodeFinalState, arrays_of, joined, merged, tables_of
from .payload import TablePayload
from .task import make_table_task

_POLL_SECONDS = 0.2  # seconds between two checks of timers
_AHEAD = 0.3  # seconds of clocks by which a cut is planned ahead
_SILENCE_SECONDS = 60.0  # seconds without an event after which workers are asked for their status


def run(spec: ClusterSettings, job: TableJob) -> TableOutcome:
    """Run a job to its end."""
    with Hosts(spec) as hosts:
        driver = TableDriver(hosts, job)
        with writing(None if job.keeping is None else job.keeping.folder):
            return driver.run()


class SentData:
    """Which data the hosts have. A host that was replaced has none."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[Any, set[tuple[str, tuple[int, ...]]]]] = {}

    def missing(self, host: int, address: Any, data: JobData | None, workers: list[int]) -> dict[tuple[int, ...], Any]:
        """The data of these workers that a host has not got yet; from now on it has them."""
        if data is None:
            return {}
        known, keys = self._sent.get(host, (None, set()))
        if known != address:
            keys = set()
        wanted = [key for worker in workers for key in data.keys(worker) if (data.owner, key) not in keys]
        self._sent[host] = address, keys | {(data.owner, key) for key in wanted}
        return {key: data.make(key) for key in wanted}

    def forget(self, owner: str, number: int) -> None:
        """The hosts have freed a data set."""
        for host, (address, keys) in self._sent.items():
            self._sent[host] = address, {key for key in keys if (key[0], key[1][0]) != (owner, number)}


class TableHosts(Protocol):
    """What the driver uses of `Hosts`, or of the hosts of a stage."""

    nodes: int

    @property
    def addresses(self) -> Mapping[int, Any]: ...
    @property
    def counted(self) -> Losses: ...

    def begin(self, make: Any, payloads: Callable[[int, list[int]], Any]) -> None: ...
    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]: ...
    def events(self, wait: float) -> list[HostEvent]: ...
    def halt(self) -> None: ...
    def lose(self, lost: HostLost, then: str = "") -> None: ...
    def words(self, host: int) -> str: ...


class TableDriver:
    """Drives one job."""

    def __init__(
        self,
        hosts: TableHosts,
        job: TableJob,
    ) -> None:
        self.hosts, self.job = hosts, job
        self._sent = SentData()
        self.layout = job.layout(hosts.nodes, reserve=True)
        self.checkpoints = CheckpointFolder(job.keeping) if job.keeping is not None else None
        self.first = self.checkpoints.begin() if self.checkpoints is not None else TableCheckpoint(0)
        timed = job.keeping is None or job.keeping.every is None
        self.state = TableRun(
            job.workers,
            hosts.nodes,
            members=hosts.nodes,
            evaluations=Evaluations.of(job, self.first.history),
            begin=_parts_of(self.first, self.layout),
            interval=self._interval if timed else None,
            ahead=_AHEAD,
            losses=hosts.counted,
        )
        self._lives = EventHistory()
        self._began = time.monotonic() - self.first.seconds
        self._evaluation_seconds = 0.0  # seconds spent on evaluations, which do not count
        self._asked = False
        self._sent_by: dict[int, int] = {}  # bytes by node
        self._at_end = False  # whether the final cut is in progress
        self._evaluated = self.state.last
        self._ends: dict[int, NodeFinalState] = {}  # of nodes that report their final state when they are drained
        self._working_seconds = 0.0  # from the start of the workers until their updates had reached the shards

    # -- from start to end -------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Handle Ctrl-C: stop at the end of a clock."""
        self._asked = True

    def run(self) -> TableOutcome:
        with heeding_ctrl_c(self) as ctrl_c:
            due = self.state.begin(self.now())
            while True:
                try:
                    self._begin(due)
                    began = time.perf_counter()
                    self._follow()
                    self._working_seconds += time.perf_counter() - began
                    if self.checkpoints is not None and not self.state.stopped:
                        self._save_end()
                    outcome = self._outcome()
                    # too late to stop the run, but the caller must still see it
                    if ctrl_c.heard() and outcome.stopped == "done":
                        outcome.stopped = "interrupted"
                    return outcome
                except HostLost as lost:
                    self.hosts.lose(lost, f"the run restarts from clock {self.state.last.clock}")
                    self._lives.restart(self.now(), self.state.last.clock)
                    due = self.state.restart(self.now())

    @property
    def working_seconds(self) -> float:
        """Seconds from the start of the workers, of the node that started last, until their updates had arrived."""
        return min((end.worked for end in self._ends.values()), default=self._working_seconds)

    def now(self) -> float:
        return time.monotonic() - self._began - self._evaluation_seconds

    def _interval(self, save_seconds: float) -> float:
        return interval_seconds(save_seconds, mean_time_to_failure=86_400.0 / self.layout.nodes)

    def _begin(self, due: list[Evaluate]) -> None:
        cut, job, layout = self.state.last, self.job, self.layout
        self._at_end = False
        self._news = time.monotonic()
        self._evaluate(due, cut)
        plain = replace(job, watch=None, until=None, seconds=None, keeping=None, data=None, monitor=None)
        every = {job.every if job.watch is not None else None, job.keeping.every if job.keeping is not None else None}
        plan = self._cut_plan = CutPlan(tuple(sorted(clocks for clocks in every if clocks)), cut.clock)
        began_at = time.time() - self.now()

        def payload(host: int, nodes: list[int]) -> TablePayload:
            workers = [worker for node in nodes for worker in layout.workers_of(node)]
            start = {node: NodePart(cut.clock, cut.shards[node], cut.residuals[node]) for node in nodes if cut.shards}
            return TablePayload(
                job=plain,
                layout=layout,
                start=start or None,
                parts={worker: cut.workers[worker] for worker in workers if worker in cut.workers},
                clock=cut.clock,
                cuts=plan,
                began_at=began_at,
                owner="" if job.data is None else job.data.owner,
                data=self._sent.missing(host, self.hosts.addresses[host], job.data, workers),
            )

        self.hosts.begin(make_table_task, payload)

    def _follow(self) -> None:
        """Handle events until all changes of the workers have reached the shards, or the run is stopped."""
        stalls = Stalls()
        look_at = time.monotonic() + stalls.after / 4
        self._through = False
        while not self._through:
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + stalls.after / 4
                self._warn_of_stalls(stalls)
            if self.state.stopped == "until":
                self.hosts.ask("stop", None)
                return
            told = self.hosts.events(max(0.0, min(_POLL_SECONDS, self.state.due_at - self.now())))
            for event in told:
                self._take(event)
                if self.state.stopped == "until":
                    break
            if told:
                self._news = time.monotonic()
            elif time.monotonic() - self._news > _SILENCE_SECONDS:
                self._check_progress()
            self._time()
            self._plan()

    def _save_end(self) -> None:
        """Save the state after all workers have ended, so that a run with more clocks can continue from it."""
        self._at_end = all(self.hosts.ask("cut", None).values())
        until = time.monotonic() + _SILENCE_SECONDS
        while self._at_end and time.monotonic() < until:
            for event in self.hosts.events(_POLL_SECONDS):
                self._take(event)

    # -- events ------------------------------------------------------------------------------------------------------

    def _take(self, event: HostEvent) -> None:
        what, node, value = event.what, event.node, event.value
        if what == "moved":
            if self.state.moved(node, *value) and self.job.monitor is not None:
                self.job.monitor.moved(self._measured)
        elif what == "worker":
            self._cut(self.state.worker_part(*value))
        elif what == "node":
            clock, residuals = value
            self._cut(self.state.node_part(clock, node, residuals))
        elif what == "shard":
            clock, arrays, _, nbytes = value
            self._sent_by[node] = nbytes
            self._cut(self.state.shard_part(clock, node, arrays, self.now(), nbytes))
        elif what == "recorded":
            self._lives.take(node, *value)
        elif what == "drained":
            if value is not None:
                self._ends[node] = value
            self._through = self.state.drained(node)
        elif what == "failed":
            worker, clock, error = value
            self._stop_quietly()
            if not isinstance(error, Exception):
                raise RunError(f"worker {worker} ended with {error!r} at clock {clock}")
            if hasattr(error, "add_note"):
                error.add_note(f"on {self.hosts.words(event.host)}")
            if worker < 0:
                raise error
            self.job.blame(worker, clock, error)

    def _measured(self) -> TableMeasure:
        """What the driver knows while nodes run: the lowest clock of each, and what it had sent at its last cut."""
        traffic = [Traffic(node, -1, "", "", 0, 0, nbytes) for node, nbytes in sorted(self._sent_by.items())]
        return TableMeasure(self.now(), list(self.state.clocks), traffic=traffic)

    def _cut(self, cut: CutParts | None) -> None:
        """A cut is complete: evaluate it, keep it, and save it if a checkpoint is due."""
        if cut is None:
            return
        if not self._at_end:
            self._evaluate(self.state.at_cut(cut), cut)
        self.state.keep(cut)
        every = None if self.job.keeping is None else self.job.keeping.every
        by_clock = every is not None and cut.clock % every == 0
        if self.checkpoints is None:
            self.state.saved(self.now(), self.state.save_seconds)
        elif by_clock or self.state.save_due(self.now()) or self._at_end or cut.clock == self.state.stop_clock:
            took = self.checkpoints.save(self._whole(cut))
            self.state.saved(self.now(), took)
        self._at_end = False

    def _whole(self, cut: CutParts) -> TableCheckpoint:
        """A cut as it is saved: independent of the number of nodes."""
        node = whole(cut.clock, cut.shards.values(), cut.residuals.values()) if cut.shards else None
        return TableCheckpoint(cut.clock, cut.workers, node, history=list(cut.history), seconds=self.now())

    def _plan(self) -> None:
        """Request a cut when one is due, or when the user wants to stop."""
        clock = self.state.cut_due(self.now(), at_once=self._asked)
        if clock is not None and self._open(clock) and self._asked:
            self.state.interrupt(clock)
            self.hosts.ask("stop", clock)

    def _open(self, clock: int) -> bool:
        """Request a cut from all nodes; it is cancelled if a node has already passed its clock."""
        if all(self.hosts.ask("cut", clock).values()):
            return True
        if clock not in self._cut_plan:  # nodes make the cuts of their plan in any case
            self.hosts.ask("cancel", clock)
            self.state.refused(clock)
        return False

    def _time(self) -> None:
        """Carry out evaluations that are due by time."""
        for due in self.state.time(self.now(), self.state.next_clock(self.now()) - 1):
            if isinstance(due, Evaluate):
                self._evaluate([due], self._present())
            else:
                self._open(due.clock)

    def _present(self) -> CutParts:
        """The current tables of the shards; workers' own values as in the last cut."""
        found = {node: part for nodes in self.hosts.ask("present").values() for node, part in nodes.items()}
        shards = {node: arrays_of(self.layout, tables) for node, (tables, _) in sorted(found.items())}
        nbytes = sum(nbytes for _, nbytes in found.values())
        return CutParts(self.state.low, self.state.last.workers, {}, shards, self.now(), nbytes)

    def _stop_quietly(self) -> None:
        with contextlib.suppress(HostLost):  # an error is being raised, and the hosts end with it
            self.hosts.halt()

    def _warn_of_stalls(self, stalls: Stalls) -> None:
        """Warn the user of workers that do not tick."""
        standing = [client for clients in self.hosts.ask("standing").values() for client in clients if not client.ended]
        warn(
            stalls.see(
                time.monotonic(), {client.worker: WorkerPosition(client.clock, client.waits) for client in standing}
            )
        )

    def _check_progress(self) -> None:
        """After a long time without events: RunError if all workers wait for each other (a bug); fine while one
        computes.
        """
        standing = [client for clients in self.hosts.ask("standing").values() for client in clients if not client.ended]
        if any(not client.waits for client in standing):
            self._news = time.monotonic()
            return
        where = ", ".join(f"worker {client.worker} at clock {client.clock} ({client.waits})" for client in standing[:8])
        raise RunError(
            f"the run has made no progress for {_SILENCE_SECONDS:g} s: {where or 'all workers have ended'}; "
            "please report this"
        )

    # -- evaluating --------------------------------------------------------------------------------------------------

    def _evaluate(self, due: list[Evaluate], cut: CutParts) -> None:
        """Evaluate the objective on the tables of a cut."""
        for at in due:
            self._evaluated = cut
            began, seconds = time.monotonic(), cut.seconds or self.now()

            def values(table: int) -> tuple[Keys, NDArray[Any]]:
                spec = self.layout.tables[table]
                if not cut.shards:
                    return np.empty(0, np.int64), np.empty((0, spec.cols), spec.kept)
                parts = cut.shards.values()
                keys = np.concatenate([part[f"{spec.name}/keys"] for part in parts])
                return keys, np.concatenate([part[f"{spec.name}/values"] for part in parts])

            local = tuple(cut.workers.get(worker, WorkerState()).local for worker in range(self.job.workers))
            try:
                self.state.evaluated(*self.job.evaluate(ClockState(at.clock, seconds, cut.nbytes, values, local)))
            except Exception as error:
                self._stop_quietly()
                self.job.blame(-1, at.clock, error)
            self._evaluation_seconds += time.monotonic() - began

    def _outcome(self) -> TableOutcome:
        ends = self._ends
        if len(ends) < self.layout.nodes:
            found = self.hosts.ask("final", timeout=_SILENCE_SECONDS)
            ends = {rest.node: rest for nodes in found.values() for rest in nodes.values()}
        seconds = self.now()
        rests = [ends[node] for node in sorted(ends)]
        recording = merged(self.layout, self.job.record, rests, self._lives, self.first)
        recording.seconds = seconds
        if self.state.stopped == "until":  # the state that was evaluated, without later changes
            recording.closed = min(rest.closed for rest in rests)
            tables = tables_of(self.layout, self._whole(self._evaluated))
            kept = {worker: self._evaluated.workers.get(worker, WorkerState()) for worker in range(self.job.workers)}
            clocks = {worker: part.clock for worker, part in kept.items()}
            local = {worker: part.local for worker, part in kept.items()}
        else:
            tables = tuple(map(joined, zip(*(rest.tables for rest in rests), strict=True)))
            clocks = {worker: clock for rest in rests for worker, clock in rest.clocks.items()}
            local = {worker: kept for rest in rests for worker, kept in rest.local.items()}
            parts = {worker: WorkerState(kept) for worker, kept in local.items()}
            end = CutParts(self.state.most, parts, {}, {0: arrays_of(self.layout, tables)}, seconds, recording.bytes)
            self._evaluate(self.state.ended(), end)
        lag = np.zeros((self.job.workers, 32), np.int64)
        for rest in rests:
            workers = self.layout.workers_of(rest.node)
            lag[workers.start : workers.stop] = rest.staleness
        return TableOutcome(
            tables,
            tuple(clocks[worker] for worker in range(self.job.workers)),
            seconds,
            tuple(local[worker] for worker in range(self.job.workers)),
            self.state.stopped or "done",
            self.state.history,
            lag,
            recording.traffic(),
            recording,
            sum(rest.items for rest in rests),
        )


def _parts_of(cut: TableCheckpoint, layout: Layout) -> CutParts:
    """Split a saved cut over the nodes of a layout."""
    parts = CutParts(cut.clock, dict(cut.parts), history=list(cut.history))
    for node, part in ({} if cut.node is None else split(layout, cut.node)).items():
        parts.shards[node], parts.residuals[node] = part.shard, part.residuals
    return parts
