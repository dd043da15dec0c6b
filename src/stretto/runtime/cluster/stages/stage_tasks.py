"""The tasks of a host in a stage: on one node over the rows it holds, or on several with caches and shards.

Both use states where they are (`runtime.stages.held_states`) and wait until those are ready: chunks that a transfer is
bringing must have arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime import kept_threads
from stretto.runtime.cluster.hosts.calls import TABLES, BeginTask, HostApi, HostEvent
from stretto.runtime.cluster.hosts.output import end_lines
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.cluster.tables.node import NodeWorkers
from stretto.runtime.cluster.tables.payload import TablePayload
from stretto.runtime.cluster.tables.task import TableTask
from stretto.runtime.stages.data_store import StageBlocks, put
from stretto.runtime.stages.held_states import HeldState, StateShape, held_state
from stretto.runtime.tables.job import TableJob
from stretto.runtime.tables.local_run import LocalRun
from stretto.store.local.paged import PagedTable
from stretto.store.shard.table import KeyedRows

_GLANCE = 0.2  # seconds between two checks whether the task was halted


@dataclass(frozen=True, eq=False)
class StagePayload:
    """What a node needs for a stage."""

    shared: Any  # (job, layout), which all nodes get (`fleet.SentValue`); no layout in a stage on one node
    owner: str  # of the states, with the number of the node
    states: tuple[tuple[int, StateShape], ...]  # number and shape of the state of each table
    threads: int
    tables: TablePayload | None = None  # of a stage on several nodes
    data_owner: str = ""
    data: dict[tuple[int, ...], Any] = field(default_factory=dict)  # for the host to keep, besides what it has
    blocks: StageBlocks | None = None  # data that are read while it runs
    parts: tuple[int, ...] = ()  # that run on the node

    def held(self) -> list[HeldState]:
        """The states on this node."""
        return [held_state(self.owner, number, shape) for number, shape in self.states]


@dataclass(eq=False)
class LocalStageEnd:
    """What a stage on one node leaves behind, besides the states."""

    seconds: float
    local: tuple[dict[str, Any], ...]
    items: float
    changed: tuple[NDArray[np.int64], ...]  # by table: chunks
    fetched: int  # bytes of chunks that were taken on demand
    replaced: int  # chunks that were written to disk for others


def make_local_stage(host: HostApi, begin: BeginTask) -> LocalStageTask:
    """Create the task of a stage on one node."""
    return LocalStageTask(host, begin)


def make_wide_stage(host: HostApi, begin: BeginTask) -> WideStageTask:
    """Create the task of a stage on several nodes."""
    return WideStageTask(host, begin)


class LocalStageTask:
    """A stage on one node: threads over the rows that this process holds. No traffic but for chunks on demand."""

    channel = TABLES

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        (self._payload,) = begin.payload.values()
        self._host, self._begin = host, replace(begin, payload=None)
        payload: StagePayload = self._payload
        if payload.data:
            put(payload.data_owner, payload.data)
        self._held = payload.held()
        self._halted = threading.Event()
        self._run: LocalRun | None = None
        self._thread: kept_threads.Running | None = None

    def start(self) -> None:
        """Start the stage when its states are ready; returns at once."""
        self._thread = kept_threads.start("stretto-stage", self._body)

    def halt(self) -> None:
        """Stop all threads."""
        self._halted.set()
        run = self._run
        if run is not None:
            with run.lock:
                run.turns.end(run.clients)
        if self._thread is not None:
            self._thread.join()

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """No messages between nodes belong to it."""

    def tend(self, now: float) -> float:
        """It has no timers."""
        return inf

    def ask(self, what: str, *args: Any) -> Any:
        """A stage on one node has no calls."""
        raise RunError(f"a host was asked for {what!r}, and this stage has no such call; please report this")

    def _body(self) -> None:
        blocks = self._payload.blocks
        try:
            with nullcontext() if blocks is None else blocks.reading(self._payload.parts):
                if not _ready(self._held, self._halted):
                    return
                end = self._stage()
            self._tell("ended", end)
        except BaseException as error:
            if not self._halted.is_set():
                self._tell("failed", portable(error))
        finally:
            end_lines()
            for held in self._held:
                held.arrives = None

    def _stage(self) -> LocalStageEnd:
        payload, tables = self._payload, [held.table() for held in self._held]
        job: TableJob = payload.shared[0]
        run = self._run = LocalRun(job, payload.threads, tables)
        paged = [(held, table) for held, table in zip(self._held, tables, strict=True) if isinstance(table, PagedTable)]
        for held, table in paged:
            held.arrives = _Arrivals(run, table)
        outcome = run.run()
        run.settle()
        changed = tuple(
            held.ended(table, shared=number in job.shared)
            for number, (held, table) in enumerate(zip(self._held, tables, strict=True))
        )
        return LocalStageEnd(
            outcome.seconds,
            outcome.local,
            outcome.items,
            changed,
            sum(held.arrives.nbytes for held, _ in paged),
            sum(table.replaced for _, table in paged),
        )

    def _tell(self, what: str, value: Any) -> None:
        self._host.tell(HostEvent(self._begin.incarnation, self._host.number, what, 0, value))


class _Arrivals:
    """Hands chunks that arrive to the table of a stage. On the network thread."""

    def __init__(self, run: LocalRun, table: PagedTable) -> None:
        self._run, self._table = run, table
        self.nbytes = 0

    def __call__(self, chunk: int, rows: NDArray[Any]) -> None:
        with self._run.lock:
            self._table.arrived(chunk, rows)
            self.nbytes += rows.nbytes
            self._run.wake()
            self._run.arrived.notify_all()


class WideStageTask(TableTask):
    """A stage on several nodes. Frames that come before its states are ready wait."""

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        payloads: dict[int, StagePayload] = begin.payload
        first = next(iter(payloads.values()))
        tables, (job, layout) = first.tables, first.shared
        assert tables is not None
        self._states = [held for payload in payloads.values() for held in payload.held()]
        rows = {
            node: {table: KeyedRows(held.values, held.keys, held.kept) for table, held in enumerate(payload.held())}
            for node, payload in payloads.items()
        }
        self._blocks = [(payload.blocks, payload.parts) for payload in payloads.values() if payload.blocks is not None]
        for payload in payloads.values():
            if payload.data:
                put(payload.data_owner, payload.data)
        threads = sum(payload.threads for payload in payloads.values())
        super().__init__(
            host, replace(begin, payload=replace(tables, job=job, layout=layout, rows=rows, threads=threads))
        )
        self._starting = threading.Event()  # halted before it has started
        self._opening = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[float, int, int, Sequence[Frame]]] = []

    def start(self) -> None:
        """Start to read, and the workers when the states are ready; returns at once."""
        for blocks, parts in self._blocks:
            blocks.begin(parts)
        if all(held.ready.is_set() for held in self._states):
            self._open()
        else:
            kept_threads.start("stretto-stage", self._open_later)

    def _open_later(self) -> None:
        if _ready(self._states, self._starting):
            self._open()

    def _open(self) -> None:
        with self._opening:
            if self._starting.is_set():
                return
            super().start()
            waiting, self._waiting = self._waiting, []
            for entry in waiting:
                super().receive(*entry)
            self._is_open = True

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Handle frames of another node, or keep them until the stage has started."""
        if not self._is_open:
            with self._opening:
                if not self._is_open:
                    self._waiting.append((now, source, target, frames))
                    return
        super().receive(now, source, target, frames)

    def tend(self, now: float) -> float:
        """Run timers once it has started."""
        return super().tend(now) if self._is_open else now + _GLANCE

    def _fail(self, group: NodeWorkers, worker: int, clock: int, error: BaseException) -> None:
        super()._fail(group, worker, clock, error)
        for blocks, _ in self._blocks:
            blocks.stop()

    def halt(self) -> None:
        """Stop all threads."""
        self._starting.set()
        with self._opening:
            super().halt()


def _ready(states: Sequence[HeldState], halted: threading.Event) -> bool:
    """Wait until states are ready; False: halted before."""
    for held in states:
        while not held.ready.wait(_GLANCE):
            if halted.is_set():
                return False
    return not halted.is_set()
