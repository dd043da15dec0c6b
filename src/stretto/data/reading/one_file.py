"""Read one file into `Data`: from the cache, from an array file, or by parsing its text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading import array_files
from stretto.data.reading import cache as cached
from stretto.data.reading.columns import GrowingArray, compact
from stretto.data.reading.headers import most_entries
from stretto.data.reading.parsing import Parsing, ReadOptions, starts_at_zero
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import is_url, size_of
from stretto.data.records.data import Data
from stretto.data.records.duplicates import settle
from stretto.data.records.ids import IdMap
from stretto.errors import DataError, FormatError, NotEnoughMemory


def read_file(
    path: str, options: ReadOptions, duplicates: str, on_error: str, *, cache: bool = False, budget: int | None = None
) -> Data:
    """The records of one file.

    Parameters
    ----------
    duplicates : str
        What becomes of a repeated pair.
    cache : bool, default False
        Whether parsed arrays are kept and used again.
    budget : int or None, default None
        The most bytes that the data may take.
    """
    report = LineReport(path, on_error)
    folder = _entry(path, options, duplicates) if cache else None
    if folder is not None:
        data = cached.load(folder, path)
        if data is not None:
            return _within(data, budget)
    with Parsing(path, options, report) as parsing:
        if not parsing.is_text:
            return _within(array_files.load(path, parsing.guess.format, options, duplicates), budget)
        data = assemble(parsing, options, budget)
    data = settle(data, duplicates, lambda a, b: _lines_of(path, options, on_error, a, b))
    report.close()
    if folder is not None and not report.count and folder == _entry(path, options, duplicates):
        cached.store(folder, data)
    return data


def _entry(path: str, options: ReadOptions, duplicates: str) -> Path | None:
    return None if is_url(path) else cached.entry(path, asdict(options) | {"duplicates": duplicates})


def assemble(parsing: Parsing, options: ReadOptions, budget: int | None = None) -> Data:
    """All records of a text file, in file order; duplicates are left as they are."""
    path, guess, sized = parsing.path, parsing.guess, parsing.sized
    nbytes, packed = size_of(path), parsing.text.compression is not None
    room = 1 << 16
    if sized is not None:  # what the header promises, as far as the file can hold it
        most = 1 << 20 if packed else most_entries(nbytes, packed, 4)
        room = min(max(sized.entries, 1), 1 << 20 if most is None else most)
    rows, cols, values = GrowingArray(np.int32, room), GrowingArray(np.int32, room), GrowingArray(np.float32, room)
    labels = GrowingArray(np.float64, 16)
    total = None if packed else nbytes
    for chunk in parsing:
        if total and not len(values) and parsing.text.bytes < total:
            expected = int(1.03 * len(chunk.values) * total / parsing.text.bytes) + 1024
            for column in (rows, cols, values):
                column.reserve(expected)
        rows.extend(chunk.rows)
        cols.extend(chunk.cols)
        values.extend(chunk.values)
        labels.extend(chunk.labels)
        if budget is not None:
            share = min(1.0, parsing.text.bytes / total) if total else 1.0
            refuse_too_large(path, int(12 * len(values) / share), budget)
    if not len(values) and not len(labels) and not (sized is not None and sized.entries == 0):
        raise FormatError(path, None, "there are no records in the file", _why_none(parsing))
    r, c, v = rows.done(), cols.done(), values.done()
    if sized is not None:
        return _mirrored(Data.from_arrays(r, c, v, (sized.n_rows, sized.n_cols), source=path), sized.symmetry)
    if guess.format in {"svmlight", "lda-c"}:
        y = labels.done()
        first = 0 if starts_at_zero(c, guess.format, options) else 1
        c -= first
        width = int(c.max()) + 1 if len(c) else 0
        parsing.check_extent(width, "columns", "the largest index makes")
        return Data.from_arrays(r, c, v, (len(y), width), labels=y if guess.format == "svmlight" else None, source=path)
    return _with_ids(r, c, v, parsing, options)


def _with_ids(r: NDArray[Any], c: NDArray[Any], v: NDArray[Any], parsing: Parsing, options: ReadOptions) -> Data:
    out: list[tuple[NDArray[Any], IdMap | None]] = []
    for name, ids, text, names in (
        ("row", r, parsing.guess.row_text, parsing.names.rows),
        ("column", c, parsing.guess.col_text, parsing.names.cols),
    ):
        if text:
            from stretto.kernels.text.ids import renumber

            rank, id_map = names.ranks(parsing.path)
            renumber(ids, 0, rank, ids)
            out.append((ids, id_map))
        elif options.raw_ids:
            if int(ids.min()) < 0:
                raise DataError(f"{parsing.path}: a {name} id is negative, so it is no position; leave raw_ids= out")
            parsing.check_extent(int(ids.max()) + 1, f"{name}s", "with raw_ids=True the largest id makes")
            out.append((ids, None))
        else:
            out.append(compact(ids))
    (r, row_ids), (c, col_ids) = out
    shape = None
    if row_ids is not None and col_ids is not None:
        shape = (len(row_ids), len(col_ids))
    elif row_ids is not None:
        shape = (len(row_ids), int(c.max()) + 1)
    elif col_ids is not None:
        shape = (int(r.max()) + 1, len(col_ids))
    return Data.from_arrays(r, c, v, shape, row_ids=row_ids, col_ids=col_ids, source=parsing.path)


def _mirrored(data: Data, symmetry: str) -> Data:
    """A symmetric MatrixMarket file stores one triangle: add the other."""
    if symmetry == "general":
        return data
    off = data.rows != data.cols
    sign = np.float32(-1.0 if symmetry == "skew-symmetric" else 1.0)
    rows = np.concatenate((data.rows, data.cols[off]))
    cols = np.concatenate((data.cols, data.rows[off]))
    return Data.from_arrays(
        rows, cols, np.concatenate((data.values, sign * data.values[off])), data.shape, source=data.source
    )


def _lines_of(path: str, options: ReadOptions, on_error: str, a: int, b: int) -> tuple[int, int]:
    """The lines of two records, found by walking the file again: only a failing read pays for its line numbers."""
    found: dict[int, int] = {}
    start = 0
    with Parsing(path, options, LineReport(path, "raise" if on_error == "raise" else "collect")) as parsing:
        for chunk in parsing:
            for at in (a, b):
                if start <= at < start + len(chunk.values):
                    found[at] = chunk.lines[at - start]
            start += len(chunk.values)
            if len(found) == 2:
                break
    return found.get(a, 0), found.get(b, 0)


def _why_none(parsing: Parsing) -> str:
    if parsing.report.count:
        first = min(parsing.report.problems, key=lambda problem: problem.line)
        return f"all {parsing.report.count} lines were bad, the first is line {first.line}: {first.text}"
    return "only a header, comments or blank lines were found"


def _within(data: Data, budget: int | None) -> Data:
    if budget is not None:
        refuse_too_large(data.source, data.nbytes, budget)
    return data


def refuse_too_large(path: str, need: int, budget: int) -> None:
    """Raise where data of `need` bytes do not fit the budget."""
    if need > budget:
        raise NotEnoughMemory(need, budget, f"stream {path} with stretto.data.reading.scan, or give more with memory=")
