"""The interface between `st.run` and the runtimes with tables: `TableJob`, `WorkerApi`, `TableOutcome`.

The runtime creates the nodes of `job.layout(nodes)`, gives every logical worker a `WorkerApi`, and calls
`job.work(client)` on its own thread or greenlet. The client's calls return when the consistency rule allows it. When
`work` returns, the worker has ended: what it added since its last tick is sent as part of its current clock, and no
other worker waits for it any more (its clock counts as `FAR`). When `work` raises, the run ends and `job.blame` turns
the error into the one that is raised.

After a crash, or in a run that is resumed, a client has the `clock`, `local` and `cursors` of the checkpoint. A worker
that had ended by then is not called again, unless the whole run had ended: such a run continues where its workers
stopped, if they have more work now (see `runtime.tables.checkpoints.CheckpointFolder.begin`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.comm.policy import Managed, Policy
from stretto.consistency.rules import Rule
from stretto.errors import PlanError
from stretto.observe.events import Listener
from stretto.runtime.files.run_checkpoints import RunCheckpoints, Saving, warn
from stretto.store.layout import Layout, TableSpec

from .run.times import Times

FAR = 2**30  # the clock of a worker that has ended
RESERVED = 2**30  # bytes of values: caches hold a slot for every row of tables up to this size
# bytes of all cache data: the same limit for sparse tables. A reserved slot saves a lookup and a lock
RESERVED_SPARSE = 2**22
_SLOT = 64  # bytes that a cache needs for a row besides two copies of its values: clocks, shard, lookup, dirty marks


class WorkerExit(BaseException):
    """Raised inside a worker to end it because the run ends. Not an Exception, so that worker functions do not catch
    it.
    """


class WorkerApi(Protocol):
    """One logical worker's access to the tables.

    Arrays are already checked: keys int64 [n], values [n, cols] C-contiguous in the table's dtype. If the run records
    everything, keys and deltas must not change later.
    """

    worker: int
    node: int
    local: dict[str, Any]  # the worker's own arrays and numbers, part of every checkpoint
    cursors: list[list[int]]  # positions of the worker's batches, part of every checkpoint
    unticked: bool  # the function has returned and added something after the last tick; part of every checkpoint

    @property
    def clock(self) -> int:
        """Ticks made so far."""

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Fill `out`; returns when the rows are fresh enough."""

    def ask(self, table: int, keys: Keys) -> None:
        """Prefetch missing rows. Does not wait and returns nothing."""

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add to rows."""

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        """Announce that in this clock the worker adds only to these rows of the table."""

    def tick(self) -> None:
        """End a clock."""

    def work(self, items: float) -> None:
        """Report computed items: they cost virtual time where time is virtual."""

    def seconds(self) -> float | None:
        """Seconds of the run, virtual where time is; None where no time counts (serial)."""

    def shared(self, table: int) -> tuple[NDArray[Any], Any]:
        """[rows, cols] the array of a table in `job.shared`, and its RowAccess; in runtimes of one process only."""


@dataclass(frozen=True, eq=False)
class ClockState:
    """The state of a run when a clock is complete, for the objective function."""

    clock: int
    seconds: float  # of the run
    nbytes: int  # sent between nodes so far
    values: Callable[[int], tuple[Keys, NDArray[Any]]]  # by table: keys [n], rows [n, cols]; others have initial values
    local: tuple[dict[str, Any], ...]  # of each worker


@dataclass(frozen=True)
class TableEvaluation:
    """One evaluation of the objective of a run with tables.

    Attributes
    ----------
    clock : int
        The clock that was complete.
    seconds : float
        Seconds of the run.
    bytes : int
        Bytes sent between nodes so far.
    objective : float
        What `watch` returned.
    """

    clock: int
    seconds: float
    bytes: int
    objective: float


@dataclass(frozen=True)
class CheckpointSettings:
    """Where and how often checkpoints are saved."""

    folder: Path
    every: int | None = None  # clocks; None: an interval that balances saving time and lost work
    keep: int = 2  # checkpoints that are kept
    resume: bool = False
    fingerprint: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # the settings that the fingerprint covers, by name

    def checkpoints(self, tell: Listener = warn) -> RunCheckpoints:
        """The object that writes and reads them."""
        saving = Saving(self.folder, self.every, None, self.keep)
        return RunCheckpoints(saving, self.fingerprint, self.settings, tell=tell)


class JobData(Protocol):
    """Data that a job needs on the nodes of its workers, which keep them for later jobs of the same owner."""

    owner: str

    def keys(self, worker: int) -> list[tuple[int, ...]]:
        """The keys under which a worker finds its data."""

    def make(self, key: tuple[int, ...]) -> Any:
        """The data of a key."""


@dataclass(frozen=True)
class TableMeasure:
    """What a runtime knows of its run while it goes on."""

    seconds: float
    clocks: Sequence[int]
    staleness: Sequence[int] = ()  # rows read, by how many clocks they were behind
    waits: Sequence[float] = ()  # seconds of each worker
    traffic: Sequence[Any] = ()  # of store.recording.Traffic


class JobMonitor(Protocol):
    """Receives the progress of a run: `runtime.tables.monitor.TableMonitor`."""

    def evaluated(self, look: TableEvaluation) -> None:
        """An evaluation was made."""

    def moved(self, measure: Callable[[], TableMeasure]) -> None:
        """The lowest clock has advanced."""


@dataclass(frozen=True, eq=False)
class TableJob:
    """A worker function and its tables, checked and ready to run."""

    tables: tuple[TableSpec, ...]
    workers: int
    rule: Rule
    policy: Policy
    work: Callable[[WorkerApi], None]  # runs the user's function for one logical worker, to its end
    blame: Callable[[int, int, Exception], NoReturn]  # (worker, clock, error); worker −1: the objective function
    watch: Callable[[ClockState], float] | None = None
    every: int | None = 1  # clocks between two evaluations; the start (clock 0) and the end are evaluated too
    seconds: Times | None = None  # when evaluations by time are due
    until: Callable[[TableEvaluation], bool] | None = None  # called after every evaluation; True ends the run
    record: str | None = None  # "rows": how often rows are sent; "full": everything the replay checker needs
    seed: int = 0
    shared: frozenset[int] = frozenset()  # tables with placement "shared"
    keeping: CheckpointSettings | None = None
    every_clocks: int | None = None  # between checkpoints that a simulated cluster keeps in memory
    homes: tuple[int, ...] = ()  # the node of each worker, ascending; (): evenly over all nodes
    data: JobData | None = None  # for nodes that do not share this process's memory
    locking: str = "chunks"  # of rows of shared tables, or "none"
    steps: Callable[[WorkerApi], Iterator[None]] | None = None  # `work` one clock at a time, if it can be divided so
    monitor: JobMonitor | None = None  # receives the progress of the run; stays with the driver

    @property
    def whole(self) -> Layout:
        """The layout without partitioning: initial rows and number of rows of each table."""
        return Layout(self.tables, 1, self.workers, self.rule, self.policy, seed=self.seed)

    def evaluate(self, moment: ClockState) -> tuple[TableEvaluation, bool]:
        """Evaluate the objective; return the evaluation and whether it ends the run."""
        assert self.watch is not None
        look = TableEvaluation(moment.clock, moment.seconds, moment.nbytes, float(self.watch(moment)))
        if self.monitor is not None:
            self.monitor.evaluated(look)
        return look, self.until is not None and bool(self.until(look))

    def layout(self, nodes: int, *, reserve: bool = False) -> Layout:
        """The layout for a number of nodes. `reserve`: caches hold every row of tables that are neither sparse nor
        large.
        """
        tables = list(self.tables)
        for number in self.shared:  # caches and shards need only their numbers
            tables[number] = replace(tables[number], rows=1, cols=1, start=0.0, cache_rows=None)
        if nodes == 1:  # there is only one shard
            tables = [replace(table, shards=None, partition="hash") for table in tables]
        if reserve:
            tables = [replace(table, sparse=_sparse(table)) for table in tables]
        for table in tables:
            if table.shards is not None and max(table.shards) >= nodes:
                raise PlanError(
                    f"table {table.name!r}: shards={table.shards}, but this run has nodes 0 to {nodes - 1}; choose "
                    "from these, or leave out shards="
                )
        if isinstance(self.policy, Managed) and nodes > 1:  # a single node sends nothing
            self.policy.check_nodes(nodes)
        witness = self.record == "full"
        homes = self.homes if nodes > 1 else ()
        return Layout(tuple(tables), nodes, self.workers, self.rule, self.policy, witness, reserve, self.seed, homes)


def _sparse(table: TableSpec) -> bool:
    """Whether caches store only the touched rows of a table."""
    rows, values = table.rows or 0, table.cols * table.kept.itemsize
    return rows * values > RESERVED or (table.sparse and rows * (_SLOT + 2 * values) > RESERVED_SPARSE)


@dataclass(frozen=True, eq=False)
class FinalRows:
    """The final content of a table."""

    keys: Keys  # [n] rows that were touched, in any order
    values: NDArray[Any]  # [n, cols]
    states: tuple[NDArray[Any], ...] = ()  # [n, cols] each: further arrays of the server function


@dataclass(eq=False)
class TableOutcome:
    """The result of a run."""

    tables: tuple[FinalRows, ...]
    clocks: tuple[int, ...]  # ticks of each worker
    seconds: float  # monotonic or virtual time, without evaluations
    local: tuple[dict[str, Any], ...]
    stopped: str = "done"  # or "until", "interrupted"
    history: list[TableEvaluation] = field(default_factory=list)
    staleness: NDArray[np.int64] | None = None  # [workers, 32] rows read, by how many clocks they were behind
    traffic: Sequence[Any] = ()  # store.recording.Traffic: bytes by sender, receiver and reason
    recording: Any = None
    items: float = 0.0  # that workers reported as computed
