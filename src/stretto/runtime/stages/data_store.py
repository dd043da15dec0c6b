"""Data of the parts that run in this process, kept from one stage to the next.

    rows = held("session 7", (2, part, parts), lambda: cut(X, part, parts))
    release("session 7", 2)

A key belongs to an owner and begins with the number of a data set. Data that are read in blocks are kept by the reader
of the data set (`runtime.stages.block_readers`), and the reader is kept here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .block_readers import BlockReader, BlockReads

_lock = threading.Lock()
_held: dict[str, dict[tuple[int, ...], Any]] = {}


def held(owner: str, key: tuple[int, ...], make: Callable[[], Any]) -> Any:
    """The data of a key; made by the first who asks."""
    with _lock:
        mine = _held.setdefault(owner, {})
        if key in mine:
            return mine[key]
    made = make()  # without the lock: parts are read at the same time
    with _lock:
        return _held.setdefault(owner, mine).setdefault(key, made)


def put(owner: str, given: dict[tuple[int, ...], Any]) -> None:
    """Keep data that came from elsewhere."""
    with _lock:
        _held.setdefault(owner, {}).update(given)


def release(owner: str, number: int | None = None) -> None:
    """Forget a data set of an owner; None: all of them. Reading ends."""
    with _lock:
        mine = _held.get(owner, {})
        gone = [mine.pop(key) for key in list(mine) if number in (None, key[0])]
        if not mine:
            _held.pop(owner, None)
    for data in gone:
        if isinstance(data, BlockReader):
            data.close()


def numbers_held(owner: str) -> set[int]:
    """The data sets of an owner that this process holds."""
    with _lock:
        return {key[0] for key in _held.get(owner, {})}


@dataclass(frozen=True, eq=False)
class StageBlocks:
    """The data sets of a stage that are read in blocks. It is sent to the nodes of the stage."""

    owner: str
    reads: tuple[BlockReads, ...]
    first: int  # iterations that the unit has made before

    def begin(self, parts: Sequence[int]) -> None:
        """Read for these parts in this process, while the stage runs."""
        for reads in self.reads:
            self._reader(reads).begin(parts, self.first)

    @contextmanager
    def reading(self, parts: Sequence[int]) -> Iterator[None]:
        """Read while a stage runs; nothing more is read ahead if it fails."""
        self.begin(parts)
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Read nothing ahead: the stage has failed."""
        for reads in self.reads:
            with _lock:
                reader = _held.get(self.owner, {}).get(reads.key)
            if reader is not None:  # it was not released meanwhile
                reader.stop()

    def _reader(self, reads: BlockReads) -> BlockReader:
        found: BlockReader = held(self.owner, reads.key, lambda: BlockReader(reads))
        return found


def block_reader(owner: str, number: int, parts: int) -> BlockReader:
    """The reader of a data set, after `StageBlocks.begin`."""
    with _lock:
        found: BlockReader = _held[owner][number, parts]
        return found
