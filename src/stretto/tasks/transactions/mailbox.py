"""`Mailbox`: messages from each part of a unit to each other one, through a table that all of them read and add to.

    counts     a row or more for each part: how many words it sends to each other one, and whether it has ended
    pages      some rows for each pair: the words of a message; a longer one takes several clocks

A page has one writer, which knows what it holds and adds the difference, so that the table holds the words themselves.
Under BSP everyone reads what was written in the clock before: messages arrive once, whatever the runtime, and all parts
know how many clocks an exchange takes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.state.partitioned import PartitionedState
from stretto.state.partitions import Ranges
from stretto.tables.handle import Handle
from stretto.tables.worker import Worker

from .messages import Words

WIDTH = 64  # words of a row
_BYTES = 1 << 22  # of a mailbox, about
_MOST_PAGES = 256


class MailState(PartitionedState):
    """The table of a mailbox for a number of parts. It starts with zeros in every stage."""

    __slots__ = ("parts",)

    def __init__(self, parts: int) -> None:
        super().__init__(
            np.zeros((_count_rows(parts) * parts + parts * parts * _pages(parts), WIDTH), "i8"), Ranges("rows")
        )
        self.parts = parts

    def __reduce__(self) -> Any:
        return MailState, (self.parts,)

    def copy(self) -> MailState:
        """Another empty mailbox."""
        return MailState(self.parts)


class Mailbox:
    """One part's access to the mailbox of its unit.

    Parameters
    ----------
    worker : Worker
        The part.
    table : Handle
        The table of the mailbox.
    """

    def __init__(self, worker: Worker, table: Handle) -> None:
        self._worker, self._table = worker, table
        self._part, self._parts = worker.number, worker.workers
        self._pages, self._lines = _pages(self._parts), _count_rows(self._parts)
        self._first = self._parts * self._lines  # row of the first page
        self._held: dict[int, Words] = {}  # by row: what this part has written there

    def exchange(self, messages: Sequence[Words], ended: bool) -> Generator[None, None, tuple[list[Words], bool, bool]]:
        """Send a message to each part; yields after every tick.

        Returns
        -------
        received : list of array
            A message from each part.
        any_sent : bool
            Whether some part sent something to some other one, or to itself.
        all_ended : bool
            Whether all parts said so.
        """
        counts = np.zeros(self._lines * WIDTH, np.int64)
        counts[: self._parts] = [len(words) for words in messages]
        counts[self._parts] = ended
        mine = range(self._part * self._lines, (self._part + 1) * self._lines)
        self._write(dict(zip(mine, counts.reshape(-1, WIDTH), strict=True)))
        received: list[list[Words]] = [[] for _ in messages]
        at_once, turn, turns = self._pages * WIDTH, 0, 1
        while turn < turns:
            self._send(messages, turn * at_once)
            self._worker.tick()
            yield
            if turn == 0:
                table = self._table.read(np.arange(self._first)).reshape(self._parts, -1)
                sent, all_ended = table[:, : self._parts], bool(table[:, self._parts].all())
                turns = max(1, -(-int(sent.max()) // at_once))
            for part, count in enumerate(sent[:, self._part].tolist()):
                left = min(at_once, count - turn * at_once)
                if left > 0:
                    rows = self._rows(part, self._part, left)
                    received[part].append(self._table.read(rows).reshape(-1)[:left])
            turn += 1
        return (
            [np.concatenate(words) if words else np.empty(0, np.int64) for words in received],
            bool(sent.any()),
            all_ended,
        )

    def _send(self, messages: Sequence[Words], begin: int) -> None:
        """Write the words of each message from a position on, as many as its pages have."""
        written: dict[int, Words] = {}
        for part, words in enumerate(messages):
            chunk = words[begin : begin + self._pages * WIDTH]
            if len(chunk):
                rows = self._rows(self._part, part, len(chunk))
                padded = np.zeros(len(rows) * WIDTH, np.int64)
                padded[: len(chunk)] = chunk
                written.update(zip(rows.tolist(), padded.reshape(-1, WIDTH), strict=True))
        self._write(written)

    def _rows(self, sender: int, receiver: int, words: int) -> NDArray[np.int64]:
        """The rows of the first words from one part to another; those of one receiver are neighbours."""
        first = self._first + (receiver * self._parts + sender) * self._pages
        return np.arange(first, first - (-words // WIDTH))

    def _write(self, rows: dict[int, Words]) -> None:
        """Make rows hold these words."""
        before = {row: self._held.get(row) for row in rows}
        changed = {row: words if (old := before[row]) is None else words - old for row, words in rows.items()}
        self._held.update(rows)
        changed = {row: words for row, words in changed.items() if words.any()}
        if changed:
            self._table.add(np.fromiter(changed, np.int64), np.stack(list(changed.values())))


def _count_rows(parts: int) -> int:
    """Rows of counts of each part."""
    return -(-(parts + 1) // WIDTH)


def _pages(parts: int) -> int:
    """Rows of each pair."""
    return max(1, min(_MOST_PAGES, _BYTES // (parts * parts * WIDTH * 8)))
