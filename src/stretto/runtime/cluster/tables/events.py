"""Merge the recorded events of several nodes into one causal order, across restarts of the run.

Nodes record on machines whose clocks differ, so times alone do not order events of two nodes. Messages do: a delivery
comes after its sending. `in_order` sorts events by time but never puts a delivery before its sending; then no read
comes before an add that it contains.

The recording of a lost node is lost with it. But the events of workers before a cut are needed, to check that the
tables still contain them. So `NewEvents` returns a worker's new events, which are sent to the driver with its part of
every cut, and `EventHistory` keeps those from before the cut that the run restarts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from stretto.store.recording import Recording, Restart, Tick

# The lists of events of a full recording: all but `restarts`, which only the driver records.
EVENTS = ("reads", "adds", "ticks", "sends", "picks", "deliveries", "updates", "rows")
OF_WORKERS = ("reads", "adds", "ticks")
_REPEATED = ("again", "acknowledge")  # reasons of frames without a new message


class Event(NamedTuple):
    """A recorded event."""

    now: float  # by the driver's clock, as well as it is known
    place: int  # the node
    order: int  # position among the node's events
    name: str  # the list it belongs to
    entry: Any


def events_of(place: int, late: float, lists: dict[str, list[Any]]) -> list[Event]:
    """The events of one node, in its own order; `late` is added to its times to get the driver's."""
    found = [
        Event(entry.now + late, place, entry.order, name, entry) for name, entries in lists.items() for entry in entries
    ]
    found.sort(key=lambda event: event.order)
    return found


def in_order(streams: Iterable[list[Event]]) -> Iterator[Event]:
    """Merge events: each node's in its own order, no message delivered before it was sent."""
    sources = [iter(stream) for stream in streams]
    heads: list[tuple[float, int, Event]] = []

    def advance(source: int) -> None:
        event = next(sources[source], None)
        if event is not None:
            heappush(heads, (event.now, source, event))

    for source in range(len(sources)):
        advance(source)
    sent: dict[tuple[int, int], int] = {}  # (from, to) → messages sent so far
    waiting: dict[tuple[int, int, int], list[tuple[float, int, Event]]] = {}  # (from, to, number) → heads
    while heads or waiting:
        if not heads:  # deliveries without a sending: kept, so that a check of the recording finds them
            heads = [head for parked in waiting.values() for head in parked]
            heapify(heads)
            waiting.clear()
            sent = dict.fromkeys(((head[2].entry.source, head[2].entry.target) for head in heads), 1 << 62)
        _, source, event = head = heappop(heads)
        entry = event.entry
        if event.name == "deliveries" and sent.get((entry.source, entry.target), 0) < entry.sequence:
            waiting.setdefault((entry.source, entry.target, entry.sequence), []).append(head)
            continue
        yield event
        advance(source)
        if event.name == "sends" and entry.reason not in _REPEATED:
            link = entry.source, entry.target
            sent[link] = number = sent.get(link, 0) + 1
            for parked in waiting.pop((*link, number), ()):
                heappush(heads, parked)


class NewEvents:
    """Events of a node's workers that were not taken yet."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._taken: dict[tuple[int, str], int] = {}

    def take(self, worker: int) -> dict[str, list[Any]]:
        """The worker's reads, adds and ticks since the last call."""
        found = {}
        for name in OF_WORKERS:
            entries = getattr(self._recording, name)
            first = self._taken.get((worker, name), 0)
            found[name] = [entry for entry in entries[first:] if entry.worker == worker]
            self._taken[worker, name] = len(entries)
        return found


class EventHistory:
    """The driver's record of ended incarnations: events before the clock of the next one, and the restarts."""

    def __init__(self) -> None:
        self._over: list[tuple[list[Event], Restart]] = []
        self._now: list[Event] = []

    def take(self, place: int, late: float, lists: dict[str, list[Any]]) -> None:
        """Add events of a worker in this incarnation."""
        self._now += events_of(place, late, lists)

    def restart(self, now: float, clock: int) -> None:
        """A host was lost, and the run restarts from this clock."""
        kept = [event for event in self._now if event.entry.clock < clock + isinstance(event.entry, Tick)]
        kept.sort(key=lambda event: event[:3])
        self._over.append((kept, Restart(0, now, clock, len(self._over) + 1, whole=False)))
        self._now = []

    def write(self, recording: Recording) -> None:
        """Write everything into a recording, before the events of the last incarnation."""
        for events, restart in self._over:
            for event in events:
                recording.put(event.name, event.entry, event.now)
            recording.put("restarts", restart, restart.now)
