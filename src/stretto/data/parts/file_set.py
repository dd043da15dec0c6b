"""Stream several files as one, a chunk at a time and any number of times: `scan` for more than one file.

    found = walk("ratings/*.csv", crew)
    found.shape, found.row_ids
    for rows, cols, values in found.chunks(): ...

It can be pickled, so that nodes walk the same files. A part that has changed since it was counted is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.census import PartCensus
from stretto.data.parts.files import is_several
from stretto.data.parts.hosts import PartExecutor
from stretto.data.parts.node_files import NodeFiles
from stretto.data.parts.numbering import Numbering, merge
from stretto.data.parts.part import DataPart
from stretto.data.parts.source import PartSource, open_parts
from stretto.data.reading.scan import Scan, Triples, scan
from stretto.data.records.ids import IdMap

_PART = 64 << 20  # bytes that are read as one part
_LEAST, _EACH = 1 << 20, 2  # among several hosts: bytes of a part at least, and parts for each


@dataclass(frozen=True, eq=False)
class FileSet:
    """The parts of files, counted. in_memory is False: they are streamed, whatever their format."""

    path: str
    parts: tuple[DataPart, ...]
    numbering: Numbering
    readers: NDArray[np.int64] | None = None  # [parts] the node that has each part on its disk; None: any process

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
        for number in range(len(self.parts)):
            yield from self.part(number)

    def part(self, number: int) -> Iterator[Triples]:
        """The records of one part."""
        return self.parts[number].entries(self.numbering)


def walk(path: Any, crew: PartExecutor | None = None) -> Scan | FileSet:
    """`scan` of one file, or a set of several. crew: hosts that count them; then one file is read in parts as well."""
    if isinstance(path, NodeFiles):
        if crew is None:
            raise path.unread()
        return _walked(path, *path.find(crew), crew)
    if crew is None and not is_several(path):
        return scan(path)
    source = open_parts(_absolute(path))
    if crew is not None:
        return _walked(path, source, None, crew)
    cut = source.parts(max(1, source.nbytes // _PART))
    return FileSet(str(path), tuple(cut), merge([part.census() for part in cut]))


def _walked(path: Any, source: PartSource, node: NDArray[np.int64] | None, crew: PartExecutor) -> FileSet:
    """The set of files, counted by the hosts. node: of each file, if only one node can read it."""
    cut = source.parts(max(1, source.nbytes // _PART, min(_EACH * crew.apart, source.nbytes // _LEAST)))
    readers = None if node is None else node[[part.file for part in cut]]
    shares = crew.shares(len(cut), readers)
    taken = crew.apply(_census, [[cut[k] for k in share] for share in shares])
    return FileSet(str(path), tuple(cut), merge([one for some in taken for one in some]), readers)


def _census(parts: list[DataPart], crew: Any) -> list[PartCensus]:
    return [part.census() for part in parts]


def _absolute(path: Any) -> Any:
    """Paths as other processes find them, whatever their working directory is."""
    if isinstance(path, list | tuple):
        return [_absolute(one) for one in path]
    place = str(os.fspath(path))
    return place if "://" in place else os.path.abspath(place)
