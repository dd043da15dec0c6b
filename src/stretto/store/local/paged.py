"""`PagedTable`: rows of a state of which this process holds some chunks; the others come when they are first used.

A chunk is *present*, *stored* (written out, because at most `most` chunks are present at a time), or *remote* (another
node has it). `Pager` is what brings them:

    pager.fetch(chunks)            request remote chunks; each comes later, by `arrived`
    pager.load(chunk)              a stored chunk, at once
    pager.store(chunk, rows)       write a chunk out

A read of remote chunks is refused after they were requested. Rows are written to the reader's array as its chunks
arrive, so a chunk may be replaced before the reader runs again. Changes of a remote chunk wait for it and are applied
in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys

from .changes import HashedChanges, WaitingChanges
from .grid import ChunkGrid

PRESENT, STORED, REMOTE = 0, 1, 2


class Pager(Protocol):
    """Brings chunks of one state and takes those that are replaced."""

    def fetch(self, chunks: list[int]) -> None:
        """Request remote chunks. Does not wait."""

    def load(self, chunk: int) -> NDArray[Any]:
        """The rows of a chunk that was stored."""

    def store(self, chunk: int, rows: NDArray[Any]) -> None:
        """Write the rows of a chunk out."""


@dataclass(eq=False)
class _Read:
    """A read that waits: positions of the keys that are missing, by chunk."""

    keys: Keys
    out: NDArray[Any]
    missing: dict[int, NDArray[np.int64]]


@dataclass(eq=False)
class _Queue:
    """Changes of a remote chunk, in order."""

    keys: list[Keys] = field(default_factory=list)
    deltas: list[NDArray[Any]] = field(default_factory=list)


class PagedTable:
    """Some chunks of a state.

    Parameters
    ----------
    grid : ChunkGrid
        How the state is cut.
    cols : int
        Numbers in a row.
    dtype : dtype
        Type of the numbers.
    pager : Pager
        Brings chunks.
    where : array [chunks] uint8
        Where each chunk is at first: PRESENT (only with `values`), STORED or REMOTE.
    values : array [rows, cols] or None
        Rows by key, in which every chunk has its place; None: chunks share `most` places.
    most : int or None
        The most chunks that are present at a time; None for all.

    Attributes
    ----------
    where : array [chunks] uint8
        PRESENT, STORED or REMOTE.
    dirty : array [chunks] uint8
        Which chunks were changed here.
    brought, replaced : int
        Chunks that were brought in and written out so far.
    """

    def __init__(
        self,
        grid: ChunkGrid,
        cols: int,
        dtype: np.dtype[Any],
        pager: Pager,
        where: NDArray[np.uint8],
        values: NDArray[Any] | None = None,
        most: int | None = None,
    ) -> None:
        self.grid, self.cols, self.dtype, self._pager = grid, cols, np.dtype(dtype), pager
        self._fixed = values is not None
        frames = grid.chunks if most is None else max(1, min(most, grid.chunks))
        self.values: NDArray[Any] = np.empty((frames << grid.bits, cols), dtype) if values is None else values
        self.where: NDArray[np.uint8] = where.copy()
        self.base: NDArray[np.int64] = np.where(where == PRESENT, np.arange(grid.chunks) << grid.bits, -1)
        self.dirty: NDArray[np.uint8] = np.zeros(grid.chunks, np.uint8)
        self._unsaved: NDArray[np.bool_] = np.zeros(grid.chunks, np.bool_)  # present and not as stored
        self._used: NDArray[np.int64] = np.zeros(grid.chunks, np.int64)  # when each chunk was last used
        self._uses = 0
        self._free = list(range(frames - 1, -1, -1))
        self._requested: set[int] = set()
        self._reads: dict[int, _Read] = {}  # by worker
        self._done: set[int] = set()  # workers whose read is complete
        self._queues: dict[int, _Queue] = {}  # by remote chunk
        self._woken: list[int] = []
        self.brought = self.replaced = 0

    def begin(self, woken: list[int]) -> None:
        """A job begins; workers whose reads are complete are added to `woken`."""
        self._woken = woken
        self._reads.clear()
        self._done.clear()

    @property
    def settled(self) -> bool:
        """Whether no change waits for its chunk."""
        return not self._queues

    @property
    def expects(self) -> bool:
        """Whether chunks are on their way."""
        return bool(self._requested)

    # -- what workers do ----------------------------------------------------------------------------------------------

    def read(self, worker: int, keys: Keys, out: NDArray[Any]) -> bool:
        """Fill out [n, cols]; False: chunks were requested, and the worker is woken when out is filled."""
        if worker in self._done:
            self._done.discard(worker)
            return True
        missing = {}
        for chunk, at in self._by_chunk(keys):
            if self.where[chunk] == REMOTE:
                missing[chunk] = at
            else:
                out[at] = self.values[self._slots(chunk, keys[at])]
        if not missing:
            return True
        self._reads[worker] = _Read(keys, out, missing)
        self._request(list(missing))
        return False

    def want(self, keys: Keys) -> None:
        """Request the remote chunks of these rows."""
        chunks = np.unique(keys >> self.grid.bits)
        self._request(chunks[self.where[chunks] == REMOTE].tolist())

    def add(self, keys: Keys, deltas: NDArray[Any], locks: NDArray[np.int64] | None = None) -> None:
        """Add deltas [n, cols] to rows; those of remote chunks when they arrive."""
        remote = []
        for chunk, at in self._by_chunk(keys):
            if self.where[chunk] == REMOTE:
                queue = self._queues.setdefault(chunk, _Queue())
                queue.keys.append(keys[at])
                queue.deltas.append(deltas[at].copy())
                remote.append(chunk)
            else:
                self._change(chunk, keys[at], deltas[at])
        self._request(remote)

    def apply(self, changes: WaitingChanges) -> None:
        """Add what a worker added in a clock that is over."""
        self.add(*changes.rows())

    def changes(self, workers: int) -> WaitingChanges:
        """An empty place for changes."""
        return HashedChanges(self.cols, self.dtype)

    def reuse(self, changes: WaitingChanges) -> None:
        """Places for changes are not kept: memory is scarce here."""

    # -- chunks -------------------------------------------------------------------------------------------------------

    def arrived(self, chunk: int, rows: NDArray[Any]) -> None:
        """A remote chunk has come."""
        self._requested.discard(chunk)
        if self.where[chunk] != REMOTE:
            return
        self._install(chunk, rows)
        queue = self._queues.pop(chunk, None)
        if queue is not None:
            for keys, deltas in zip(queue.keys, queue.deltas, strict=True):
                self._change(chunk, keys, deltas)
        for worker in list(self._reads):
            read = self._reads[worker]
            at = read.missing.pop(chunk, None)
            if at is not None:
                read.out[at] = self.values[self._slots(chunk, read.keys[at])]
            if not read.missing:
                del self._reads[worker]
                self._done.add(worker)
                self._woken.append(worker)

    def chunk_rows(self, chunk: int) -> NDArray[Any]:
        """[n, cols] the rows of a chunk that is not remote; a view, or what was stored."""
        if self.where[chunk] == STORED:
            return self._pager.load(chunk)
        first = int(self.base[chunk])
        return self.values[first : first + self.grid.rows_of(chunk)]

    def flush(self) -> None:
        """Write out all chunks that are present and not as stored, unless every chunk has its own place."""
        for chunk in np.flatnonzero((self.where == PRESENT) & self._unsaved).tolist() if not self._fixed else ():
            self._pager.store(chunk, self.chunk_rows(chunk))
            self._unsaved[chunk] = False

    def _by_chunk(self, keys: Keys) -> list[tuple[int, NDArray[np.int64]]]:
        """Positions of the keys of each chunk, in order of the chunks; positions ascend."""
        chunks = keys >> self.grid.bits
        order = np.argsort(chunks, kind="stable")
        found, first = np.unique(chunks[order], return_index=True)
        return list(zip(found.tolist(), np.split(order, first[1:]), strict=True))

    def _slots(self, chunk: int, keys: Keys) -> NDArray[np.int64]:
        """[n] where rows of a chunk are; brings it in if it was stored."""
        if self.where[chunk] == STORED:
            self._install(chunk, self._pager.load(chunk))
        self._uses += 1
        self._used[chunk] = self._uses
        return int(self.base[chunk]) + (keys & ((1 << self.grid.bits) - 1))

    def _change(self, chunk: int, keys: Keys, deltas: NDArray[Any]) -> None:
        np.add.at(self.values, self._slots(chunk, keys), deltas)
        self.dirty[chunk] = 1
        self._unsaved[chunk] = True

    def _request(self, chunks: list[int]) -> None:
        new = [chunk for chunk in chunks if chunk not in self._requested]
        if new:
            self._requested.update(new)
            self._pager.fetch(new)

    def _install(self, chunk: int, rows: NDArray[Any]) -> None:
        first = chunk << self.grid.bits if self._fixed else self._frame() << self.grid.bits
        self.values[first : first + len(rows)] = rows
        self.base[chunk] = first
        # What came from another node is stored nowhere here.
        self._unsaved[chunk] = self.where[chunk] == REMOTE
        self.where[chunk] = PRESENT
        self.brought += 1
        self._uses += 1
        self._used[chunk] = self._uses

    def _frame(self) -> int:
        """A free place; the chunk that was not used for longest is written out for it."""
        if self._free:
            return self._free.pop()
        here = np.flatnonzero(self.where == PRESENT)
        oldest = int(here[np.argmin(self._used[here])])
        first = int(self.base[oldest])
        if self._unsaved[oldest]:
            self._pager.store(oldest, self.values[first : first + self.grid.rows_of(oldest)])
            self._unsaved[oldest] = False
        self.where[oldest], self.base[oldest] = STORED, -1
        self.replaced += 1
        return first >> self.grid.bits
