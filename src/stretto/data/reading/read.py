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
from dataclasses import replace

from stretto.checks import parse_bytes, whole
from stretto.data.convert.roles import column_choice
from stretto.data.parts.files import is_several
from stretto.data.parts.gather import read_files
from stretto.data.reading.one_file import read_file, refuse_too_large
from stretto.data.reading.parsing import ReadOptions
from stretto.data.reading.source import as_path
from stretto.data.records.data import Data
from stretto.data.records.duplicates import check_policy
from stretto.errors import DataError, FormatError, PlanError


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
    n_columns: int | None = None,
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
    n_columns : int or None, default None
        Number of columns of svmlight or lda-c, which do not store it, so that a test set has those of its training
        set. None: up to the last one that occurs.

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
    wide = None if n_columns is None else whole("n_columns", n_columns, least=1, who="read")
    if is_several(path):
        several = read_files(
            path, duplicates, lambda source, need: None if budget is None else refuse_too_large(source, need, budget),
            format=format, on_error=on_error, sep=sep, columns=columns, user=user, item=item, rating=rating, ids=ids,
            raw_ids=raw_ids, zero_based=zero_based,
        )  # fmt: skip
        return several if wide is None else _widened(several, wide)
    path = as_path(path)
    options = ReadOptions(format, sep, column_choice(columns, user, item, rating), ids, raw_ids, zero_based)
    found = read_file(path, options, duplicates, on_error, cache=cache, budget=budget)
    return found if wide is None else _widened(found, wide)


def _widened(data: Data, n_columns: int) -> Data:
    """The data with so many columns."""
    if data.col_ids is not None:
        raise DataError(f"{data.source}: n_columns={n_columns}, but its columns have ids; leave n_columns out")
    if n_columns < data.shape[1]:
        raise DataError(
            f"{data.source}: n_columns={n_columns}, but it has {data.shape[1]} columns; give at least as many"
        )
    return replace(data, shape=(data.shape[0], n_columns))


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


def _budget(memory: int | str) -> int:
    try:
        return parse_bytes(memory)
    except PlanError as error:
        raise DataError(f"memory={memory!r}: {error}") from None
