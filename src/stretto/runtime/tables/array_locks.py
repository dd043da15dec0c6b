"""Locks of a shared table: for all calls of `add`, for the chunks of rows that a call touches, or none.

    locks = locks_of("chunks", rows=100_000)
    with locks.adding(keys):
        array[keys] += deltas

Chunks are the middle between one lock for each row, which costs more than the work, and one for the whole table, for
which every thread waits. A call takes the locks of its chunks in ascending order, so that no two calls wait for each
other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from stretto.comm.messages import Keys

CHUNKS = 64  # of a table


class ArrayLocks(Protocol):
    """What is held while rows of a shared table are read or added to."""

    def reading(self, keys: Keys) -> AbstractContextManager[Any]:
        """Held while rows are read."""

    def adding(self, keys: Keys) -> AbstractContextManager[Any]:
        """Held while rows are added to."""


class NoLocks:
    """Nothing is held: concurrent writes of one number may lose one of them."""

    def reading(self, keys: Keys) -> AbstractContextManager[Any]:
        """Nothing."""
        return nullcontext()

    adding = reading


NO_LOCKS = NoLocks()


class OneLock(NoLocks):
    """Calls of `add` one at a time; reads take no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def adding(self, keys: Keys) -> AbstractContextManager[Any]:
        """The lock of the table."""
        return self._lock


class ChunkLocks:
    """A lock for each chunk of rows, for reads and adds alike."""

    def __init__(self, rows: int, chunks: int = CHUNKS) -> None:
        self._size = max(1, -(-rows // chunks))
        self._locks = [threading.Lock() for _ in range(-(-max(1, rows) // self._size))]

    @contextmanager
    def reading(self, keys: Keys) -> Iterator[None]:
        """The locks of the chunks that these rows are in."""
        held = []
        try:
            for chunk in np.unique(keys // self._size).tolist():
                self._locks[chunk].acquire()
                held.append(self._locks[chunk])
            yield
        finally:
            for lock in reversed(held):
                lock.release()

    adding = reading


def locks_of(kind: str, rows: int) -> ArrayLocks:
    """The locks of a table with this many rows. kind: "adds", "chunks" or "none"."""
    return ChunkLocks(rows) if kind == "chunks" else OneLock() if kind == "adds" else NO_LOCKS
