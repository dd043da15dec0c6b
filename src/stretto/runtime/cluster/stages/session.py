"""Stages on a cluster: states stay on the nodes, and go from node to node directly where the next stage needs them.

Each stage is a task of its hosts with its own incarnation. So whatever of an earlier stage is still on its way, reads
and ticks included, is ignored by everyone; and no update is lost, because a stage ends only when all of its updates
have reached the shards. Stages of several tasks run at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.cluster.hosts.fleet import HostLost, SentValue
from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.cluster.tables.driver import SentData, TableDriver
from stretto.runtime.cluster.tables.task import make_table_task
from stretto.runtime.stages.file_blocks import FileSpec, OpenFiles, join_nodes
from stretto.runtime.stages.moved_states import StatePlaces
from stretto.runtime.stages.stage_runs import StageEnd, StageLost, StagePlace, StageRun
from stretto.runtime.tables.job import TableJob, TableOutcome
from stretto.state.state import State
from stretto.store.local.holdings import DRIVER, Move

from .stage_hosts import HostTaskSpec, StageHosts
from .stage_tasks import LocalStageEnd, StagePayload, make_local_stage, make_wide_stage
from .transfer_task import TransferPayload, make_transfer_task

_POLL_SECONDS = 0.2
_READ_BYTES = 16 << 20  # of a state that is collected in one call


class ClusterStages:
    """An open session of stages on hosts."""

    virtual = False
    fallible = True

    def __init__(self, hosts: Hosts, threads: int) -> None:
        self._hosts, self.threads = hosts, threads
        self._places = StatePlaces(range(hosts.nodes))
        self._sent = SentData()
        self._lock = threading.Lock()  # guards the places of states and of data
        self._broken: set[int] = set()  # states of which a lost host had chunks
        self._owners: dict[int, str] = {}  # by state

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that stages may be placed on."""
        return self._places.nodes

    # -- stages -------------------------------------------------------------------------------------------------------

    def run(self, stage: StageRun, place: StagePlace) -> StageEnd:
        """Run a stage on some of the nodes."""
        began = time.perf_counter()
        try:
            flushed = 0 if stage.direct else self._flush(stage)
            with self._lock:
                self._check_broken([used.number for used in stage.states])
                before = self._places.holders(stage)
                moves, how = self._places.before(stage, place)
                copies = self._places.copies(stage, place, before)
                self._owners.update((used.number, stage.owner) for used in stage.states)
                transfer = self._transfer(stage, place, [*moves, *copies], how, before)
                moved = flushed + self._places.nbytes([move for move in [*moves, *copies] if move.source != DRIVER])
            if place.single is None or how == "served":
                nodes = place.nodes if place.single is None else self.nodes
                outcome, seconds = self._wide(stage, place, nodes, transfer)
                return StageEnd(outcome, max(0.0, time.perf_counter() - began - seconds), moved, how)
            end, outcome = self._local(stage, place, transfer)
            with self._lock:
                for used, chunks in zip(stage.states, end.changed, strict=True):
                    self._places.holdings.changed(used.number, place.single, chunks)
            around = max(0.0, time.perf_counter() - began - end.seconds)
            return StageEnd(outcome, around, moved + end.fetched, how, end.replaced)
        except HostLost as lost:
            raise self._lose(lost) from lost

    def _lose(self, lost: HostLost) -> StageLost:
        """A host is lost, with what it held: tasks that need it go back, this one and others when they use it next."""
        with self._lock:
            nodes = [node for node, host in enumerate(self._hosts.where) if host == lost.host]
            self._broken.update(self._places.holdings.lost(nodes))
        self._hosts.lose(lost, "tasks go back to their last values")
        return StageLost(f"{lost}")

    def _wide(
        self, stage: StageRun, place: StagePlace, nodes: Sequence[int], before: list[HostTaskSpec]
    ) -> tuple[TableOutcome, float]:
        """A stage whose states are cut over nodes; some of these may have no workers."""
        job = self._places.placed(stage, nodes, place)
        threads = dict(place.workers_by_node)
        shared: list[SentValue] = []

        def wrap(at: int, tables: Any) -> StagePayload:
            if not shared:
                shared.append(SentValue((_plain(job), tables.layout)))
            made = self._payload(stage, shared[0], nodes[at], threads.get(nodes[at], 0), _workers(job, at))
            return replace(made, tables=replace(tables, job=None, layout=None))

        hosts = StageHosts(self._hosts, nodes, wrap, make_wide_stage, before)
        driver = TableDriver(hosts, job)
        try:
            outcome = driver.run()
            outcome.seconds = driver.working_seconds
            return outcome, driver.working_seconds
        finally:
            hosts.end()

    def _local(
        self, stage: StageRun, place: StagePlace, before: list[HostTaskSpec]
    ) -> tuple[LocalStageEnd, TableOutcome]:
        ((node, threads),) = place.workers_by_node
        job = replace(stage.job, homes=())

        def wrap(at: int, tables: Any) -> StagePayload:
            return self._payload(stage, SentValue((_plain(job), None)), node, threads, list(range(job.workers)))

        hosts = StageHosts(self._hosts, [node], wrap, make_local_stage, before)
        try:
            hosts.begin(make_table_task, lambda host, places: None)
            while True:
                for event in hosts.events(_POLL_SECONDS):
                    if event.what == "ended":
                        end: LocalStageEnd = event.value
                        clocks = (stage.iterations,) * job.workers
                        return end, TableOutcome((), clocks, end.seconds, end.local, items=end.items)
                    if event.what == "failed":
                        error = event.value
                        if hasattr(error, "add_note"):
                            error.add_note(f"on {self._hosts.words(event.host)}")
                        raise error
        finally:
            hosts.end()

    def _payload(self, stage: StageRun, shared: Any, node: int, threads: int, workers: Sequence[int]) -> StagePayload:
        host = self._hosts.where[node]
        with self._lock:
            data = self._sent.missing(host, self._hosts.addresses[host], stage.job.data, list(workers))
        return StagePayload(
            shared,
            _owner(stage.owner, node),
            tuple((used.number, self._places.shapes[used.number]) for used in stage.states),
            threads,
            data_owner="" if stage.job.data is None else stage.job.data.owner,
            data=data,
            blocks=stage.blocks,
            parts=tuple(workers),
        )

    # -- transfers ----------------------------------------------------------------------------------------------------

    def _transfer(
        self,
        stage: StageRun,
        place: StagePlace,
        moves: Sequence[Move],
        how: str,
        before: Mapping[int, NDArray[np.int64]],
    ) -> list[HostTaskSpec]:
        """The transfer before a stage: [] if nothing moves. before: the holders of chunks without the moves."""
        on_demand = how == "on-demand"
        sources: dict[int, Any] = {}  # by state: [chunks] the node that has each now, as far as it must be fetched
        for used in stage.states:
            holders = self._places.holdings.holders(used.number)
            sources[used.number] = np.where(holders == place.single, -1, holders) if on_demand else None
        served = place.single is not None and how == "served"
        joined = set(self.nodes if served else place.nodes) | {move.source for move in moves if move.source != DRIVER}
        if on_demand:
            joined |= {int(node) for found in sources.values() for node in np.unique(found) if node >= 0}
        if not moves and not (on_demand and len(joined) > 1):
            return []
        order = sorted(joined)
        at = {node: position for position, node in enumerate(order)}
        payloads = {
            position: self._transfer_payload(stage, node, moves, at, sources if on_demand else None, before)
            for node, position in at.items()
        }
        return [(make_transfer_task, order, payloads)]

    def _transfer_payload(
        self,
        stage: StageRun,
        node: int,
        moves: Sequence[Move],
        at: Mapping[int, int],
        sources: Mapping[int, Any] | None,
        before: Mapping[int, NDArray[np.int64]],
    ) -> TransferPayload:
        puts: dict[int, Any] = {}
        fills: dict[int, Any] = {}
        wants: dict[int, Any] = {}
        for used in stage.states:
            shape, flat = self._places.shapes[used.number], used.state.array.reshape(len(used.state.array), -1)
            where = np.full(shape.grid.chunks, -1, np.int64)
            for move in moves:
                if move.state != used.number or move.target != node:
                    continue
                if move.source != DRIVER:
                    where[move.chunks] = at[move.source]
                elif used.fill is not None:
                    fills[used.number] = move.chunks, used.fill
                else:
                    first = flat if used.first is None else used.first.reshape(flat.shape)
                    bounds = [shape.grid.bounds(chunk) for chunk in move.chunks.tolist()]
                    puts[used.number] = move.chunks, [first[a:b].copy() for a, b in bounds]
            if sources is not None:
                found = sources[used.number]
                where = np.array([at[holder] if holder >= 0 else -1 for holder in found.tolist()], np.int64)
            if (where >= 0).any():
                wants[used.number] = where
        return TransferPayload(
            _owner(stage.owner, node),
            {used.number: self._places.shapes[used.number] for used in stage.states},
            {number: holders == node for number, holders in before.items()},
            stage.memory,
            puts,
            fills,
            wants,
            whole=sources is None,
            keeps=frozenset(used.number for used in stage.states if sources is not None or used.mirrored),
        )

    def _flush(self, stage: StageRun) -> int:
        """Cut the states of a stage over all nodes; return the bytes. For comparison with direct transfers."""
        with self._lock:
            before = self._places.holders(stage)
            moves = self._places.flush(stage)
        if moves:
            self._move(stage.owner, moves, before)
        return self._places.nbytes(moves)

    def _move(self, owner: str, moves: Sequence[Move], before: Mapping[int, NDArray[np.int64]]) -> None:
        """Move chunks of states of one owner from node to node; returns when they have arrived."""
        order = sorted({node for move in moves for node in (move.source, move.target)})
        at = {node: position for position, node in enumerate(order)}
        shapes = {move.state: self._places.shapes[move.state] for move in moves}
        payloads = {}
        for node in order:
            wants = {number: np.full(shape.grid.chunks, -1, np.int64) for number, shape in shapes.items()}
            for move in moves:
                if move.target == node:
                    wants[move.state][move.chunks] = at[move.source]
            fresh = {number: before[number] == node for number in shapes}
            payloads[at[node]] = TransferPayload(_owner(owner, node), shapes, fresh, wants=wants, reports=True)
        (number,) = self._hosts.begin_beside([(make_transfer_task, order, payloads)])
        left = set(range(len(order)))
        try:
            while left:
                for event in self._hosts.events_beside(number, _POLL_SECONDS):
                    if event.what == "failed":
                        raise event.value
                    left.discard(event.node)
        finally:
            self._hosts.end_beside([number])

    # -- nodes that join and leave ------------------------------------------------------------------------------------

    def add_node(self) -> int:
        """Start one more node; returns its number."""
        number = self._hosts.join(float(self._hosts.spec.start_within))
        with self._lock:
            self._places.nodes = (*self._places.nodes, number)
        return number

    def remove_node(self, node: int) -> int:
        """End a node on which no stage runs; what it holds goes to the others first. Returns the bytes."""
        with self._lock:
            others = tuple(other for other in self._places.nodes if other != node)
            self._places.nodes = others
            before = {number: self._places.holdings.holders(number) for number in self._places.shapes}
            moves = self._places.holdings.vacate(node, others)
        try:
            for owner in {self._owners[move.state] for move in moves}:
                self._move(owner, [move for move in moves if self._owners[move.state] == owner], before)
        except HostLost as lost:
            self._lose(lost)
        else:
            self._hosts.leave(self._hosts.where[node])
        return self._places.nbytes(moves)

    # -- states -------------------------------------------------------------------------------------------------------

    def collect(self, owner: str, states: Mapping[int, State]) -> int:
        """Read states from the nodes that hold them: from all nodes at the same time, one call to each at a time."""
        total = 0
        pieces: dict[int, list[tuple[int, list[int]]]] = {}  # by node: state and chunks of each call
        for number in states:
            with self._lock:
                self._check_broken([number])
                if number not in self._places.shapes or self._places.holdings.at_driver(number):
                    continue
                holders, shape = self._places.holdings.holders(number), self._places.shapes[number]
            at_once = max(1, _READ_BYTES // max(1, shape.row_bytes << shape.bits))
            for node in np.unique(holders[holders >= 0]).tolist():
                chunks = np.flatnonzero(holders == node).tolist()
                cuts = range(0, len(chunks), at_once)
                pieces.setdefault(node, []).extend((number, chunks[k : k + at_once]) for k in cuts)
        try:
            for asked in zip_longest(*([(node, *piece) for piece in some] for node, some in pieces.items())):
                wanted = [one for one in asked if one is not None]
                found = self._hosts.states_each(
                    [(self._hosts.where[node], "read", _owner(owner, node), *piece) for node, *piece in wanted]
                )
                for (_, number, chunks), rows in zip(wanted, found, strict=True):
                    total += self._put(number, states[number], chunks, rows)
        except HostLost as lost:
            raise self._lose(lost) from lost
        return total

    def _put(self, number: int, state: State, chunks: Sequence[int], rows: Sequence[NDArray[Any]]) -> int:
        """Write chunks into the array of a state; returns their bytes."""
        flat, grid = state.array.reshape(len(state.array), -1), self._places.shapes[number].grid
        for chunk, given in zip(chunks, rows, strict=True):
            first, end = grid.bounds(chunk)
            flat[first:end] = given
        return sum(given.nbytes for given in rows)

    def _check_broken(self, numbers: Sequence[int]) -> None:
        if self._broken.intersection(numbers):
            raise StageLost("a node was lost that held values of this task")

    def reset(self, owner: str, states: Mapping[int, State]) -> None:
        """The arrays of the states are what counts from now on."""
        with self._lock:
            self._broken.difference_update(states)
            for number in states:
                if number in self._places.shapes:
                    self._places.holdings.reset(number)

    def release(self, owner: str, number: int | None = None) -> None:
        """Free states on all nodes."""
        with self._lock:
            self._places.release(number)
        for node in self.nodes:
            try:
                self._hosts.states_each([(self._hosts.where[node], "release", _owner(owner, node), number)])
            except HostLost as lost:
                self._lose(lost)

    # -- data ---------------------------------------------------------------------------------------------------------

    def release_data(self, owner: str, number: int) -> None:
        """Free a data set on all hosts."""
        with self._lock:
            self._sent.forget(owner, number)
        for host in sorted({self._hosts.where[node] for node in self.nodes}):
            try:
                self._hosts.states_each([(host, "release data", owner, number)])
            except HostLost as lost:
                self._lose(lost)

    def open_files(self, spec: FileSpec) -> OpenFiles:
        """Have every node open the files on its disk."""
        try:
            where, nodes = self._hosts.where, self.nodes
            opened = self._hosts.states_each(
                [(where[node], "open files", spec.path.path, spec.options, node) for node in nodes]
            )
        except HostLost as lost:
            raise self._lose(lost) from lost
        return join_nodes(spec, list(zip(nodes, opened, strict=True)))


def _owner(owner: str, node: int) -> str:
    """Owner of the states of a node: two nodes may be in one process after a host was lost."""
    return f"{owner}@{node}"


def _plain(job: TableJob) -> TableJob:
    return replace(job, watch=None, until=None, seconds=None, keeping=None, data=None)


def _workers(job: TableJob, node: int) -> list[int]:
    return [worker for worker, at in enumerate(job.homes) if at == node]
