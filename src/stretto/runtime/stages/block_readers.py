"""Threads that read the blocks of a data set while workers use others.

    reader = BlockReader(reads)
    reader.begin([0, 1, 2], first=0)        reading starts
    reader.take(1, 0)                       block 0 of part 1; waits until it is present

`schedule.stages.block_window` decides which block is next and how many are ahead. Threads exist only while there is
something to read. What was read stays for later stages and tasks of this process, until the data set is released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stretto.errors import DataError, RunError
from stretto.schedule.stages.block_window import Block, BlockRead, BlockWindow
from stretto.state.state import State

THREADS = 2  # of a process, for one data set: one may wait for the disk while the other parses


class BlockError(RunError):
    """A block could not be read."""


@dataclass(frozen=True, eq=False)
class BlockReads:
    """A data set in blocks, as a process reads it."""

    number: int  # among those of the owner
    counts: tuple[int, ...]  # blocks of each part
    read: Callable[[int, int, int], Any]  # function(part, parts, block) -> block
    ahead: int
    memory: int | None = None  # bytes of blocks that a process keeps; None for all

    @property
    def key(self) -> tuple[int, ...]:
        """Where the data store keeps its reader: one for each number of parts."""
        return self.number, len(self.counts)


class BlockReader:
    """Reads the blocks of one data set in this process."""

    def __init__(self, reads: BlockReads) -> None:
        self.reads = reads
        self._window = BlockWindow(reads.counts, reads.ahead, reads.memory)
        self._changed = threading.Condition()
        self._blocks: dict[Block, Any] = {}
        self._errors: dict[Block, BaseException] = {}
        self._threads = 0
        self._closed = False

    def begin(self, parts: Sequence[int], first: int) -> None:
        """Start to read for parts whose next iteration has this number."""
        with self._changed:
            for part in parts:
                self._window.expect(part, first % self.reads.counts[part])
            mine = set(parts)
            self._errors = {key: error for key, error in self._errors.items() if key[0] not in mine}  # tried again
            self._start()

    def take(self, part: int, block: int) -> Any:
        """A block; waits until it is present.

        Raises
        ------
        BlockError
            If it could not be read.
        """
        key = part, block
        with self._changed:
            self._window.want(part, block)
            self._start()
            self._changed.wait_for(lambda: key in self._blocks or key in self._errors or self._closed)
            found, error = self._blocks.get(key), self._errors.pop(key, None)
            ready = key in self._blocks
            self._drop(self._window.taken(part, block))
            if not ready:
                self._window.stop()
            self._start()
        if ready:
            return found
        if error is None:
            raise BlockError(f"{self._words(key)} was released while a part waited for it; please report this")
        kind = "" if isinstance(error, DataError | RunError) else f"{type(error).__name__}: "
        raise BlockError(f"{self._words(key)} cannot be read: {kind}{error}") from error

    def all_of(self, part: int) -> BlockSequence:
        """All blocks of a part, one after another."""
        return BlockSequence(self, part)

    def stop(self) -> None:
        """Read nothing ahead any more; what is being read now is read to its end."""
        with self._changed:
            self._window.stop()

    def close(self) -> None:
        """Free all blocks."""
        with self._changed:
            self._closed = True
            self._blocks.clear()
            self._changed.notify_all()

    # -- with the lock ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start threads for what can be read now."""
        while self._threads < THREADS and not self._closed and (first := self._next()) is not None:
            self._threads += 1
            threading.Thread(target=self._read, args=(first,), name="stretto-reader", daemon=True).start()

    def _next(self) -> BlockRead | None:
        found = None if self._closed else self._window.next()
        if found is not None:
            self._drop(found.drops)
        return found

    def _drop(self, gone: Iterable[Block]) -> None:
        for key in gone:
            self._blocks.pop(key, None)

    def _words(self, key: Block) -> str:
        part, block = key
        words = getattr(self.reads.read, "words", None)
        what = f"block {block} of part {part}"
        return what if words is None else f"{what} ({words(part, block)})"

    # -- a reader's thread --------------------------------------------------------------------------------------------

    def _read(self, now: BlockRead | None) -> None:
        parts = len(self.reads.counts)
        while now is not None:
            found, error = None, None
            try:
                found = self.reads.read(now.part, parts, now.block)
            except BaseException as raised:  # it belongs to the part that asks for the block
                error = raised
            with self._changed:
                if error is not None:
                    self._errors[now.key] = error
                    self._window.failed(*now.key)
                elif not self._closed:
                    self._blocks[now.key] = found
                    self._drop(self._window.arrived(*now.key, nbytes_of(found)))
                now = self._next()
                if now is None:
                    self._threads -= 1
                self._changed.notify_all()


class BlockSequence:
    """All blocks of a part: `for block in blocks`, as often as necessary. Each is waited for when its turn comes."""

    def __init__(self, reader: BlockReader, part: int) -> None:
        self._reader, self._part = reader, part

    def __len__(self) -> int:
        return self._reader.reads.counts[self._part]

    def __iter__(self) -> Iterator[Any]:
        for block in range(len(self)):
            yield self._reader.take(self._part, block)


def nbytes_of(value: Any) -> int:
    """Bytes of arrays, sparse matrices, data and tuples of them; 0 where that is not known."""
    if isinstance(value, tuple | list):
        return sum(map(nbytes_of, value))
    if isinstance(value, State):
        return int(value.array.nbytes)
    if hasattr(value, "indptr") and hasattr(value, "indices"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 0) or 0)
