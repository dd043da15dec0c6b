"""`text_file`: parse each line of a text file into records by a function of the user.

    def parse(line):                                  # "196  242  3"
        user, film, stars = line.split()
        return (int(user), int(film)), float(stars)

    ratings = st.text_file("u.data", parse)           # nothing is read yet

For the formats Stretto knows, `st.read` is many times faster: it parses in compiled code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from stretto.data.reading.source import LineReader, as_path
from stretto.data.records.record_sets import LazyRecords
from stretto.errors import FormatError


def text_file(
    path: str | os.PathLike[str], parser: Callable[[str], Any], *, shape: tuple[int, ...] | None = None
) -> LazyRecords:
    """Data whose records are parsed from the lines of a text file, when they are first needed.

    Parameters
    ----------
    path : str or path
        A local file or a URL that fsspec opens; may be compressed (gzip, xz, bzip2).
    parser : callable
        parser(line) -> (index, value), or None to leave the line out. The line has no line break. The index is an
        integer or a tuple of integers, from 0; the value a number, a tuple of numbers or a list of entries, the same
        kind for every line.
    shape : tuple of int or None, default None
        Shape of the data; None for as large as the indices need.

    Returns
    -------
    LazyRecords

    Examples
    --------
    >>> import os, tempfile
    >>> import stretto as st
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "points.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("0 1.5" + os.linesep + "2 2.5")
    ...     data = st.text_file(path, lambda line: (int(line.split()[0]), float(line.split()[1])))
    ...     print(list(data))
    [(0, 1.5), (2, 2.5)]
    """
    name = as_path(path)
    return LazyRecords(lambda: _parsed(name, parser), shape=shape, source=name)


def _parsed(path: str, parser: Callable[[str], Any]) -> Iterator[tuple[Any, Any]]:
    with LineReader(path) as lines:
        for chunk in lines:
            for raw in chunk.tobytes()[:-1].split(b"\n"):
                lines.walked += 1
                record = _record(path, lines.walked, raw, parser)
                if record is not None:
                    yield record


def _record(path: str, line: int, raw: bytes, parser: Callable[[str], Any]) -> tuple[Any, Any] | None:
    try:
        text = raw.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise FormatError(path, line, f"the line is not UTF-8 text ({error})", "convert the file first") from error
    try:
        record = parser(text)
    except Exception as error:
        problem = f"the parser raised {type(error).__name__}: {error}"
        raise FormatError(path, line, problem, "repair the line, or let the parser return None to skip it") from error
    if record is None:
        return None
    if not isinstance(record, tuple) or len(record) != 2:
        problem = f"the parser gave {record!r}"
        raise FormatError(path, line, problem, "return (index, value), or None to skip the line")
    return record
