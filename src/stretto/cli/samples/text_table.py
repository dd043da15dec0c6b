"""Read a table of delimited text: all numbers at once where there are only numbers, else row by row."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.documents.sources import bytes_of
from stretto.errors import FormatError

from .columns import Table

_SEPARATORS = ",\t;|"
_MISSING = frozenset(["", "na", "nan", "null", "none", "n/a", "?"])


def read_text_table(path: str) -> Table:
    """A table whose first line names the columns, unless it holds only numbers: then they are numbered from 0."""
    with bytes_of(path) as stream:
        raw = stream.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, None, f"is not UTF-8 text ({error})", "convert it, or check what the file is") from None
    first = text.lstrip("\n").split("\n", 1)[0].rstrip("\r")
    if not first.strip():
        raise FormatError(path, None, "the file is empty", "check how it was made")
    if "::" in first:
        raise FormatError(path, 1, "looks like ratings, with :: between fields", "train on them with: stretto train mf")
    sep: str | None = max(_SEPARATORS, key=first.count)
    if sep is not None and not first.count(sep):
        sep = None  # any run of blanks, or one column
    head = next(csv.reader([first], delimiter=sep)) if sep else first.split()
    named = not all(_is_number(field) for field in head)
    names = [field.strip() for field in head] if named else [str(k) for k in range(len(head))]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(path, 1, f"two columns are called {twice!r}", "rename one")
    numbers = _all_numbers(text, sep, named, len(names))
    if numbers is not None:
        return Table(path, names, list(numbers.T), 1 + named)
    rows, lines = _rows(path, text, sep, len(names), named)
    columns = [_column([row[k] for row in rows]) for k in range(len(names))]
    return Table(path, names, columns, None, np.array(lines, np.int64))


def _all_numbers(text: str, sep: str | None, named: bool, width: int) -> NDArray[np.float64] | None:
    """[n, width] the values; None where a field is no number, or a line is blank."""
    if "\n\n" in text or '"' in text:
        return None
    try:
        found = np.loadtxt(io.StringIO(text), delimiter=sep, skiprows=int(named), ndmin=2, comments=None)
    except ValueError:
        return None
    return found if found.shape[1] == width and len(found) else None


def _rows(path: str, text: str, sep: str | None, width: int, named: bool) -> tuple[list[list[str]], list[int]]:
    source = io.StringIO(text, newline="")
    table: Any = csv.reader(source, delimiter=sep) if sep else (line.split() for line in source)
    rows, lines = [], []
    for number, row in enumerate(table, 1):
        if not row or (named and number == 1):
            continue
        line = table.line_num if sep else number
        if len(row) != width:
            raise FormatError(path, line, f"expected {width} fields, found {len(row)}", "repair the line")
        rows.append(row)
        lines.append(line)
    if not rows:
        raise FormatError(path, None, "the file has a line of names and no rows", "check how it was made")
    return rows, lines


def _column(values: list[str]) -> NDArray[Any]:
    """float64 with NaN for what is missing, or text with "" for it."""
    plain = ["" if value.strip().lower() in _MISSING else value.strip() for value in values]
    try:
        return np.array([np.nan if not value else float(value) for value in plain], np.float64)
    except ValueError:
        return np.array(plain, dtype=object)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
