"""Files in blocks: where they are, and how one block is read.

    files = open_shared(spec)               lists the files, reads the first bytes of each
    reads = files.reads(assigned)           function(part, parts, block) for a BlockReader

A block is a byte range of a text file, some row groups of Parquet, or a whole file that cannot be cut. The parts of
`stretto.data.parts` are these blocks: the same ranges, formats, checks and errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretto.data.parts.files import expand
from stretto.data.parts.layout import united
from stretto.data.parts.node_files import NodeFiles
from stretto.data.parts.part import DataPart
from stretto.data.parts.part_range import RECORDS
from stretto.data.parts.reading import PartReader
from stretto.data.parts.source import PartSource, open_parts
from stretto.errors import DataError, PlanError
from stretto.schedule.stages.file_assigner import BlockPlace, PartBlocks, assign_parts


@dataclass(frozen=True, eq=False)
class FileSpec:
    """Which files, and how they are read."""

    path: Any  # what `open_parts` takes, or NodeFiles
    block_bytes: int
    features: int | None = None  # columns of svmlight
    zero_based: bool = False  # indices of svmlight
    options: dict[str, Any] = field(default_factory=dict)  # of `open_parts`
    where: Callable[[str], Any] | None = None  # function(path) -> nodes that have it on their disk

    @property
    def on_nodes(self) -> bool:
        """Whether every node has files of its own."""
        return isinstance(self.path, NodeFiles)


@dataclass(frozen=True, eq=False)
class OpenFiles:
    """Files whose blocks are known."""

    spec: FileSpec
    blocks: tuple[DataPart, ...]
    places: tuple[BlockPlace, ...]

    def assigned(self, parts: int) -> PartBlocks:
        """The blocks of each part."""
        try:
            return assign_parts(self.places, parts, remote=not self.spec.on_nodes)
        except PlanError as error:
            raise PlanError(f"{self.spec.path}: {error}") from None

    def reads(self, assigned: PartBlocks) -> FileReads:
        """How the parts read their blocks."""
        blocks = tuple(tuple(self.blocks[block] for block in mine) for mine in assigned.blocks)
        return FileReads(blocks, self.spec.features, self.spec.zero_based)


def open_shared(spec: FileSpec) -> OpenFiles:
    """Open files that this process can read."""
    source = open_parts(spec.path, **spec.options)
    return _cut(spec, source, [_nodes(spec, path) for path in source.paths])


def open_on_node(path: str, options: dict[str, Any], node: int) -> PartSource | None:
    """Open the files that a node has on its disk; None: there are none. Called there."""
    try:
        found = [file for file in expand(path.replace("{node}", str(node))) if os.path.exists(file)]
    except DataError:
        found = []
    return open_parts(found, **options) if found else None


def join_nodes(spec: FileSpec, opened: Sequence[tuple[int, PartSource | None]]) -> OpenFiles:
    """The files of all nodes as one data set: those of the first node come first."""
    present = [(node, source) for node, source in opened if source is not None]
    if not present:
        raise DataError(f"{spec.path}: no node has such a file; check the path, in which {{node}} is the node's number")
    first = present[0][1]
    files = united([file for _, source in present for file in source.files], first.options)
    nodes = [frozenset({node}) for node, source in present for _ in source.files]
    return _cut(spec, PartSource(files, first.options, first.on_error), nodes)


def _cut(spec: FileSpec, source: PartSource, nodes: Sequence[frozenset[int]]) -> OpenFiles:
    """Cut files into blocks. nodes: those that have each file."""
    blocks = tuple(source.parts(max(1, -(-source.nbytes // spec.block_bytes))))
    if blocks[0].layout.format == "svmlight" and spec.features is None:
        raise DataError(
            f"{spec.path}: blocks of svmlight files have as many columns as the whole, which one block does not say; "
            "give features="
        )
    return OpenFiles(spec, blocks, tuple(BlockPlace(block.nbytes, nodes[block.file]) for block in blocks))


def _nodes(spec: FileSpec, path: str) -> frozenset[int]:
    if spec.where is None:
        return frozenset()
    found = spec.where(path)
    nodes = frozenset([found] if isinstance(found, int) else found)
    if not all(isinstance(node, int) and node >= 0 for node in nodes):
        raise DataError(f"files: where({path!r}) gave {found!r}; return the numbers of the nodes that have it")
    return nodes


@dataclass(frozen=True, eq=False)
class FileReads:
    """Reads one block of one part. It is sent to nodes."""

    blocks: tuple[tuple[DataPart, ...], ...]  # by part
    features: int | None
    zero_based: bool

    def __call__(self, part: int, parts: int, block: int) -> Any:
        """(X, y) of svmlight, (rows, columns, values) of other formats."""
        found = self.blocks[part][block]
        if found.layout.format == "svmlight":
            return self._samples(found)
        chunks = [tuple(map(np.asarray, chunk)) for chunk in found.triples()]
        if not chunks:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        return tuple(np.concatenate(columns) for columns in zip(*chunks, strict=True))

    def words(self, part: int, block: int) -> str:
        """The block in words."""
        found = self.blocks[part][block]
        units = {"bytes": "bytes", "row groups": "row groups"}.get(found.kind)
        return f"{found.path}, {units} {found.begin} to {found.end}" if units else f"{found.path}, the whole file"

    def _samples(self, block: DataPart) -> Any:
        from scipy.sparse import csr_array

        assert self.features is not None
        reader = PartReader(block, RECORDS)
        chunks = [tuple(np.array(column) for column in chunk) for chunk in reader]
        reader.report.close()
        if not chunks:
            return csr_array((0, self.features), dtype=np.float32), np.empty(0)
        rows, cols, values, labels = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
        cols = cols.astype(np.int64) - (0 if self.zero_based else 1)
        if len(cols) and not 0 <= int(cols.min()) <= int(cols.max()) < self.features:
            if int(cols.min()) < 0:
                raise DataError(f"{block.path}: it has the index 0, and indices count from 1; give zero_based=True")
            raise DataError(
                f"{block.path}: it has {int(cols.max()) + 1} columns and features={self.features}; give the number of "
                "columns of all files"
            )
        starts = np.zeros(len(labels) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(labels)), out=starts[1:])
        return csr_array((values, cols, starts), shape=(len(labels), self.features)), labels
