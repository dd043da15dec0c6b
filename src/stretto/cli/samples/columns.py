"""A table as features: numbers are features, and a column of text has one feature for each of its values."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError, FormatError

TARGETS = ("target", "y", "label", "class")
_FEW = 20  # rows of which each may have a text of its own


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length. A column of numbers is float64, with NaN where it is missing; one of text holds str."""

    path: str
    names: list[str]
    columns: list[NDArray[Any]]
    first_line: int | None  # the line of row 0, from 1; None where the file has no lines
    lines: NDArray[np.int64] | None = None  # [n] of the rows, where they do not follow each other
    unreadable: Mapping[str, str] = field(default_factory=dict)  # name → type of columns that are no numbers, no text

    def line(self, row: int) -> int | None:
        """The line of a row."""
        if self.lines is not None:
            return int(self.lines[row])
        return None if self.first_line is None else self.first_line + row


def features_of(
    table: Table, *, target: str | None, drop: tuple[str, ...], on_error: str
) -> tuple[Any, NDArray[Any], list[str]]:
    """(X [n, p], y [n], names [p]) of a table; X is dense, or CSC where there is text."""
    at = _target(table, target)
    left_out = {_position(table, name, "--drop") for name in drop}
    if at in left_out:
        raise DataError(f"--drop {table.names[at]}: is the target; name another column")
    used = [k for k in range(len(table.names)) if k != at and k not in left_out]
    for k in (*used, at):
        kind = table.unreadable.get(table.names[k])
        if kind is not None:
            name = table.names[k]
            raise DataError(f"{table.path}: column {name!r} holds {kind}, no numbers or text; use --drop {name}")
    keep = _complete(table, [*used, at], on_error)
    y = table.columns[at][keep]
    if y.dtype == np.float64 and (np.abs(y) < 2**53).all() and (y == np.trunc(y)).all():
        y = y.astype(np.int64)
    elif y.dtype == object:
        y = y.astype(np.str_)
    parts, names = [], []
    for k in used:
        column = table.columns[k][keep]
        part, own = _numbers(column, table.names[k]) if column.dtype == np.float64 else _texts(table, k, column)
        parts.append(part)
        names += own
    if all(isinstance(part, np.ndarray) for part in parts):
        X = np.empty((len(y), len(parts)), np.float64, order="F")
        for k, part in enumerate(parts):
            X[:, k] = part
        return X, y, names
    from scipy.sparse import csc_array, hstack

    sparse = [csc_array(part.reshape(-1, 1)) if isinstance(part, np.ndarray) else part for part in parts]
    return csc_array(hstack(sparse, format="csc")), y, names


def _target(table: Table, target: str | None) -> int:
    if target is not None:
        return _position(table, target, "--target")
    found = [k for k, name in enumerate(table.names) if name.strip().lower() in TARGETS]
    if len(found) == 1:
        return found[0]
    why = "several columns may be the target" if found else "no column is called " + ", ".join(TARGETS)
    raise DataError(f"{table.path}: {why}; name it with --target: {_some(table.names)}")


def _position(table: Table, name: str, option: str) -> int:
    if name in table.names:
        return table.names.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(table.names):
        return int(name)
    near = difflib.get_close_matches(name, table.names, 1)
    advice = f"the nearest is {near[0]!r}" if near else f"there are {_some(table.names)}"
    raise DataError(f"{option} {name}: {table.path} has no such column; {advice}")


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def _complete(table: Table, used: list[int], on_error: str) -> NDArray[np.bool_]:
    """[n] rows without missing values; the first with one is refused unless on_error is "skip"."""
    keep = np.ones(len(table.columns[0]), np.bool_)
    for k in used:
        column = table.columns[k]
        gone = ~np.isfinite(column) if column.dtype == np.float64 else np.equal(column, "")
        if gone.any() and on_error != "skip":
            row = int(np.argmax(gone))
            value = column[row]
            what = "is missing" if not isinstance(value, float) or np.isnan(value) else f"is {value}"
            place = "" if table.line(row) is not None else f" of row {row}"
            raise FormatError(
                table.path, table.line(row), f"column {table.names[k]!r}{place} {what}",
                'fill it, pass on_error="skip" to leave such rows out, or leave the column out with --drop',
            )  # fmt: skip
        keep &= ~gone
    if not keep.all():
        count = int(np.count_nonzero(~keep))
        warnings.warn(f"{table.path}: {count:,} rows with missing values were left out", UserWarning, stacklevel=2)
    return keep


def _numbers(column: NDArray[Any], name: str) -> tuple[NDArray[Any], list[str]]:
    return column, [name]


def _texts(table: Table, at: int, column: NDArray[Any]) -> tuple[Any, list[str]]:
    """One feature for each value of a column of text."""
    from scipy.sparse import csc_array

    name = table.names[at]
    values, index = np.unique(column.astype(np.str_), return_inverse=True)
    if len(values) == len(column) > _FEW:
        raise DataError(
            f"{table.path}: column {name!r} has another text in every row, such as {str(values[0])!r}, so nothing can "
            f"be learned from it; leave it out with --drop {name}"
        )
    rows = np.arange(len(column))
    shape = (len(column), len(values))
    return csc_array((np.ones(len(column)), (rows, index)), shape=shape), [f"{name}={value}" for value in values]
