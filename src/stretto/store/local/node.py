"""`LocalNode`: the tables of a job on one node. Rows are read and changed where they are; clocks decide who waits.

It is used like `store.node.StoreNode`, and keeps the same rules. Under BSP a read at clock t sees the updates of clocks
< t and the reader's own: what a worker adds waits until all workers have ended the clock, and is then applied in the
order of the workers. Otherwise what is added is visible at once, and a read only waits for workers that are too far
behind.

    node = LocalNode(layout, tables)
    if not node.read(now, worker, table, keys, out): …   # wait until `woken` names the worker
    node.add(now, worker, table, keys, deltas)
    node.tick(now, worker)

Threads: reads and adds of tables for which `needs_lock` is False may be made at the same time, each by its own worker.
All other calls must be made one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.consistency.clocks import FOREVER, Clocks
from stretto.store.layout import Layout

from .changes import WaitingChanges
from .paged import PagedTable
from .table import NO_LOCKS, LocalTable

_LOCKS = 4096


class DirectAccess:
    """Reads and adds without the lock, for tables that need none."""

    def __init__(self, node: LocalNode) -> None:
        self.read, self.add = node.try_read, node.put


class LocalNode:
    """Clocks and tables of one node.

    Parameters
    ----------
    layout : Layout
        Rule and workers of the job.
    tables : sequence of LocalTable
        The rows of each table.

    Attributes
    ----------
    through : int
        The clock that all workers have reached. Changes of clocks before it are in the rows.
    woken : list of int
        Workers that were refused and may try again. The caller empties it.
    needs_lock : list of bool
        By table: reads and adds must be made one at a time.
    """

    def __init__(self, layout: Layout, tables: Sequence[LocalTable | PagedTable]) -> None:
        self._rule, self._tables = layout.rule, list(tables)
        self._exact = layout.rule.exact
        self._clocks = Clocks(layout.workers)
        self.clocks = self._clocks.values
        self._workers = layout.workers
        self.through = 0  # set after changes were applied: threads read it without the lock
        self._locks = NO_LOCKS if self._exact else np.zeros(_LOCKS, np.int64)
        self.needs_lock = [isinstance(table, PagedTable) for table in self._tables]
        self.woken: list[int] = []
        self._waiting: dict[int, int] = {}  # worker → the clock that all workers must have reached
        # By worker: its open clocks, each with the changes of every table that it added to.
        self._open: list[dict[int, dict[int, WaitingChanges]]] = [{} for _ in range(layout.workers)]
        self._paged = [table for table in self._tables if isinstance(table, PagedTable)]
        for table in self._paged:
            table.begin(self.woken)

        self.direct = DirectAccess(self)

    # -- what workers do ----------------------------------------------------------------------------------------------

    def try_read(self, worker: int, table: int, keys: Keys, out: NDArray[Any]) -> bool:
        """Fill out [n, cols]; False, with nothing promised about it, if the rule does not allow it yet."""
        clock = self.clocks[worker]
        if self.through < self._rule.need(clock):
            return False
        rows = self._tables[table]
        if isinstance(rows, LocalTable):
            rows.read(keys, out, self._locks)
        elif not rows.read(worker, keys, out):
            return False
        if self._exact:
            mine = self._open[worker].get(clock, {}).get(table)
            if mine is not None:
                mine.add_to(keys, out)
        return True

    def read(self, now: float, worker: int, table: int, keys: Keys, out: NDArray[Any]) -> bool:
        """As `try_read`; a worker that is refused is named in `woken` when it may try again."""
        if self.try_read(worker, table, keys, out):
            return True
        self.hold(worker)
        return False

    def put(self, worker: int, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, cols] to rows."""
        rows = self._tables[table]
        if not self._exact:
            rows.add(keys, deltas, self._locks)
            return
        mine = self._open[worker].setdefault(self.clocks[worker], {})
        if table not in mine:
            mine[table] = rows.changes(self._workers)
        mine[table].add(keys, deltas)

    def add(self, now: float, worker: int, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """As `put`."""
        self.put(worker, table, keys, deltas)

    def ask(self, now: float, worker: int, table: int, keys: Keys) -> None:
        """Prefetch rows that this node does not hold."""
        rows = self._tables[table]
        if isinstance(rows, PagedTable):
            rows.want(keys)

    def announce(self, now: float, worker: int, table: int, keys: Keys, clock: int) -> None:
        """Announcements are of no use here: a read never waits for rows."""

    def may_read(self, clock: int, worker: int) -> bool:
        """Whether the rule lets a worker at this clock read."""
        return self.through >= self._rule.need(clock)

    def tick(self, now: float, worker: int) -> None:
        """Advance the worker's clock."""
        if self._clocks.tick(worker):
            self._moved()

    def hold(self, worker: int) -> bool:
        """Whether a worker has to wait before it may read in its clock; `woken` names it then."""
        need = self._rule.need(self.clocks[worker])
        if self.through >= need:
            return False
        self._waiting[worker] = need
        return True

    def leave(self, now: float, worker: int) -> None:
        """The worker has ended: no one waits for it any more."""
        self._waiting.pop(worker, None)
        if self._clocks.retire(worker):
            self._moved()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """The lowest clock of the workers; `FOREVER` when all have ended."""
        return min(self.clocks, default=FOREVER)

    @property
    def settled(self) -> bool:
        """Whether no change waits for a chunk that is on its way."""
        return all(table.settled for table in self._paged)

    @property
    def expects(self) -> bool:
        """Whether chunks are on their way."""
        return any(table.expects for table in self._paged)

    def _moved(self) -> None:
        """All workers have ended the clocks below the lowest."""
        low = self._clocks.low
        if self._exact:
            self._close(low)
        self.through = low
        for worker in [worker for worker, need in self._waiting.items() if need <= low]:
            del self._waiting[worker]
            self.woken.append(worker)

    def _close(self, low: int) -> None:
        ended = sorted((clock, worker) for worker, mine in enumerate(self._open) for clock in mine if clock < low)
        for clock, worker in ended:
            for table, changes in sorted(self._open[worker].pop(clock).items()):
                rows = self._tables[table]
                rows.apply(changes)
                rows.reuse(changes)
