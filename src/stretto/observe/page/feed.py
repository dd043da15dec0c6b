"""What viewers of a live page are sent: the parts of the runs' summaries that changed since they last asked.

    feed = Feed([tail, other])
    feed.poll()                          # reads the records
    seen, message = feed.news(0)         # everything: [[number of the run, {part}], …] as JSON
    seen, message = feed.news(seen)      # nothing new: message is None

Nothing is queued for a viewer: one that is slow is sent the newest state later, so memory does not grow with viewers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from stretto.observe.listeners.prometheus import exposition

from .document import PARTS, document, short, with_findings
from .names import names_of
from .tail import RecordTail


class Feed:
    """The newest state of some runs, cut into parts with a version each.

    Parameters
    ----------
    tails : sequence of RecordTail
        The runs.

    Attributes
    ----------
    changed : threading.Condition
        Notified after every change.
    """

    def __init__(self, tails: Sequence[RecordTail]) -> None:
        self.tails = list(tails)
        self.names = names_of([tail.folder for tail in self.tails])
        self.changed = threading.Condition(threading.RLock())
        self._version = 0
        self._parts: dict[tuple[int, str], tuple[int, bytes]] = {}
        self._states = [tail.state(name) for tail, name in zip(self.tails, self.names, strict=True)]
        self._live: list[bool | None] = [None] * len(self.tails)

    @property
    def any_live(self) -> bool:
        """Whether a process still writes to one of the records, as of the last poll."""
        return any(self._live)

    def poll(self) -> bool:
        """Read the records; whether anything changed."""
        fresh: dict[tuple[int, str], bytes] = {}
        for number, (tail, name) in enumerate(zip(self.tails, self.names, strict=True)):
            live = tail.is_live
            if not tail.poll() and live == self._live[number]:
                continue
            self._live[number] = live
            self._states[number] = state = with_findings(tail.state(name))
            for part, keys in PARTS.items():
                fresh[number, part] = msgspec.json.encode(short({key: state[key] for key in keys}))
        news = {at: content for at, content in fresh.items() if self._parts.get(at, (0, b""))[1] != content}
        if not news:
            return False
        with self.changed:
            self._version += 1
            self._parts |= {at: (self._version, content) for at, content in news.items()}
            self.changed.notify_all()
        return True

    def news(self, seen: int) -> tuple[int, bytes | None]:
        """(version, message): all parts that are newer than the version `seen`; None if none is."""
        with self.changed:
            version, parts = self._version, sorted(self._parts.items())
        found = [b"[%d,%b]" % (at[0], content) for at, (made, content) in parts if made > seen]
        return version, b"[" + b",".join(found) + b"]" if found else None

    def metrics(self) -> bytes:
        """The newest numbers as text for Prometheus."""
        with self.changed:
            return exposition(self._states).encode()

    def page(self) -> bytes:
        """The live page with the newest state inside, so that it shows something before the first event."""
        return document([state if "findings" in state else with_findings(state) for state in self._states], live=True)
