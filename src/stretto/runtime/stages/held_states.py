"""States that this process holds between the stages of tasks, by owner and number.

    held = held_state("session 7", 2, shape)
    held.put(chunk, rows)
    held.rows(chunk)                      a view, or what was written to disk
    release("session 7", 2)

A state is cut into chunks (`store.local.grid`), and a process holds some of them. In memory the rows have their full
shape, of which untouched pages take no memory. With a limit (`most_bytes`) they are in a file, and a stage keeps some
chunks in memory at a time.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import RunError
from stretto.pages import Pages
from stretto.store.local.grid import ChunkGrid
from stretto.store.local.paged import PRESENT, REMOTE, STORED, PagedTable
from stretto.store.local.table import LocalTable

from .data_store import release as release_data
from .file_blocks import open_on_node


@dataclass(frozen=True)
class StateShape:
    """Shape of a state: rows × cols numbers of a dtype, in chunks of 2**bits rows."""

    rows: int
    cols: int
    dtype: str
    bits: int

    @classmethod
    def of(cls, array: NDArray[Any], most: int | None = None) -> StateShape:
        """The shape of an array [rows, …]. most: rows of a chunk; None for as many as a chunk usually has."""
        flat = array.reshape(len(array), -1)
        bits = ChunkGrid.of(len(array), flat.shape[1] * flat.itemsize).bits
        if most is not None:
            bits = min(bits, max(1, most).bit_length() - 1)
        return cls(len(array), flat.shape[1], array.dtype.str[1:], bits)

    @property
    def grid(self) -> ChunkGrid:
        """Its chunks."""
        return ChunkGrid(self.rows, self.bits)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.cols * np.dtype(self.dtype).itemsize

    def chunk_bytes(self, chunk: int) -> int:
        """Bytes of a chunk."""
        return self.grid.rows_of(chunk) * self.row_bytes


class ChunkSource(Protocol):
    """Where a process gets chunks from that it does not hold (a transfer that runs)."""

    def request(self, number: int, chunks: list[int]) -> None:
        """Request chunks of a state; they are put into the held state when they arrive."""


class HeldState:
    """The chunks of one state in this process.

    Attributes
    ----------
    shape : StateShape
        Its shape.
    present : array [chunks] bool
        The chunks that this process holds.
    source : ChunkSource or None
        Brings others.
    ready : Event
        Set while no stage has to wait for chunks that were requested before it starts.
    """

    def __init__(self, shape: StateShape, number: int = 0, most_bytes: int | None = None) -> None:
        self.shape, self.number = shape, number
        self.grid = shape.grid
        self.most_bytes = most_bytes if most_bytes is not None and shape.rows * shape.row_bytes > most_bytes else None
        self.present: NDArray[np.bool_] = np.zeros(self.grid.chunks, np.bool_)
        self.source: ChunkSource | None = None
        self.ready = threading.Event()
        self.ready.set()
        self.kept: dict[str, Any] = {}  # of stages on several nodes: see `store.shard.table.KeyedRows`
        self.arrives: Any = None  # function(chunk, rows): takes chunks instead of `put` while a stage uses them
        self._pages = None if self.most_bytes else Pages((shape.rows, shape.cols), np.dtype(shape.dtype), huge=False)
        self._file = _ChunkFile(shape) if self.most_bytes else None

    @property
    def values(self) -> NDArray[Any]:
        """[rows, cols] all rows, of which only those of present chunks mean anything."""
        assert self._pages is not None
        return self._pages.array

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """[rows] the key of every row."""
        return np.arange(self.shape.rows)

    def put(self, chunk: int, rows: NDArray[Any]) -> None:
        """Hold a chunk."""
        first, end = self.grid.bounds(chunk)
        given = rows.reshape(end - first, self.shape.cols)
        if self._file is not None:
            self._file.store(chunk, given)
        else:
            self.values[first:end] = given
        self.present[chunk] = True

    def rows(self, chunk: int) -> NDArray[Any]:
        """[n, cols] the rows of a chunk that this process holds."""
        if not self.present[chunk]:
            raise RunError(f"chunk {chunk} of state {self.number} is not on this node; please report this")
        if self._file is not None:
            return self._file.load(chunk)
        first, end = self.grid.bounds(chunk)
        return self.values[first:end]

    def fill(self, chunks: NDArray[np.int64], value: float) -> None:
        """Hold chunks with one number everywhere."""
        if self._file is None and len(chunks) == self.grid.chunks:
            self.values[:] = value
            self.present[:] = True
            return
        for chunk in chunks.tolist():
            self.put(chunk, np.full((self.grid.rows_of(chunk), self.shape.cols), value, self.shape.dtype))

    def drop(self, chunks: NDArray[np.int64]) -> None:
        """Chunks that another node holds from now on."""
        self.present[chunks] = False
        if self._pages is not None and not self.present.any():
            self._pages.forget(0, self.shape.rows)

    @cached_property
    def _whole(self) -> LocalTable:
        return LocalTable(self.values, self.grid)

    def table(self) -> LocalTable | PagedTable:
        """The rows as a table of a stage: all of them, or those held now and the others when they are used."""
        if self._file is None and self.present.all():
            self._whole.dirty[:] = 0
            return self._whole
        here = PRESENT if self._file is None else STORED
        where = np.where(self.present, here, REMOTE).astype(np.uint8)
        dtype = np.dtype(self.shape.dtype)
        if self._file is None:
            return PagedTable(self.grid, self.shape.cols, dtype, self, where, self.values)
        assert self.most_bytes is not None
        most = self.most_bytes // max(1, self.shape.row_bytes << self.grid.bits)
        return PagedTable(self.grid, self.shape.cols, dtype, self, where, None, most)

    def ended(self, table: LocalTable | PagedTable, *, shared: bool) -> NDArray[np.int64]:
        """A stage has ended; returns the chunks that it changed. shared: its units wrote to the array itself."""
        if isinstance(table, PagedTable):
            table.flush()
            self.present |= table.where != REMOTE
        return np.arange(self.grid.chunks) if shared else np.flatnonzero(table.dirty)

    # -- the pager of a `PagedTable` ----------------------------------------------------------------------------------

    def fetch(self, chunks: list[int]) -> None:
        """Request remote chunks."""
        if self.source is None:
            raise RunError(f"state {self.number}: chunks {chunks[:5]} are nowhere; please report this")
        self.source.request(self.number, chunks)

    def load(self, chunk: int) -> NDArray[Any]:
        """A chunk from the file."""
        assert self._file is not None
        return self._file.load(chunk)

    def store(self, chunk: int, rows: NDArray[Any]) -> None:
        """Write a chunk to the file."""
        assert self._file is not None
        self._file.store(chunk, rows)

    def close(self) -> None:
        """Free the memory and the file."""
        if self._file is not None:
            self._file.close()


class _ChunkFile:
    """Chunks in a temporary file that has no name, so that nothing is left behind."""

    def __init__(self, shape: StateShape) -> None:
        self._shape, self._grid = shape, shape.grid
        self._file = tempfile.TemporaryFile(prefix="stretto-state-")  # noqa: SIM115 (closed with the state)

    def store(self, chunk: int, rows: NDArray[Any]) -> None:
        try:
            os.pwrite(self._file.fileno(), np.ascontiguousarray(rows).tobytes(), self._at(chunk))
        except OSError as error:
            raise RunError(
                f"a chunk of a state cannot be written to {tempfile.gettempdir()}: {error}; free some space there, or "
                "set TMPDIR"
            ) from error

    def load(self, chunk: int) -> NDArray[Any]:
        raw = os.pread(self._file.fileno(), self._shape.chunk_bytes(chunk), self._at(chunk))
        return np.frombuffer(bytearray(raw), self._shape.dtype).reshape(-1, self._shape.cols)

    def close(self) -> None:
        self._file.close()

    def _at(self, chunk: int) -> int:
        return (chunk << self._grid.bits) * self._shape.row_bytes


_lock = threading.Lock()
_held: dict[tuple[str, int], HeldState] = {}


def held_state(owner: str, number: int, shape: StateShape, most_bytes: int | None = None) -> HeldState:
    """The held state of an owner; created, without any chunk, by the first who asks."""
    with _lock:
        found = _held.get((owner, number))
        if found is None:
            found = _held[owner, number] = HeldState(shape, number, most_bytes)
        return found


def release(owner: str, number: int | None = None) -> None:
    """Free a state of an owner; None: all of them."""
    with _lock:
        gone = [key for key in _held if key[0] == owner and number in (None, key[1])]
        for key in gone:
            _held.pop(key).close()


def read(owner: str, number: int, chunks: list[int]) -> list[NDArray[Any]]:
    """Copies of chunks."""
    held = _held[owner, number]
    return [held.rows(chunk).copy() for chunk in chunks]


def held_bytes(owner: str) -> int:
    """Bytes of the chunks of an owner that this process holds."""
    with _lock:
        mine = [held for key, held in _held.items() if key[0] == owner]
    return sum(held.shape.chunk_bytes(chunk) for held in mine for chunk in np.flatnonzero(held.present).tolist())


CALLS: dict[str, Callable[..., Any]] = {
    "read": read,
    "release": release,
    "bytes": held_bytes,
    "release data": release_data,
    "open files": open_on_node,
}  # what the driver may call on a host
