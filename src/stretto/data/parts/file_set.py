"""Files that are walked as one, a chunk at a time, as often as somebody asks: what `scan` gives for one file.

    found = walk("ratings/*.csv")
    found.shape, found.row_ids
    for rows, cols, values in found.chunks(): ...

It can be pickled, so that nodes walk the same files. A part that has changed since it was counted is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stretto.data.ids import IdMap
from stretto.data.parts.files import is_several
from stretto.data.parts.numbering import Numbering, merge
from stretto.data.parts.part import DataPart
from stretto.data.parts.source import open_parts
from stretto.data.scan import Scan, Triples, scan

_PART = 64 << 20  # bytes that are read as one part


@dataclass(frozen=True, eq=False)
class FileSet:
    """The parts of files, counted. in_memory is False: they are walked, whatever their format."""

    path: str
    parts: tuple[DataPart, ...]
    numbering: Numbering

    in_memory = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.numbering.shape

    @property
    def nnz(self) -> int:
        return self.numbering.nnz

    @property
    def row_ids(self) -> IdMap | None:
        return self.numbering.row_ids

    @property
    def col_ids(self) -> IdMap | None:
        return self.numbering.col_ids

    def chunks(self) -> Iterator[Triples]:
        """The records of one part after the other, as indices."""
        for part in self.parts:
            yield from part.entries(self.numbering)


def walk(path: Any, *, parts: bool = False) -> Scan | FileSet:
    """One file as `scan` finds it, several as a set. parts: one file, too, is read in parts."""
    if not parts and not is_several(path):
        return scan(path)
    source = open_parts(_absolute(path))
    cut = source.parts(max(1, source.nbytes // _PART))
    return FileSet(str(path), tuple(cut), merge([part.census() for part in cut]))


def _absolute(path: Any) -> Any:
    """Paths as other processes find them, whatever their working directory is."""
    if isinstance(path, list | tuple):
        return [_absolute(one) for one in path]
    place = str(os.fspath(path))
    return place if "://" in place else os.path.abspath(place)
