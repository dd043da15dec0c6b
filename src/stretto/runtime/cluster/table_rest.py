"""What a node has to show at the end of an incarnation, in a form that travels, and how the driver puts it together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.runtime.serving import Rest
from stretto.store.layout import Layout
from stretto.store.recording import Recording

# The lists of events of a full recording: all but `restarts`, which only the driver knows of.
_EVENTS = ("reads", "adds", "ticks", "sends", "picks", "deliveries", "updates", "rows")


@dataclass(eq=False)
class Recorded:
    """A node's recording without its layout. late: add it to times to have the driver's."""

    late: float
    sent: dict[tuple[int, str, str], list[list[int]]]
    waits: dict[str, NDArray[np.float64]]
    clocks: list[tuple[float, int, int]]
    row_sends: list[NDArray[np.int64]] | None
    events: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(eq=False)
class NodeRest:
    """tables: what its shard holds. witness: of each table, in full recordings. clocks, local: of its workers. items:
    what they said they computed. staleness [workers of the node, 32]: as in `Cache`."""

    node: int
    tables: tuple[Rest, ...]
    witness: tuple[tuple[Keys, NDArray[np.int32]], ...]
    clocks: dict[int, int]
    local: dict[int, dict[str, Any]]
    items: float
    staleness: NDArray[np.int64]
    recorded: Recorded


class NodeRecording(Recording):
    """A recording that several nodes write into, each on its own, or the driver's, into which they are put together."""

    def packed(self, late: float) -> Recorded:
        """All of it, to be sent away."""
        events = {name: getattr(self, name) for name in _EVENTS} if self.full else {}
        return Recorded(late, self._sent, self._waits, self.clocks, self._row_sends, events)

    def take(self, parts: Iterable[Recorded]) -> None:
        """Put in what nodes have recorded. Events of several nodes are in the order of their times, which belong
        together where all ran on one machine; clocks are the lowest and highest of all nodes.
        """
        parts = list(parts)
        for part in parts:
            self._add_counts(part)
        self._add_clocks(parts)
        if not self.full:
            return
        found = []
        for place, part in enumerate(parts):
            for name, entries in part.events.items():
                found += [(entry.now + part.late, place, entry.order, name, entry) for entry in entries]
        found.sort(key=lambda event: event[:3])
        life = len(self.restarts)  # readers count lives from 0
        for now, _, _, name, entry in found:
            told = entry._replace(order=next(self._order), now=now)
            getattr(self, name).append(told._replace(incarnation=life) if name == "deliveries" else told)

    def _add_counts(self, part: Recorded) -> None:
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

    def _add_clocks(self, parts: list[Recorded]) -> None:
        """From (seconds, least, most) of each node to those of all."""
        moves = sorted(
            (now + part.late, place, low, high) for place, part in enumerate(parts) for now, low, high in part.clocks
        )
        at = {place: (0, 0) for place, part in enumerate(parts) if part.clocks}
        for now, place, low, high in moves:
            at[place] = low, high
            least, most = min(entry[0] for entry in at.values()), max(entry[1] for entry in at.values())
            if not self.clocks or least > self.clocks[-1][1]:
                self.moved_on(now, least, most)


def merged(layout: Layout, record: str | None, rests: Iterable[NodeRest]) -> NodeRecording:
    """One recording of all nodes, with the final witnesses where everything was recorded."""
    rests = sorted(rests, key=attrgetter("node"))
    made = NodeRecording(layout, record)
    made.take(rest.recorded for rest in rests)
    if made.full:
        for table in range(len(layout.tables)):
            keys, counts = zip(*(rest.witness[table] for rest in rests), strict=True)
            made.final[table] = np.concatenate(keys), np.concatenate(counts)
            made.final_values[table] = np.concatenate([rest.tables[table].values for rest in rests])
    return made
