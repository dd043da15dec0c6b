"""Stages on simulated nodes: each takes the way that it takes on a cluster, in virtual time.

A stage on one node uses the rows that the node holds (`runtime.simulated.tables.local_stage`); one on several nodes, or
one whose states stay cut over all nodes, has caches and shards (`runtime.simulated.tables.job`). The arrays of the
states are in this process: what moves between two stages only takes time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.simulated.tables.local_stage import LocalSimulation
from stretto.runtime.tables.job import TableOutcome
from stretto.state.state import State
from stretto.store.local.holdings import DRIVER, Move
from stretto.store.local.paged import PRESENT, REMOTE, PagedTable
from stretto.store.local.table import LocalTable

from .in_place import InPlace, serve_copies, start_values
from .moved_states import StatePlaces
from .stage_runs import StageEnd, StagePlace, StageRun, StageState

if TYPE_CHECKING:
    from stretto.runtime.simulated.spec import Simulated


class SimulatedStages(InPlace):
    """A session on a simulated cluster."""

    virtual = True

    def __init__(self, spec: Simulated) -> None:
        self._spec = spec
        self.nodes, self.threads = tuple(range(spec.nodes)), spec.threads
        self._places = StatePlaces(range(spec.nodes))
        self._links = tuple(spec.links)
        # Faults and stragglers name nodes by their numbers in the cluster.
        self._fixed = bool(spec.faults or spec.failures or spec.stragglers)
        self._one = threading.Lock()  # tasks that run at the same time run their stages one after another

    def run(self, stage: StageRun, place: StagePlace) -> StageEnd:
        """Run a stage on some of the nodes."""
        with self._one, stage.reading(range(stage.job.workers)):
            flushed = [] if stage.direct else self._places.flush(stage)
            before = self._places.holders(stage)
            moves, how = self._places.before(stage, place)
            # The driver's first values take no time. Copies do: without them caches would read the rows.
            between = self._places.copies(stage, place, before)
            between += [move for move in moves if move.source != DRIVER]
            moved = self._places.nbytes([*flushed, *between])
            around = 2 * float(self._spec.latency) + self._seconds(flushed) + self._seconds(between)
            if place.single is None or how == "served":
                nodes = self.nodes if place.single is not None else place.nodes
                return StageEnd(self._wide(stage, place, nodes), around, moved, how)
            if self._fixed or stage.job.record is not None:  # with messages, which faults act on and recordings hold
                self._gather(stage, place.single)
                return StageEnd(self._wide(stage, place, place.nodes), around, moved, how)
            outcome, fetched = self._local(stage, place, place.single)
            return StageEnd(outcome, around, moved + fetched, how)

    def collect(self, owner: str, states: Mapping[int, State]) -> int:
        """Bytes that would come from the nodes."""
        used = [number for number in states if number in self._places.shapes]  # a task that goes on may use none
        moves = [move for number in used for move in self._places.holdings.gather(number, DRIVER)]
        return self._places.nbytes(moves)

    def release(self, owner: str, number: int | None = None) -> None:
        """Forget where states are."""
        self._places.release(number)

    # -- the two ways -------------------------------------------------------------------------------------------------

    def _local(self, stage: StageRun, place: StagePlace, node: int) -> tuple[TableOutcome, int]:
        """A stage on one node; returns its outcome, and the bytes of chunks that were brought."""
        start_values(stage)
        run = LocalSimulation(self._spec, node, min(place.workers, self.threads), replace(stage.job, homes=()))
        tables = [self._table(run, used, node) for used in stage.states]
        outcome = run.run(tables)
        for used, table in zip(stage.states, tables, strict=True):
            self._places.holdings.changed(used.number, node, np.flatnonzero(table.dirty))
        return outcome, run.fetched

    def _table(self, run: LocalSimulation, used: StageState, node: int) -> LocalTable | PagedTable:
        """The rows of a state: of those that other nodes hold, chunks come when they are first used."""
        array, shape = used.state.array, self._places.shapes[used.number]
        rows = array.reshape(len(array), -1)
        holders = self._places.holdings.holders(used.number)
        if (holders == node).all():
            return LocalTable(rows, shape.grid)
        where = np.where(holders == node, PRESENT, REMOTE).astype(np.uint8)
        pager = _VirtualPager(run, rows, holders)
        pager.table = PagedTable(shape.grid, rows.shape[1], rows.dtype, pager, where, rows)
        return pager.table

    def _wide(self, stage: StageRun, place: StagePlace, nodes: Sequence[int]) -> TableOutcome:
        """A stage whose states are cut over nodes."""
        if self._fixed:
            nodes = self.nodes
        most = max(many for _, many in place.workers_by_node)
        job = self._places.placed(stage, nodes, place)
        return serve_copies(self._cluster(nodes, min(most, self.threads)), replace(stage, job=job))

    def _cluster(self, nodes: Sequence[int], threads: int) -> Simulated:
        """The nodes of a stage."""
        spec = self._spec
        if len(nodes) == spec.nodes:
            return replace(spec, threads=threads)
        chosen: dict[str, Any] = {
            "link": [self._links[node] for node in nodes],
            "speed": [spec.speeds[node] for node in nodes],
            "racks": None if spec.rack_of is None else [spec.rack_of[node] for node in nodes],
        }
        return replace(spec, nodes=len(nodes), threads=threads, **chosen)

    # -- moves --------------------------------------------------------------------------------------------------------

    def _gather(self, stage: StageRun, node: int) -> None:
        """All chunks count as on the node: a shard is where it finds its rows."""
        for used in stage.states:
            self._places.holdings.gather(used.number, node)

    def _seconds(self, moves: Sequence[Move]) -> float:
        """All nodes send and receive at the same time; the busiest takes longest."""
        busy: dict[tuple[str, int], int] = {}
        for move in moves:
            for way in (("out", move.source), ("in", move.target)):
                busy[way] = busy.get(way, 0) + self._places.move_bytes(move)
        return max((nbytes / self._links[node] for (_, node), nbytes in busy.items()), default=0.0)


class _VirtualPager:
    """Chunks that other nodes hold. They are in the array already; bringing them takes virtual time."""

    table: PagedTable

    def __init__(self, run: LocalSimulation, rows: NDArray[Any], holders: NDArray[np.int64]) -> None:
        self._run, self._rows, self._holders = run, rows, holders

    def fetch(self, chunks: list[int]) -> None:
        """Request chunks."""
        for chunk in chunks:
            first, end = self.table.grid.bounds(chunk)
            self._run.bring(self.table, chunk, self._rows[first:end].copy(), int(self._holders[chunk]))

    def load(self, chunk: int) -> NDArray[Any]:
        """No chunk is ever stored: every one has its place."""
        raise AssertionError("a simulated chunk was stored")

    def store(self, chunk: int, rows: NDArray[Any]) -> None:
        """See `load`."""
        raise AssertionError("a simulated chunk was stored")
