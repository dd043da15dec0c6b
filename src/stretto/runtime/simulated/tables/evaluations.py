"""Evaluations of a simulated job over tables, at clocks and at virtual seconds.

`runtime.tables.run.table_run` decides when they are due. Where nodes can fail, evaluations at clocks use cuts, whose
parts take time to arrive (`driver`). Otherwise the simulator reads all shards directly, so an evaluation takes no time
and sends nothing; a shard that is ahead of the evaluated clock has kept its tables of that clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.runtime.tables.job import ClockState, FinalRows
from stretto.runtime.tables.run.cut_parts import Arrays, CutParts
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
        self._cut: CutParts | None = None  # the cut to evaluate
        self._exact = cluster.job.watch is not None and cluster.job.rule.exact and not cluster.driver.by_cuts

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

    def evaluate(self, due: Iterable[Evaluate], cut: CutParts | None = None) -> None:
        """Evaluate what is due, until the run ends: the tables of a cut, or those of the shards."""
        cluster, state = self._cluster, self._cluster.state
        for at in due:
            if state.stopped == "until" or cluster.failure is not None:  # keep the evaluation that ended the run
                return
            self._at, self._cut = at.clock if at.past else None, cut
            local = tuple(client.local for client in cluster.clients)
            if cut is not None:
                local = tuple(cut.workers[worker].local for worker in range(len(local)))
            moment = ClockState(at.clock, cluster.now, cluster.recording.bytes, self.values, local)
            try:
                state.evaluated(*cluster.job.evaluate(moment))
            except Exception as error:
                cluster.fail(-1, at.clock, error)
            if state.stopped == "until":
                self._hub.over = True
            elif at.past:
                self._at = self._cut = None
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
        stores = self._cluster.layout.stores
        if self._cut is not None:
            return [self._rows_of(part, table) for at, part in sorted(self._cut.shards.items()) if stores(table, at)]
        found = []
        for node in self._nodes():
            if not stores(table, node.number):
                continue
            view = None if self._at is None else node.shard.past.get(self._at)
            found.append((*node.shard.table(table), node.shard.states(table)) if view is None else view[table])
        return found

    def _rows_of(self, part: Arrays, table: int) -> Past:
        """A shard's rows of a table in its part of a cut."""
        name = self._cluster.layout.tables[table].name
        keys, rows, state = (part[f"{name}/{what}"] for what in ("keys", "values", "state"))
        return keys, rows, tuple(state[:, which] for which in range(state.shape[1]))

    def _nodes(self) -> list[StoreNode]:
        return [node for node in self._cluster.nodes if node is not None]
