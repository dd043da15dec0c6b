"""Sources of matrix entries: arrays in memory, or files larger than memory that are read in chunks.

A `EntrySource` has a shape, a length, and `chunks()`: the entries in their order, as (rows, cols, values). Every chunk
but the last holds a multiple of `GRAIN` entries. Sums are computed per grain and added exactly, so they do not depend
on the chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

GRAIN = 1 << 16
_FIELDS: dict[str, Any] = {"rows": np.int32, "cols": np.int32, "values": np.float32}


class EntryArrays(Protocol):
    """Entries that fit in memory: `stretto.data.Data` has these."""

    @property
    def rows(self) -> NDArray[Any]: ...
    @property
    def cols(self) -> NDArray[Any]: ...
    @property
    def values(self) -> NDArray[np.float32]: ...
    @property
    def shape(self) -> tuple[int, int]: ...


Chunk = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]


class EntrySource(Protocol):
    """Entries, a chunk at a time."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...
    def chunks(self) -> Iterator[Chunk]: ...


class InMemory:
    """Entries in memory, as one chunk, or `at_once` entries at a time."""

    def __init__(self, data: EntryArrays, at_once: int | None = None) -> None:
        self.data, self.shape = data, data.shape
        self.at_once = max(1, len(data.values)) if at_once is None else max(GRAIN, at_once // GRAIN * GRAIN)

    def __len__(self) -> int:
        return len(self.data.values)

    def chunks(self) -> Iterator[Chunk]:
        for first in range(0, len(self), self.at_once):
            part = slice(first, first + self.at_once)
            yield self.data.rows[part], self.data.cols[part], self.data.values[part]


class Spool:
    """Entries in three flat files, read back `at_once` entries at a time."""

    def __init__(self, folder: Path, shape: tuple[int, int], at_once: int) -> None:
        self.folder, self.shape = folder, shape
        self.at_once = max(GRAIN, at_once // GRAIN * GRAIN)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def write(self, chunks: Iterable[Chunk]) -> Spool:
        """Append every entry of `chunks`."""
        files = [open(self.folder / f"{name}.bin", "ab") for name in _FIELDS]  # noqa: SIM115
        try:
            for chunk in chunks:
                for file, array, dtype in zip(files, chunk, _FIELDS.values(), strict=True):
                    np.ascontiguousarray(array, dtype=dtype).tofile(file)
                self._length += len(chunk[2])
        finally:
            for file in files:
                file.close()
        return self

    def chunks(self) -> Iterator[Chunk]:
        for first in range(0, self._length, self.at_once):
            count = min(self.at_once, self._length - first)
            yield (
                self._chunk("rows", first, count),
                self._chunk("cols", first, count),
                self._chunk("values", first, count),
            )

    def _chunk(self, name: str, first: int, count: int) -> NDArray[Any]:
        dtype = np.dtype(_FIELDS[name])
        return np.fromfile(self.folder / f"{name}.bin", dtype, count, offset=first * dtype.itemsize)


def in_grains(chunks: Iterable[Chunk], at_once: int) -> Iterator[Chunk]:
    """The same entries, `at_once` of them in every chunk but the last."""
    waiting: list[Chunk] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk[2])
        while count >= at_once:
            rows, cols, values = (np.concatenate(part) for part in zip(*waiting, strict=True))
            yield rows[:at_once], cols[:at_once], values[:at_once]
            waiting, count = [(rows[at_once:], cols[at_once:], values[at_once:])], count - at_once
    if count:
        rows, cols, values = (np.concatenate(part) for part in zip(*waiting, strict=True))
        yield rows, cols, values
