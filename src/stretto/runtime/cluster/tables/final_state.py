"""The final state of a node (tables, clocks, recording) as a message, and merging those of all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.runtime.tables.checkpoints import TableCheckpoint
from stretto.runtime.tables.job import FinalRows
from stretto.store.layout import Layout
from stretto.store.recording import Recording

from .events import EVENTS, EventHistory, events_of, in_order


@dataclass(eq=False)
class NodeRecordingData:
    """A node's recording without its layout."""

    late: float  # added to times to get the driver's
    sent: dict[tuple[int, str, str], list[list[int]]]
    waits: dict[str, NDArray[np.float64]]
    clocks: list[tuple[float, int, int]]
    row_sends: list[NDArray[np.int64]] | None
    events: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(eq=False)
class NodeFinalState:
    """The final state of a node."""

    node: int
    tables: tuple[FinalRows, ...]  # what its shard stores
    witness: tuple[tuple[Keys, NDArray[np.int32]], ...]  # of each table, in full recordings
    clocks: dict[int, int]  # of its workers
    local: dict[int, dict[str, Any]]  # of its workers
    items: float  # that its workers reported as computed
    staleness: NDArray[np.int64]  # [workers of the node, 32] as in `Cache`
    closed: int  # earlier clocks are complete: all their changes are in the tables
    recorded: NodeRecordingData
    worked: float = 0.0  # seconds from the start of its workers until all changes had reached its shard


class NodeRecording(Recording):
    """A node's own recording, or the driver's, into which those of all nodes are merged."""

    def packed(self, late: float) -> NodeRecordingData:
        """Everything recorded, as a message."""
        events = {name: getattr(self, name) for name in EVENTS} if self.full else {}
        return NodeRecordingData(late, self._sent, self._waits, self.clocks, self._row_sends, events)

    def take(self, parts: Iterable[NodeRecordingData]) -> None:
        """Merge the recordings of the last incarnation; clocks are the lowest and highest of all nodes."""
        parts = list(parts)
        for part in parts:
            self._add_counts(part)
        self._add_clocks(parts)
        if not self.full:
            return
        life = len(self.restarts)  # incarnations are numbered from 0 in a recording
        for event in in_order(events_of(place, part.late, part.events) for place, part in enumerate(parts)):
            entry = event.entry._replace(incarnation=life) if event.name == "deliveries" else event.entry
            self.put(event.name, entry, event.now)

    def _add_counts(self, part: NodeRecordingData) -> None:
        for at, columns in part.sent.items():
            sums = self._sent.setdefault(at, [[0] * self.layout.nodes for _ in range(3)])
            for total, column in zip(sums, columns, strict=True):
                total[:] = [a + b for a, b in zip(total, column, strict=True)]
            self.messages += sum(columns[0])
            self.bytes += sum(columns[2])
        for reason, seconds in part.waits.items():
            self._waits[reason] = self._waits.get(reason, np.zeros_like(seconds)) + seconds
        if self._row_sends is not None and part.row_sends is not None:
            for total_of, sends in zip(self._row_sends, part.row_sends, strict=True):
                total_of += sends

    def _add_clocks(self, parts: list[NodeRecordingData]) -> None:
        """Merge (seconds, least, most) of each node to those of all."""
        moves = sorted(
            (now + part.late, place, low, high) for place, part in enumerate(parts) for now, low, high in part.clocks
        )
        at = {place: (0, 0) for place, part in enumerate(parts) if part.clocks}
        for now, place, low, high in moves:
            at[place] = low, high
            least, most = min(entry[0] for entry in at.values()), max(entry[1] for entry in at.values())
            if not self.clocks or least > self.clocks[-1][1]:
                self.moved_on(now, least, most)


def joined(rests: Sequence[FinalRows]) -> FinalRows:
    """Join one table from the nodes' parts of it."""
    states = zip(*(rest.states for rest in rests), strict=True)
    return FinalRows(
        np.concatenate([rest.keys for rest in rests]),
        np.concatenate([rest.values for rest in rests]),
        tuple(np.concatenate(parts) for parts in states),
    )


def arrays_of(layout: Layout, tables: Sequence[FinalRows]) -> dict[str, NDArray[Any]]:
    """Tables under the names that they have in a shard's part of a cut."""
    found: dict[str, NDArray[Any]] = {}
    for spec, rest in zip(layout.tables, tables, strict=True):
        state = np.stack(rest.states, axis=1) if rest.states else np.empty((len(rest.keys), 0, spec.cols))
        found |= {f"{spec.name}/keys": rest.keys, f"{spec.name}/values": rest.values, f"{spec.name}/state": state}
    return found


def tables_of(layout: Layout, cut: TableCheckpoint) -> tuple[FinalRows, ...]:
    """The tables of a cut."""
    tables = []
    for spec in layout.tables:
        if cut.node is None:
            tables.append(FinalRows(np.empty(0, np.int64), np.empty((0, spec.cols), spec.kept)))
            continue
        keys, values, state = (cut.node.shard[f"{spec.name}/{name}"] for name in ("keys", "values", "state"))
        tables.append(FinalRows(keys, values, tuple(state[:, which] for which in range(state.shape[1]))))
    return tuple(tables)


def merged(
    layout: Layout,
    record: str | None,
    rests: Iterable[NodeFinalState],
    lives: EventHistory | None = None,
    begin: TableCheckpoint | None = None,
) -> NodeRecording:
    """One recording of all nodes, with the final witnesses where everything was recorded.

    Parameters
    ----------
    layout : Layout
        Tables and nodes.
    record : str or None
        What was recorded.
    rests : iterable of NodeFinalState
        The final states of the nodes.
    lives : EventHistory or None
        Events of earlier incarnations.
    begin : TableCheckpoint or None
        The cut that the run was resumed from.
    """
    rests = sorted(rests, key=attrgetter("node"))
    made = NodeRecording(layout, record)
    if begin is not None and begin.node is not None:
        made.goes_on(begin.clock, begin.node.shard, begin.node.residuals)
    if lives is not None:
        lives.write(made)
    made.take(rest.recorded for rest in rests)
    if made.full:
        for table in range(len(layout.tables)):
            there = [rest for rest in rests if layout.stores(table, rest.node)]
            keys, counts = zip(*(rest.witness[table] for rest in there), strict=True)
            made.final[table] = np.concatenate(keys), np.concatenate(counts)
            made.final_values[table] = np.concatenate([rest.tables[table].values for rest in there])
    return made
