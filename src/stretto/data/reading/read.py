"""`read`: read a file into `Data`.

    >>> ratings = read("ratings.dat")                                   # doctest: +SKIP
    >>> ratings = read("log.tsv.gz", columns=("who", "what"), on_error="skip")   # doctest: +SKIP

The format is detected (`detect`) unless named. Ids of delimited files, text or integer, are mapped to 0..n-1 in
sorted order and kept in `row_ids` and `col_ids`; formats that count their rows themselves (svmlight, MatrixMarket,
bag-of-words) need no map. Reading holds one chunk of text and the result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import parse_bytes
from stretto.data.convert.roles import column_choice
from stretto.data.parts.files import is_several
from stretto.data.reading import array_files
from stretto.data.reading import cache as cached
from stretto.data.reading.columns import GrowingArray, compact
from stretto.data.reading.headers import most_entries
from stretto.data.reading.parsing import Parsing, ReadOptions
from stretto.data.reading.report import LineReport
from stretto.data.reading.source import as_path, is_url, size_of
from stretto.data.records.data import Data
from stretto.data.records.duplicates import check_policy, settle
from stretto.data.records.ids import IdMap
from stretto.errors import DataError, FormatError, NotEnoughMemory, PlanError


def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str = "auto",
    *,
    duplicates: str = "error",
    on_error: str = "raise",
    cache: bool = True,
    memory: int | str | None = None,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    ids: str = "auto",
    raw_ids: bool = False,
    zero_based: bool | None = None,
) -> Data:
    """Read ratings, features or documents from files.

    Parameters
    ----------
    path : str, Path, or a list of them
        A local file or an fsspec URL, compressed (gzip, xz, bzip2) or not; or several that form one data set: a folder,
        a glob (`"ratings/*.csv"`), a list.
    format : str, default "auto"
        auto, movielens, triples, svmlight, lda-c, bow, mm, npz or parquet.
    duplicates : {"error", "first", "last", "mean", "sum", "keep"}, default "error"
        What to do with a repeated pair.
    on_error : {"raise", "skip"}, default "raise"
        Raise at the first bad line, or skip bad lines and warn once with their number.
    cache : bool, default True
        Keep the parsed arrays of a local text file, and use them while the file has not changed.
    memory : int, str or None, default None
        Refuse data larger than this many bytes (or "2GiB").
    sep : str or None, default None
        Separator of delimited text: "::", tab, "|", ",", ";" or " " (any run of blanks); None finds it.
    columns : sequence of names or positions, or None, default None
        The columns of user, item and rating, or of the first two where every value is 1.
    user : str or None, default None
        Name of the column of users in the header; None for a well-known name (userId, user_id, …).
    item : str or None, default None
        Name of the column of items; None for a well-known name (movieId, item, …).
    rating : str or None, default None
        Name of the column of values; None for a well-known name (rating, score, …).
    ids : {"auto", "integer", "text"}, default "auto"
        What the ids are. Text distinguishes "007" from "7".
    raw_ids : bool, default False
        Integer ids are positions, counted from 0.
    zero_based : bool or None, default None
        Whether the indices of svmlight start at 0; None: they do if a 0 occurs.

    Returns
    -------
    Data

    Examples
    --------
    >>> import os, tempfile
    >>> import stretto as st
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "ratings.tsv")
    ...     st.write(st.as_data(([0, 1], [2, 0], [4.0, 5.0])), path)
    ...     print(st.read(path).values.tolist())
    [4.0, 5.0]
    """
    check_policy(duplicates)
    budget = None if memory is None else _budget(memory)
    if is_several(path):
        from stretto.data.parts.gather import read_files

        return read_files(
            path, duplicates, lambda source, need: None if budget is None else _refuse(source, need, budget),
            format=format, on_error=on_error, sep=sep, columns=columns, user=user, item=item, rating=rating, ids=ids,
            raw_ids=raw_ids, zero_based=zero_based,
        )  # fmt: skip
    path = as_path(path)
    options = ReadOptions(format, sep, column_choice(columns, user, item, rating), ids, raw_ids, zero_based)
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


def read_for_fit(path: str | os.PathLike[str], duplicates: str) -> Data:
    """`read` for an estimator that was given a path: its errors say where the arguments belong that they advise."""
    try:
        return read(path, duplicates=duplicates)
    except FormatError as error:
        if "=" not in error.remedy + error.problem:
            raise
        remedy = f"{error.remedy}; " if error.remedy else ""
        raise FormatError(
            error.path, error.line, error.problem, f"{remedy}these are arguments of st.read: fit what it returns"
        ) from error


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
            _refuse(path, int(12 * len(values) / share), budget)
    if not len(values) and not len(labels) and not (sized is not None and sized.entries == 0):
        raise FormatError(path, None, "there are no records in the file", _why_none(parsing))
    r, c, v = rows.done(), cols.done(), values.done()
    if sized is not None:
        return _mirrored(Data.from_arrays(r, c, v, (sized.n_rows, sized.n_cols), source=path), sized.symmetry)
    if guess.format in {"svmlight", "lda-c"}:
        y = labels.done()
        first = 0 if _starts_at_zero(c, guess.format, options) else 1
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


def _starts_at_zero(cols: NDArray[Any], format: str, options: ReadOptions) -> bool:
    if format == "lda-c":
        return True
    found = len(cols) > 0 and int(cols.min()) == 0
    if options.zero_based is False and found:
        raise DataError("zero_based=False was given, but the file holds the index 0; leave zero_based= out")
    return found if options.zero_based is None else options.zero_based


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
        _refuse(data.source, data.nbytes, budget)
    return data


def _refuse(path: str, need: int, budget: int) -> None:
    if need > budget:
        raise NotEnoughMemory(need, budget, f"stream {path} with stretto.data.reading.scan, or give more with memory=")


def _budget(memory: int | str) -> int:
    try:
        return parse_bytes(memory)
    except PlanError as error:
        raise DataError(f"memory={memory!r}: {error}") from None
