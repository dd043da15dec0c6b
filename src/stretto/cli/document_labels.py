"""Read a date or label for each document from a file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from stretto.errors import DataError

_NAMES = ("document", "doc", "id")  # heads of a column that names documents


def document_labels(path: Path, column: str | None, documents: int, names: Sequence[str] | None) -> list[str]:
    """[documents] the values of a column of a CSV file with a head line, "" where a document has none.

    With a column `document` each line belongs to the document of that name (where documents have no names, that number,
    from 0); without one there must be a line for each document, in their order.

    column : its name; None for the only other column, or the one called `date`
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; give a CSV file with a date or label for each document")
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file) if line]
    if len(lines) < 2:
        raise DataError(f"{path} has no lines below its head; give a date or label for each document")
    heads = [head.strip() for head in lines[0]]
    key = next((place for place, head in enumerate(heads) if head.lower() in _NAMES and head != column), None)
    at = _column(path, heads, column, key)
    short = next((number for number, line in enumerate(lines, 1) if len(line) != len(heads)), None)
    if short is not None:
        raise DataError(f"{path}: record {short} has {len(lines[short - 1])} fields and the head {len(heads)}")
    values = [line[at].strip() for line in lines[1:]]
    if key is None:
        if len(values) != documents:
            raise DataError(
                f"{path} has {len(values):,} lines below its head for {documents:,} documents; give one for each, or "
                "add a column `document` with their names"
            )
        return values
    by_name = {line[key].strip(): value for line, value in zip(lines[1:], values, strict=True)}
    called = list(names) if names is not None else [str(number) for number in range(documents)]
    found = [by_name.get(name, "") for name in called]
    if not any(found):
        raise DataError(f"{path}: no line belongs to one of the documents, such as {called[0]!r}; check `{heads[key]}`")
    return found


def _column(path: Path, heads: list[str], column: str | None, key: int | None) -> int:
    """The place of the column with the labels."""
    if column is not None:
        if column not in heads:
            raise DataError(f"{path} has no column {column!r}; it has {', '.join(heads)}")
        return heads.index(column)
    others = [place for place in range(len(heads)) if place != key]
    dates = [place for place in others if heads[place].lower() == "date"]
    if len(others) != 1 and len(dates) != 1:
        raise DataError(f"{path} has the columns {', '.join(heads)}; choose one with --column")
    return others[0] if len(others) == 1 else dates[0]
