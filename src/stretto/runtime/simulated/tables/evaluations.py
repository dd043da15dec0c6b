"""Evaluations of a simulated job over tables, at clocks and at virtual seconds.

`runtime.tables.run.table_run` decides when they are due. The simulator reads all shards directly, so an evaluation
takes no time and sends nothing. A shard that is ahead of the evaluated clock has kept its tables of that clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.runtime.tables.job import ClockState, FinalRows
from stretto.runtime.tables.run.evaluations import Evaluate
from stretto.store.node import StoreNode
from stretto.store.shard.shard import Past

if TYPE_CHECKING:
    from .job import SimulatedCluster


class Evaluator:
    """Evaluates the tables of a cluster, and reads them."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._hub = cluster, cluster.hub
        self._at: int | None = None  # the clock to evaluate, where shards may be ahead of it
        self._awaited = False  # a call of `_time` is scheduled
        self._exact = cluster.job.watch is not None and cluster.job.rule.exact

    def watch(self, node: StoreNode) -> None:
        """Have a new node's shard keep the tables of clocks that will be evaluated."""
        if self._exact:
            node.shard.keep_past(self._cluster.job.every or 0)

    def await_time(self) -> None:
        """Schedule the next evaluation by time."""
        due_at = self._cluster.state.due_at
        if due_at < math.inf and not self._awaited and not self._hub.over:
            self._awaited = True
            self._hub.at(max(self._hub.now, due_at), self._time, None)

    def _time(self, _: None) -> None:
        """Evaluate what is due by time. Nothing is scheduled while a node is lost or no other event is left."""
        cluster = self._cluster
        self._awaited = False
        if self._hub.idle or cluster.driver.finished is not None or cluster.down:
            return
        for due in cluster.state.time(self._hub.now, max(cluster.shards)):
            if isinstance(due, Evaluate):
                self.evaluate([due])
                continue
            for node in self._nodes():
                node.shard.keep_clock(due.clock)
        self.await_time()

    def evaluate(self, due: Iterable[Evaluate]) -> None:
        """Evaluate what is due, until the run ends."""
        cluster, state = self._cluster, self._cluster.state
        for at in due:
            if state.stopped == "until" or cluster.failure is not None:  # keep the evaluation that ended the run
                return
            self._at = at.clock if at.past else None
            local = tuple(seat.local for seat in cluster.seats)
            moment = ClockState(at.clock, cluster.now, cluster.recording.bytes, self.values, local)
            try:
                state.evaluated(*cluster.job.evaluate(moment))
            except Exception as error:
                cluster.fail(-1, at.clock, error)
            if state.stopped == "until":
                self._hub.over = True
            elif at.past:
                self._at = None
                for node in self._nodes():
                    node.shard.past.pop(at.clock, None)

    def values(self, table: int) -> tuple[Keys, NDArray[Any]]:
        """keys [n] and rows [n, cols] of the shards, at the evaluated clock or now."""
        keys, rows, _ = zip(*self._rows_at(table), strict=True)
        return np.concatenate(keys), np.concatenate(rows)

    def rest(self, table: int) -> FinalRows:
        """The same, with the arrays of the server function."""
        states = zip(*(states for _, _, states in self._rows_at(table)), strict=True)
        return FinalRows(*self.values(table), tuple(np.concatenate(parts) for parts in states))

    def _rows_at(self, table: int) -> list[Past]:
        """Each shard's rows of a table, at the evaluated clock or now."""
        found = []
        for node in self._nodes():
            view = None if self._at is None else node.shard.past.get(self._at)
            found.append((*node.shard.table(table), node.shard.states(table)) if view is None else view[table])
        return found

    def _nodes(self) -> list[StoreNode]:
        return [node for node in self._cluster.nodes if node is not None]
