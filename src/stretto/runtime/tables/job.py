"""What a door hands to a runtime that serves tables, and what comes back.

The runtime makes the nodes of `job.layout(nodes)`, gives every logical worker a `Seat` and calls `job.work(seat)` on a
thread or greenlet of its own. The seat's calls return when the rule allows. When `work` returns, the worker has ended:
what it added since its last tick is sent as part of the clock it was in, and it holds nobody back any more (its clock
counts as `FAR`). When `work` raises, the run ends and `job.blame` turns the error into the one that is raised.

A seat that begins again after a crash, or in a run that is resumed, has the `clock`, `local` and `cursors` it had at
the checkpoint's clock. A worker that had ended by then is not called again, unless the whole run had ended: resumed, it
goes on where its workers stopped, if they have more to do now (see `runtime.tables.checkpoints.Shelf.begin`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
RESERVED_SPARSE = 2**22  # bytes of all that a cache keeps: the same for sparse tables. It spares a lookup and a lock
_SLOT = 64  # bytes that a cache keeps of a row beside two copies of its values: clocks, shard, lookup, dirty marks


class Ended(BaseException):
    """Raised inside a worker that shall end, because the run does. Not an Exception, so that workers let it pass."""


class Seat(Protocol):
    """One logical worker's place on a node. Arrays are checked already: keys int64 [n], values [n, cols] C-contiguous
    in the dtype the table is kept in; nobody changes keys and deltas later when the run records everything.
    """

    worker: int
    node: int
    local: dict[str, Any]  # arrays and numbers of the worker, part of every checkpoint
    cursors: list[list[int]]  # where the worker's batches stand, part of every checkpoint too
    unticked: bool  # its function has returned, having added something since the last tick; part of checkpoints too

    @property
    def clock(self) -> int:
        """Ticks made so far."""

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Fill `out`; returns when the rows are fresh enough."""

    def ask(self, table: int, keys: Keys) -> None:
        """Have missing rows fetched. Does not wait, reads nothing."""

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add to rows."""

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        """In this clock the worker will add to these rows of the table only."""

    def tick(self) -> None:
        """End a clock."""

    def work(self, items: float) -> None:
        """So much has been computed: costs virtual time where time is virtual."""

    def shared(self, table: int) -> tuple[NDArray[Any], Any]:
        """[rows, cols] a table in `job.shared` itself, and its lock; runtimes of one process only."""


@dataclass(frozen=True, eq=False)
class Moment:
    """Where a run stands when clock `clock` is closed, for whoever watches. values(table): keys [n] and rows [n, cols]
    the shards hold now; rows that are not listed hold what they began with. local: of each worker, as it is.
    """

    clock: int
    seconds: float
    nbytes: int  # sent between nodes so far
    values: Callable[[int], tuple[Keys, NDArray[Any]]]
    local: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Watched:
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
class Keeping:
    """Where and how often checkpoints are saved; every: clocks, None for as often as saving is worth it."""

    folder: Path
    every: int | None = None
    keep: int = 2
    resume: bool = False
    fingerprint: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # what the fingerprint is made of, by name

    def checkpoints(self, tell: Listener = warn) -> RunCheckpoints:
        """What writes and reads them."""
        saving = Saving(self.folder, self.every, None, self.keep)
        return RunCheckpoints(saving, self.fingerprint, self.settings, tell=tell)


@dataclass(frozen=True, eq=False)
class TableJob:
    """A worker function and its tables, checked and ready to run."""

    tables: tuple[TableSpec, ...]
    workers: int
    rule: Rule
    policy: Policy
    work: Callable[[Seat], None]  # runs the user's function for one logical worker, to its end
    blame: Callable[[int, int, Exception], NoReturn]  # (worker, clock, error); worker −1: the watching function
    watch: Callable[[Moment], float] | None = None
    every: int | None = 1  # clocks between two evaluations; the start (clock 0) and the end are evaluated too
    seconds: Times | None = None  # when evaluations by time are due
    until: Callable[[Watched], bool] | None = None  # asked after every look; True ends the run
    record: str | None = None  # "rows": how often rows travel; "full": everything the replay checker needs
    seed: int = 0
    shared: frozenset[int] = frozenset()  # tables with placement "shared"
    keeping: Keeping | None = None
    every_clocks: int | None = None  # between checkpoints that a simulated cluster keeps to itself

    @property
    def whole(self) -> Layout:
        """The tables as they are, for those who put them together: what rows begin with, how many there are."""
        return Layout(self.tables, 1, self.workers, self.rule, self.policy, seed=self.seed)

    def evaluate(self, moment: Moment) -> tuple[Watched, bool]:
        """Evaluate the objective; whether that ends the run."""
        assert self.watch is not None
        look = Watched(moment.clock, moment.seconds, moment.nbytes, float(self.watch(moment)))
        return look, self.until is not None and bool(self.until(look))

    def layout(self, nodes: int, *, reserve: bool = False) -> Layout:
        """The layout for a number of nodes. reserve: caches hold every row of tables not sparse or large."""
        tables = list(self.tables)
        for number in self.shared:  # caches and shards know nothing of them but their number
            tables[number] = replace(tables[number], rows=1, cols=1, start=0.0, cache_rows=None)
        if nodes == 1:  # nothing to choose from
            tables = [replace(table, shards=None, partition="hash") for table in tables]
        if reserve:
            tables = [replace(table, sparse=_sparse(table)) for table in tables]
        for table in tables:
            if table.shards is not None and max(table.shards) >= nodes:
                raise PlanError(
                    f"table {table.name!r}: shards={table.shards}, and this run has nodes 0 to {nodes - 1}; name some "
                    "of these, or leave shards= out"
                )
        if isinstance(self.policy, Managed) and nodes > 1:  # a single node sends nothing
            self.policy.check_nodes(nodes)
        witness = self.record == "full"
        return Layout(tuple(tables), nodes, self.workers, self.rule, self.policy, witness, reserve, self.seed)


def _sparse(table: TableSpec) -> bool:
    """Whether caches keep only the rows of a table that are touched."""
    rows, values = table.rows or 0, table.cols * table.kept.itemsize
    return rows * values > RESERVED or (table.sparse and rows * (_SLOT + 2 * values) > RESERVED_SPARSE)


@dataclass(frozen=True, eq=False)
class Rest:
    """What a table holds at the end: keys [n] of the rows that were touched, in any order, their values [n, cols], and
    the server function's arrays [n, cols] beside them.
    """

    keys: Keys
    values: NDArray[Any]
    states: tuple[NDArray[Any], ...] = ()


@dataclass(eq=False)
class Outcome:
    """How a run went. seconds: of a steady clock, or virtual; watching is not counted."""

    tables: tuple[Rest, ...]
    clocks: tuple[int, ...]  # ticks of each worker
    seconds: float
    local: tuple[dict[str, Any], ...]
    stopped: str = "done"  # or "until", "interrupted"
    history: list[Watched] = field(default_factory=list)
    staleness: NDArray[np.int64] | None = None  # [workers, 32] rows read by how many clocks they lagged behind
    traffic: Sequence[Any] = ()  # store.recording.Traffic: who sent how much to whom, and why
    recording: Any = None
    items: float = 0.0  # what workers said they computed
