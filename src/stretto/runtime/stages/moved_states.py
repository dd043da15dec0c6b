"""Where the states of a session are, and what moves between nodes before a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stretto.consistency.exchange import elected
from stretto.errors import PlanError
from stretto.runtime.tables.job import TableJob
from stretto.state.partitions import PartRows
from stretto.store.local.holdings import DRIVER, ChunkPartition, Holdings, Move

from .held_states import StateShape
from .placed_chunks import placed_chunks
from .preparation import chosen_preparation
from .stage_runs import StagePlace, StageRun, StageState


class StatePlaces:
    """Where the states of a session are, and the moves before a stage: the same for simulated and real nodes."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.holdings = Holdings()
        self.shapes: dict[int, StateShape] = {}
        self.nodes = tuple(nodes)

    def add(self, used: StageState, parts: int) -> StateShape:
        """A state that a stage of this many parts uses. Where rows stay with parts, no chunk has more than a part."""
        shape = self.shapes.get(used.number)
        if shape is None:
            array = used.state.array
            most = len(array) // parts if isinstance(used.partition, PartRows) else None
            shape = self.shapes[used.number] = StateShape.of(array, most)
            self.holdings.add(used.number, shape.grid)
        return shape

    def before(self, stage: StageRun, place: StagePlace) -> tuple[list[Move], str]:
        """The moves before a stage, and how its states are prepared. States that start anew are with the driver."""
        shapes = [self.add(used, stage.job.workers) for used in stage.states]
        for used in stage.states:
            if used.first is not None or used.fill is not None:
                self.holdings.reset(used.number)
        single = place.single
        if single is not None:
            for used in stage.states:
                self.holdings.unmirror(used.number)
        if single is None or stage.preparation == "served":
            nodes = place.nodes if single is None else self.nodes
            homes = np.asarray(stage.homes(place) if single is None else (), np.int64)  # served: no part has rows
            moves = []
            for used, shape in zip(stage.states, shapes, strict=True):
                among: Sequence[int] = nodes
                if single is None and used.exchange == "holder":
                    among = [elected(homes.tolist(), self.holdings.holders(used.number).tolist())]
                elif single is None and used.mirrored:
                    among = with_parts(stage, place)
                else:
                    self.holdings.unmirror(used.number)
                moves += self.holdings.spread(used.number, among, _wish(used, shape, among, homes))
            return moves, "served" if single is not None else ""
        how = stage.preparation or chosen_preparation(
            sum(shape.rows * shape.row_bytes for shape in shapes), max(stage.iterations, stage.expected)
        )
        moves = []
        for used in stage.states:
            moves += (
                self.holdings.gather(used.number, single)
                if how == "whole"
                else self.holdings.upload(used.number, single)
            )
        return moves, how

    def copies(self, stage: StageRun, place: StagePlace, before: Mapping[int, NDArray[np.int64]]) -> list[Move]:
        """What goes to further nodes besides the moves: states of which every node has all rows.

        before: by state, the holder of each chunk without the moves.
        """
        if place.single is not None:
            return []
        mirrored = [used.number for used in stage.states if used.mirrored]
        nodes = with_parts(stage, place)
        found = [copy for number in mirrored for copy in self.holdings.mirror(number, nodes, before[number])]
        if not stage.job.rule.exact:  # changes are added in another order on each node: the next stage copies again
            for number in mirrored:
                self.holdings.unmirror(number)
        return found

    def holders(self, stage: StageRun) -> dict[int, NDArray[np.int64]]:
        """By state: the holder of each chunk now; the driver where it starts anew."""
        found = {}
        for used in stage.states:
            self.add(used, stage.job.workers)
            holders = self.holdings.holders(used.number)
            anew = used.first is not None or used.fill is not None
            found[used.number] = np.full_like(holders, DRIVER) if anew else holders
        return found

    def flush(self, stage: StageRun) -> list[Move]:
        """Moves that cut states over all nodes, as if these were the only storage between stages."""
        for used in stage.states:
            self.add(used, stage.job.workers)
        there = [used.number for used in stage.states if not (self.holdings.holders(used.number) == DRIVER).any()]
        return [move for number in there for move in self.holdings.spread(number, self.nodes)]

    def placed(self, stage: StageRun, nodes: Sequence[int], place: StagePlace) -> TableJob:
        """The job of a stage with its workers and its tables placed on these nodes, numbered from 0."""
        local = {node: at for at, node in enumerate(nodes)}
        tables = list(stage.job.tables)
        for number, used in enumerate(stage.states):
            holders = self.holdings.holders(used.number)
            shards = np.array([local[node] for node in holders.tolist()], np.int64)
            partition = ChunkPartition(self.shapes[used.number].bits, shards)
            exchange = used.exchange if used.mirrored and place.single is None else "shards"
            tables[number] = replace(tables[number], partition=partition, shards=None, exchange=exchange)
        homes = tuple(local[node] for node in stage.homes(place))
        return replace(stage.job, tables=tuple(tables), homes=homes)

    def nbytes(self, moves: Sequence[Move]) -> int:
        """Bytes of moves between nodes, or from the driver to nodes."""
        return sum(self.move_bytes(move) for move in moves)

    def move_bytes(self, move: Move) -> int:
        """Bytes of a move."""
        shape = self.shapes[move.state]
        full = len(move.chunks) << shape.bits
        last = shape.grid.chunks - 1
        short = (1 << shape.bits) - shape.grid.rows_of(last) if len(move.chunks) and last in move.chunks else 0
        return (full - short) * shape.row_bytes

    def release(self, number: int | None) -> None:
        """Forget a state; None: all."""
        for state in [number] if number is not None else list(self.shapes):
            self.shapes.pop(state, None)
            self.holdings.forget(state)


def with_parts(stage: StageRun, place: StagePlace) -> tuple[int, ...]:
    """The nodes of a stage that have parts."""
    return tuple(sorted(set(stage.homes(place))))


def _wish(
    used: StageState, shape: StateShape, nodes: Sequence[int], homes: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """[chunks] the node that a partition gives each chunk; None: even shares. homes [parts]: the node of each part."""
    if used.partition is None:
        return None
    chunks, many = shape.grid.chunks, len(nodes)
    firsts = np.arange(chunks) << shape.bits
    if isinstance(used.partition, PartRows) and len(homes):
        # A chunk is with the part that has its middle row; at one end of it another part may have some.
        ends = np.minimum(firsts + (1 << shape.bits), shape.rows)
        parts = used.partition.holders((firsts + ends - 1) // 2)
        return homes[np.minimum(parts, len(homes) - 1)]
    if isinstance(used.partition, PartRows | str):
        return placed_chunks(chunks, nodes, ranges=True)
    places = np.asarray(used.partition(firsts, many)).astype(np.int64)
    if places.shape != (chunks,) or ((places < 0) | (places >= many)).any():
        raise PlanError(
            f"a partition gave {places.shape} places between {places.min(initial=0)} and {places.max(initial=0)} "
            f"for {chunks} rows and {many} nodes; return one place from 0 to {many - 1} for each row"
        )
    return np.asarray(nodes, np.int64)[places]
