"""Logical parts of a program's data: cutting data by rows, and merging the results of a job on all parts.

    parts_of(program)                       # None, or the parts in order
    merged(parts, merge, where)             # merge(merge(merge(r0, r1), r2), …)

Results depend on the number of parts, which belongs to the program. They do not depend on which node holds a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from stretto.checks import whole
from stretto.errors import PlanError, RunError

from .part_sources import source_of

Merge = Callable[[Any, Any], Any]


class WrongShape(Exception):
    """Results of one job on two parts have different shapes. part: the one that differs from the first."""

    def __init__(self, part: int, text: str) -> None:
        super().__init__(text)
        self.part = part


def parts_of(name: str, parts: Any, data: Any) -> list[Any] | None:
    """The parts of a program's data, in order; None if data are not cut.

    Parameters
    ----------
    name : str
        The program, for messages.
    parts : None, int or sequence
        Chunks of data as they are, or how they are read (see `part_sources`), or the number of parts that `data` is
        cut into by rows.
    data : array, CSR matrix, or a tuple or dict of these with the same number of rows
    """
    if parts is None:
        return None
    if isinstance(parts, list | tuple):
        if not parts:
            raise PlanError(f"{name}: parts is empty; give at least one part, or None for data that are not cut")
        return [packed(source_of(part)) for part in parts]
    count = whole("parts", parts, 1, name)
    rows = _rows(name, data)
    if count > rows:
        raise PlanError(f"{name}: parts={count}, and data have {rows} rows; give at most {rows}")
    return [packed(_slice(data, rows * part // count, rows * (part + 1) // count)) for part in range(count)]


def _rows(name: str, data: Any) -> int:
    pieces = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) else [data]
    shapes = [getattr(piece, "shape", None) for piece in pieces]
    if not pieces or not all(shapes):
        raise PlanError(
            f"{name}: parts is a number, so data are cut by rows, and data are {_kind(data)}; give an array, a CSR "
            "matrix, or a tuple or dict of these, or the parts themselves as a list"
        )
    rows = sorted({int(shape[0]) for shape in shapes if shape})
    if len(rows) > 1:
        raise PlanError(
            f"{name}: parts is a number, so data are cut by rows, and they have {' and '.join(map(str, rows))} rows; "
            "give arrays with the same number of rows, or the parts themselves as a list"
        )
    for piece in pieces:
        if hasattr(piece, "format") and piece.format != "csr":
            raise PlanError(f"{name}: data are cut by rows, and a {piece.format} matrix is not; give data.tocsr()")
    return rows[0]


def _slice(data: Any, first: int, end: int) -> Any:
    if isinstance(data, Mapping):
        return {name: piece[first:end] for name, piece in data.items()}
    if isinstance(data, tuple):
        return tuple(piece[first:end] for piece in data)
    return data[first:end]


def packed(part: Any) -> Any:
    """A part with contiguous arrays, as on a node: the order of memory decides the order of sums in libraries."""
    if isinstance(part, Mapping):
        return {name: packed(piece) for name, piece in part.items()}
    if isinstance(part, tuple) and type(part) is tuple:
        return tuple(map(packed, part))
    if not isinstance(part, np.ndarray) or part.flags.forc:
        return part
    return np.array(part, order="F" if abs(part.strides[0]) < abs(part.strides[-1]) else "C")


def _kind(data: Any) -> str:
    return "None" if data is None else f"a {type(data).__name__}"


def merged(results: Sequence[Any], merge: Merge | None) -> Any:
    """Merge the results of a job on all parts, from the left in part order.

    >>> merged([1, 2, 3], None), merged([(1, 10.0), (2, 20.0)], None)
    (6, (3, 30.0))
    """
    found = results[0]
    for part, result in enumerate(results[1:], 1):
        if merge is not None:
            found = merge(found, result)
        else:
            if shape_of(result) != shape_of(results[0]):
                raise WrongShape(
                    part,
                    f"it returned {shape_of(result)} for part {part + 1} and {shape_of(results[0])} for part 1; return "
                    "the same from every part, or give the program merge(a, b)",
                )
            found = _add(found, result)
    return found


def _add(one: Any, other: Any) -> Any:
    if one is None:
        return None
    if isinstance(one, tuple):
        return tuple(map(_add, one, other))
    return one + other


def shape_of(value: Any) -> str:
    """The type and shape of a result, which must be the same on all parts, in words.

    >>> shape_of((1, np.zeros((2, 3))))
    '(a number, float64 [2, 3])'
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(shape_of, value))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, Number | np.generic):
        return "a number"
    if value is None:
        return "None"
    raise RunError(
        f"it returned a {type(value).__name__}, which parts cannot be added up of; return numbers, arrays or tuples of "
        "these, or give the program merge(a, b)"
    )
