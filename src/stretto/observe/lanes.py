"""The visits of the newest epoch, for the lanes of the live page: `lanes.json` in a run record.

    {"epoch": 3, "passes": ["sgd"], "dropped": 0, "visits": [[worker, row block, column block, pass, start, length], …]}

Times are microseconds since the first visit of the epoch. The file is replaced at most once a second, and holds at most
`LIMIT` visits, so that it costs a run next to nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stretto.observe.events import EpochDone, Event, PassDone, PlanMade

LANES = "lanes.json"
LIMIT = 3000  # visits
_EVERY = 1.0  # seconds between two writes

Ints = NDArray[np.int64]


class Lanes:
    """Collects the visits of one epoch at a time. `take` returns what to write when it is time to, else None."""

    def __init__(self) -> None:
        self._blocks: Ints | None = None
        self._epoch = 0
        self._parts: list[tuple[str, Ints]] = []
        self._dropped = 0
        self._kept = 0
        self._written: float | None = None
        self._whole: tuple[int, list[tuple[str, Ints]], int] | None = None  # the newest complete epoch, not yet written

    def take(self, event: Event) -> bytes | None:
        """Take an event in; the content of the file if it is to be written now."""
        if isinstance(event, PlanMade):
            self._blocks = None if event.blocks is None else np.asarray(event.blocks, dtype=np.int64)
        elif isinstance(event, PassDone) and event.visits is not None and len(event.visits):
            self._add(event)
        elif isinstance(event, EpochDone) and self._parts:
            self._whole = (self._epoch, self._parts, self._dropped)
            self._parts = []
            if self._written is None or event.time - self._written >= _EVERY:
                self._written = event.time
                return self.newest()
        return None

    def newest(self) -> bytes | None:
        """The newest complete epoch, if it was not returned before."""
        whole, self._whole = self._whole, None
        return None if whole is None else msgspec.json.encode(self._content(*whole))

    def _add(self, event: PassDone) -> None:
        if not self._parts or event.epoch != self._epoch:
            self._epoch, self._parts, self._dropped, self._kept = event.epoch, [], 0, 0
        assert event.visits is not None
        count = len(event.visits)
        room = max(0, LIMIT - self._kept)
        kept = np.array(event.visits[:room], dtype=np.int64)  # a copy: the ring buffer it comes from is reused
        if len(kept):
            self._parts.append((event.name, kept))
        self._kept += len(kept)
        self._dropped += count - len(kept)

    def _content(self, epoch: int, parts: list[tuple[str, Ints]], dropped: int) -> dict[str, Any]:
        visits = np.concatenate([part for _, part in parts])
        which = np.repeat(np.arange(len(parts)), [len(part) for _, part in parts])
        blocks = np.full((len(visits), 2), -1, dtype=np.int64)
        if self._blocks is not None:
            known = (visits[:, 0] >= 0) & (visits[:, 0] < len(self._blocks))
            blocks[known] = self._blocks[visits[known, 0]]
        start = (visits[:, 2] - visits[:, 2].min()) // 1000
        length = (visits[:, 3] - visits[:, 2]) // 1000
        rows = np.column_stack((visits[:, 1], blocks, which, start, length))
        names = [name for name, _ in parts]
        return {"epoch": epoch, "passes": names, "dropped": dropped, "visits": rows.tolist()}
