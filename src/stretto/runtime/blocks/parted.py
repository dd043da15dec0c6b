"""Read a partitioned source on several nodes, and exchange entries so that each node gets those of its rows.

    counted = by_shares(source, crew, count_some)           # count_some(source, parts, crew), once on every host
    for part, chunk in exchange.walk(source, to): …         # on a node: the entries of its rows, read by any node

A part is read by one node. Its entries are sent in chunks to the nodes that own the rows; a few chunks may be in flight
between two nodes. Chunks of a part arrive in their order, parts in any order: the receiver knows where each part's
entries begin.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.placement import parts_read_by
from stretto.errors import RunError
from stretto.schedule.orders.order import Ints

from .crew import Crew
from .source import GRAIN, Chunk, EntrySource

_WINDOW = 4  # chunks in flight from one node to another


class PartedSource(EntrySource, Protocol):
    """A source that is read in parts, one after the other or by several nodes at once. It can be pickled."""

    @property
    def parts(self) -> int:
        """The number of parts."""

    @property
    def readers(self) -> Ints | None:
        """[parts] the node that reads each part; None: any node."""

    @property
    def before(self) -> Ints | None:
        """[parts + 1] entries before each part; None where that is not known."""

    def part(self, number: int) -> Iterator[Chunk]:
        """The entries of a part in their order."""


def in_parts(source: EntrySource) -> PartedSource | None:
    """The source itself if it is read in parts, otherwise None."""
    return cast(PartedSource, source) if getattr(source, "parts", 0) else None


def by_shares(source: PartedSource, crew: Crew, count: Callable[[Any, Sequence[int], Crew], Any]) -> list[Any]:
    """count(source, parts, crew) of every share of the parts, where the crew works."""
    return crew.apply(_Counting(source, count), crew.shares(source.parts, source.readers))


class _Counting:
    """A function that can be pickled."""

    def __init__(self, source: PartedSource, count: Callable[[Any, Sequence[int], Crew], Any]) -> None:
        self._source, self._count = source, count

    def __call__(self, parts: Sequence[int], crew: Crew) -> Any:
        return self._count(self._source, parts, crew)


def whole_grains(source: PartedSource, parts: Sequence[int]) -> Iterator[Chunk]:
    """The grains that begin in these parts, each complete: the rest of the last one is read from the parts that
    follow.
    """
    before = source.before
    assert before is not None
    for number in parts:
        skip, left = int(-before[number] % GRAIN), int(before[number + 1] - before[number])
        if left <= skip:
            continue
        left += int(-before[number + 1] % GRAIN) - skip
        for rows, cols, values in _onwards(source, number, skip):
            yield rows[:left], cols[:left], values[:left]
            left -= len(values)
            if left <= 0:
                break


def _onwards(source: PartedSource, number: int, skip: int) -> Iterator[Chunk]:
    """Entries from a position in a part to the end of all parts, grain by grain."""
    waiting: list[Chunk] = []
    count = 0
    for following in range(number, source.parts):
        for rows, cols, values in source.part(following):
            if skip:
                gone = min(skip, len(values))
                rows, cols, values, skip = rows[gone:], cols[gone:], values[gone:], skip - gone
            waiting.append((rows, cols, values))
            count += len(values)
            if count >= GRAIN:
                r, c, v = (np.concatenate(one) for one in zip(*waiting, strict=True))
                whole = count // GRAIN * GRAIN
                yield r[:whole], c[:whole], v[:whole]
                waiting, count = [(r[whole:], c[whole:], v[whole:])], count - whole
    if count:
        r, c, v = (np.concatenate(one) for one in zip(*waiting, strict=True))
        yield r, c, v


def _refuse_outside(source: PartedSource, part: int, chunk: Chunk) -> None:
    """RunError for indices out of range: compiled code does not check them."""
    for what, indices, size in (("rows", chunk[0], source.shape[0]), ("columns", chunk[1], source.shape[1])):
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < size:
            raise RunError(f"part {part} has {what} outside the shape of the data; check the source")
    if not 0 <= part < source.parts:
        raise RunError(f"a node received part {part}, but there are {source.parts} parts; please report this")


Send = Callable[[int, int, Chunk | None], None]  # (to, part, entries): None: no more entries


class Exchange:
    """One node's end of an exchange.

    Parameters
    ----------
    node : int
        Its number.
    nodes : int
        How many nodes take part.
    send : function(to, part, chunk)
        Sends entries to another node, in order; None for the end.
    taken : function(source)
        Notifies a node that one of its chunks was processed.
    """

    def __init__(self, node: int, nodes: int, send: Send, taken: Callable[[int], None]) -> None:
        self._node, self._nodes, self._send, self._taken = node, nodes, send, taken
        self._changed = threading.Condition()
        self._came: deque[tuple[int, int, Chunk | None]] = deque()  # (from, part, entries)
        self._under_way = [0] * nodes
        self._error: BaseException | None = None
        self._halted = False

    # -- on the wire's thread ----------------------------------------------------------------------------------------

    def arrives(self, source: int, part: int, chunk: Chunk | None) -> None:
        """Receive entries of another node, or its end."""
        with self._changed:
            self._came.append((source, part, chunk))
            self._changed.notify_all()

    def was_taken(self, by: int) -> None:
        """Another node has processed one of this node's chunks."""
        with self._changed:
            self._under_way[by] -= 1
            self._changed.notify_all()

    def halt(self) -> None:
        """Release all waiting threads."""
        with self._changed:
            self._halted = True
            self._changed.notify_all()

    # -- on a thread of the node -------------------------------------------------------------------------------------

    def walk(self, source: PartedSource, to: NDArray[Any]) -> Iterator[tuple[int, Chunk]]:
        """(part, entries) of this node's rows, read by any node.

        Parameters
        ----------
        to : array of int
            The node of each row.
        """
        reader = threading.Thread(target=self._read, args=(source, to), name=f"stretto-parts-{self._node}", daemon=True)
        reader.start()
        left = self._nodes
        while left:
            with self._changed:
                self._changed.wait_for(lambda: self._came or self._error is not None or self._halted)
                self._check()
                source_node, part, chunk = self._came.popleft()
            if chunk is None:
                left -= 1
                continue
            _refuse_outside(source, part, chunk)
            yield part, chunk
            del chunk
            if source_node == self._node:
                self.was_taken(self._node)
            else:
                self._taken(source_node)
        reader.join()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._halted:
            raise RunError(f"node {self._node} was stopped while it read its data")

    def _read(self, source: PartedSource, to: NDArray[Any]) -> None:
        """Read this node's parts and send their entries."""
        try:
            for part in parts_read_by(self._node, self._nodes, source.parts, source.readers):
                for rows, cols, values in source.part(part):
                    node = to[rows]
                    order = np.argsort(node, kind="stable")
                    bounds = np.searchsorted(node[order], np.arange(self._nodes + 1))
                    for other in np.flatnonzero(np.diff(bounds)).tolist():
                        which = order[bounds[other] : bounds[other + 1]]
                        self._hand(other, part, (rows[which], cols[which], values[which]))
            for other in range(self._nodes):
                self._hand(other, -1, None)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _hand(self, other: int, part: int, chunk: Chunk | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._under_way[other] < _WINDOW or self._halted)
            self._check()
            if chunk is not None:
                self._under_way[other] += 1
        if other == self._node:
            self.arrives(self._node, part, chunk)
        else:
            self._send(other, part, chunk)
