"""Recorded events of several nodes, put together: in an order that agrees with who could know of what, life by life.

Nodes record on machines whose clocks differ, so times alone do not order events of two nodes. Messages do: a delivery
comes after its sending. `in_order` takes events by their times, but a delivery never before the message was sent; then
no read comes before an add that it shows.

A node that is lost takes its recording with it. What workers did before a cut must not be lost with it, or nobody could
check that the tables still hold it: `Fresh` gives a worker's new events, which are sent to the driver with its part of
every cut, and `Lives` keeps those that came before the cut that everybody goes back to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from stretto.store.recording import Recording, Restart, Tick

# The lists of events of a full recording: all but `restarts`, which only the driver knows of.
EVENTS = ("reads", "adds", "ticks", "sends", "picks", "deliveries", "updates", "rows")
OF_WORKERS = ("reads", "adds", "ticks")
_REPEATED = ("again", "acknowledge")  # reasons of frames that carry no new message


class Event(NamedTuple):
    """now: by the driver's clock, as well as it is known. place: the node. name: the list it belongs to."""

    now: float
    place: int
    order: int
    name: str
    entry: Any


def events_of(place: int, late: float, lists: dict[str, list[Any]]) -> list[Event]:
    """The events of one node, in its own order; late: add it to its times to have the driver's."""
    found = [
        Event(entry.now + late, place, entry.order, name, entry) for name, entries in lists.items() for entry in entries
    ]
    found.sort(key=lambda event: event.order)
    return found


def in_order(streams: Iterable[list[Event]]) -> Iterator[Event]:
    """All events, those of a node in its own order, no message taken before it was sent."""
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
        if not heads:  # messages that nobody sent: whoever checks the recording shall see them
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


class Fresh:
    """Events of a node's workers that were not taken yet."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._taken: dict[tuple[int, str], int] = {}

    def take(self, worker: int) -> dict[str, list[Any]]:
        """The worker's reads, adds and ticks since the last time."""
        found = {}
        for name in OF_WORKERS:
            entries = getattr(self._recording, name)
            first = self._taken.get((worker, name), 0)
            found[name] = [entry for entry in entries[first:] if entry.worker == worker]
            self._taken[worker, name] = len(entries)
        return found


class Lives:
    """What the driver keeps of lives that are over: events that came before the next life's clock, and the restarts."""

    def __init__(self) -> None:
        self._over: list[tuple[list[Event], Restart]] = []
        self._now: list[Event] = []

    def take(self, place: int, late: float, lists: dict[str, list[Any]]) -> None:
        """Events of a worker in this life."""
        self._now += events_of(place, late, lists)

    def restart(self, now: float, clock: int) -> None:
        """A host was lost, and everybody goes back to this clock."""
        kept = [event for event in self._now if event.entry.clock < clock + isinstance(event.entry, Tick)]
        kept.sort(key=lambda event: event[:3])
        self._over.append((kept, Restart(0, now, clock, len(self._over) + 1, whole=False)))
        self._now = []

    def write(self, recording: Recording) -> None:
        """Put it all into a recording, before the events of the last life."""
        for events, restart in self._over:
            for event in events:
                recording.put(event.name, event.entry, event.now)
            recording.put("restarts", restart, restart.now)
