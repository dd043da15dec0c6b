"""`scan`: data larger than memory. One pass finds its shape; then it is streamed any number of times.

    >>> s = scan("ratings.dat")                    # doctest: +SKIP
    >>> for rows, cols, values in s.chunks(): ...  # doctest: +SKIP

The first pass keeps ids and counts, whose memory grows with rows and columns, never with records. Duplicate pairs
are not searched for: that needs all records in one place, as the code that cuts them into blocks has them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.roles import column_choice
from stretto.data.describe import histogram
from stretto.data.reading import array_files
from stretto.data.reading.axis import IdCounts, IdIndex
from stretto.data.reading.columns import GrowingArray
from stretto.data.reading.file_part import asked
from stretto.data.reading.parsing import Parsing, ReadOptions, starts_at_zero
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import CHUNK, as_path
from stretto.data.reading.triples import TextIds
from stretto.data.records.arrays import SLICE
from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.errors import DataError, FormatError

Triples = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]


def iter_triples(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    on_error: str = "raise",
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    ids: str = "auto",
    chunk: int = CHUNK,
    part: tuple[int, int] | None = None,
) -> Iterator[Triples]:
    """Records in file order as `(rows, cols, values)` of bounded length: int64 ids as written, float32 values.

    Text ids are numbered in the order they are met; svmlight columns are as written, from 0 or from 1. `scan` gives
    indices.

    part : (k, n) for the records whose lines begin in the k-th of n even ranges of the file's bytes, k from 0. Each
        record is in exactly one part, and a part is found by seeking: nothing but the file's first bytes and the part
        is read. For text that is not packed and whose ids are integers. Rows of svmlight and lda-c count from 0 in
        each part, and the number of entries that a header promises is not checked.

    >>> halves = [list(iter_triples("ratings.dat", part=(k, 2))) for k in range(2)]  # doctest: +SKIP
    """
    path = as_path(path)
    options = ReadOptions(format, sep, column_choice(columns, user, item, rating), ids)
    report = LineReport(path, on_error)
    with Parsing(path, options, report, chunk=chunk, part=asked(part)) as parsing:
        if not parsing.is_text:
            yield from _slices(array_files.load(path, parsing.guess.format, options, "keep"))
            return
        symmetry = "general" if parsing.sized is None else parsing.sized.symmetry
        for piece in parsing:
            rows, cols, values = piece.rows.astype(np.int64), piece.cols.astype(np.int64), piece.values.copy()
            yield rows, cols, values
            if symmetry != "general":  # the file stores one triangle
                off = rows != cols
                yield cols[off], rows[off], values[off] * np.float32(-1.0 if symmetry == "skew-symmetric" else 1.0)
    parsing.report.close()


@dataclass(slots=True, eq=False)
class Scan:
    """The result of one pass over a file; `chunks` reads it again."""

    path: str
    shape: tuple[int, int]
    nnz: int
    row_counts: NDArray[np.int64]  # [rows] records of each row
    col_counts: NDArray[np.int64]  # [columns] records of each column
    row_ids: IdMap | None
    col_ids: IdMap | None
    labels: NDArray[np.float64] | None
    options: ReadOptions
    on_error: str
    _names: TextIds
    _ranks: tuple[NDArray[np.int32] | None, NDArray[np.int32] | None]
    _first_col: int
    _loaded: Data | None

    @property
    def in_memory(self) -> bool:
        """Whether the file has a format that is read whole, not streamed."""
        return self._loaded is not None

    def chunks(self, chunk: int = CHUNK) -> Iterator[Triples]:
        """Records in file order as int32 indices inside `shape` (int64 when it is larger) and float32 values."""
        if self._loaded is not None:
            yield from _slices(self._loaded)
            return
        report = LineReport(self.path, "raise" if self.on_error == "raise" else "collect")
        seen = 0
        row_index = IdIndex(self.path, self.shape[0], self.row_ids, self._ranks[0], 0)
        col_index = IdIndex(self.path, self.shape[1], self.col_ids, self._ranks[1], self._first_col)
        with Parsing(self.path, self.options, report, self._names, chunk) as parsing:
            for part in parsing:
                rows, cols = row_index(part.rows), col_index(part.cols)
                seen += len(rows)
                yield rows, cols, part.values.copy()
        if seen != self.nnz:
            raise DataError(
                f"{self.path}: it had {self.nnz} records when it was first read and has {seen} now; start again"
            )


def scan(
    path: str | os.PathLike[str],
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
    chunk: int = CHUNK,
) -> Scan:
    """Read a file once: shape, ids, and the number of records of each row and column. Arguments as for `read`."""
    path = as_path(path)
    choice = column_choice(columns, user, item, rating)
    options = ReadOptions(format, sep, choice, ids, raw_ids, zero_based)
    report = LineReport(path, on_error)
    rows, cols = IdCounts(), IdCounts()
    labels = GrowingArray(np.float64, 16)
    with Parsing(path, options, report, chunk=chunk) as parsing:
        sized = parsing.sized
        if not parsing.is_text or (sized is not None and (sized.symmetry != "general" or sized.dense)):
            from stretto.data.reading.read import read

            data = read(
                path, format, duplicates="keep", on_error=on_error, cache=False, columns=columns, user=user, item=item,
                rating=rating, raw_ids=raw_ids,
            )  # fmt: skip
            return _of_data(data, options)
        for part in parsing:
            rows.add(part.rows)
            cols.add(part.cols)
            labels.extend(part.labels)
    report.close()
    rows.close()
    cols.close()
    if not len(rows.known):
        raise FormatError(path, None, "there are no records in the file", "check how it was made")
    guess, names = parsing.guess, parsing.names
    nnz = int(rows.counts.sum())
    common: dict[str, Any] = {
        "path": path,
        "nnz": nnz,
        "options": options,
        "on_error": on_error,
        "_names": names,
        "_loaded": None,
    }
    if sized is not None or guess.format in {"svmlight", "lda-c"}:
        first = 0
        if sized is not None:
            shape = (sized.n_rows, sized.n_cols)
        else:
            first = 0 if starts_at_zero(cols.known, guess.format, options) else 1
            shape = (len(labels), int(cols.known[-1]) + 1 - first)
            parsing.check_extent(shape[1], "columns", "the largest index makes")
        y = labels.done() if guess.format == "svmlight" else None
        counts = rows.spread(0, shape[0]), cols.spread(first, shape[1])
        return Scan(
            shape=shape, row_counts=counts[0], col_counts=counts[1], row_ids=None, col_ids=None, labels=y,
            _ranks=(None, None), _first_col=first, **common,
        )  # fmt: skip
    sides = [
        _settled(rows, "rows", guess.row_text, names.rows, raw_ids, parsing),
        _settled(cols, "columns", guess.col_text, names.cols, raw_ids, parsing),
    ]
    (row_counts, row_ids, row_rank), (col_counts, col_ids, col_rank) = sides
    return Scan(
        shape=(len(row_counts), len(col_counts)), row_counts=row_counts, col_counts=col_counts, row_ids=row_ids,
        col_ids=col_ids, labels=None, _ranks=(row_rank, col_rank), _first_col=0, **common,
    )  # fmt: skip


def _settled(
    axis: IdCounts, what: str, text: bool, names: Any, raw_ids: bool, parsing: Parsing
) -> tuple[NDArray[np.int64], IdMap | None, NDArray[np.int32] | None]:
    path = parsing.path
    if text:
        rank, id_map = names.ranks(path)
        counts = np.empty(len(rank), dtype=np.int64)
        counts[rank] = axis.spread(0, len(rank))  # a bad line may hold the only mention of an id
        return counts, id_map, rank
    if raw_ids:
        if int(axis.known[0]) < 0:
            raise DataError(
                f"{path}: the id {int(axis.known[0])} is negative, so it is no position; leave raw_ids= out"
            )
        parsing.check_extent(int(axis.known[-1]) + 1, what, "with raw_ids=True the largest id makes")
        return axis.spread(0, int(axis.known[-1]) + 1), None, None
    return axis.counts, IdMap(axis.known), None


def _of_data(data: Data, options: ReadOptions) -> Scan:
    return Scan(
        data.source, data.shape, len(data), histogram(data.rows, data.shape[0]), histogram(data.cols, data.shape[1]),
        data.row_ids, data.col_ids, data.labels, options, "raise", TextIds.new(), (None, None), 0, data,
    )  # fmt: skip


def _slices(data: Data) -> Iterator[Triples]:
    for lo in range(0, len(data), SLICE):
        part = slice(lo, lo + SLICE)
        yield data.rows[part], data.cols[part], data.values[part]
