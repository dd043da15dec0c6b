"""`open_parts`: list the files of a data set and cut them into parts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from stretto.data.convert.roles import column_choice
from stretto.data.parts.files import expand
from stretto.data.parts.layout import DataFile, survey
from stretto.data.parts.part import DataPart
from stretto.data.reading.parsing import ReadOptions
from stretto.data.reading.report import LineReport
from stretto.errors import DataError


@dataclass(frozen=True, slots=True)
class PartSource:
    """The files of a data set, of which nothing but the first bytes has been read.

    Parameters
    ----------
    files : tuple of DataFile
        In the order of their records.
    options : ReadOptions
        Options of the caller for reading them.
    on_error : {"raise", "skip"}
        What becomes of a bad line.
    """

    files: tuple[DataFile, ...]
    options: ReadOptions
    on_error: str

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.nbytes for file in self.files)

    def parts(self, n: int) -> list[DataPart]:
        """About n parts of nearly equal bytes, in the order of their records.

        A part never spans two files, so that there are at least as many as files, and fewer than n where files cannot
        be cut: packed text, archives, Parquet files of few row groups. `shares` gives several parts to one node.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise DataError(f"parts({n!r}): give the number of parts, 1 or more")
        cuts = [
            (number, file, k, ranges)
            for number, file in enumerate(self.files)
            for ranges in [_ranges(file, max(1, round(n * file.nbytes / self.nbytes)))]
            for k in range(len(ranges))
        ]
        plan = hashlib.sha256(repr((self, n)).encode()).hexdigest()[:16]
        return [
            DataPart(
                file.path, file.layout.kind, *ranges[k], at, len(cuts), number, (k, len(ranges)), file.layout,
                file.state, self.options, self.on_error, plan,
            )
            for at, (number, file, k, ranges) in enumerate(cuts)
        ]  # fmt: skip


def _ranges(file: DataFile, n: int) -> list[tuple[int, int, int]]:
    """(begin, end, bytes) of a file's parts."""
    if file.layout.kind == "bytes":
        size = file.nbytes
        n = min(n, size)
        bounds = [size * k // n for k in range(n + 1)]
        return [(bounds[k], bounds[k + 1], bounds[k + 1] - bounds[k]) for k in range(n)]
    if file.layout.kind == "whole" or not file.groups:
        return [(0, len(file.groups), file.nbytes)]
    # A row group belongs to the share that contains its middle.
    before = 0
    found: list[tuple[int, int, int]] = []
    last = -1
    for k, size in enumerate(file.groups):
        share = (2 * before + size) * n // (2 * file.nbytes)
        before += size
        if share == last:
            begin, _, nbytes = found.pop()
            found.append((begin, k + 1, nbytes + size))
        else:
            found.append((k, k + 1, size))
        last = share
    return found


def open_parts(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str = "auto",
    *,
    on_error: str = "raise",
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    ids: str = "auto",
    raw_ids: bool = False,
    zero_based: bool | None = None,
    copies: bool = False,
) -> PartSource:
    """Detect formats and columns of the files of a data set, without reading their records.

    Parameters
    ----------
    path : str, Path, or a list of them
        A file, a folder, a glob, or an fsspec URL of one. All files form one data set: they have one format and the
        same columns.
    copies : bool
        Every node has copies of the files, whose times of modification differ: sizes and contents are compared only.

    The other arguments are those of `read`.
    """
    options = ReadOptions(format, sep, column_choice(columns, user, item, rating), ids, raw_ids, zero_based)
    paths = expand(path)
    LineReport(paths[0], on_error)  # refuses what on_error does not know
    return PartSource(survey(paths, options, copies), options, on_error)
