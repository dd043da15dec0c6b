"""Rows of up to four numbers as they are compiled: one scalar for each element, with the bits of sixteen lanes.

Points in the plane or in space are such rows. Sixteen lanes of them are mostly empty: a division of three numbers
takes as long as one of sixteen, and a row that is stored by a mask is read again late. A sum adds the elements as the
lanes do: 0 + 2 and 1 + 3, then both. Adding zero at the end turns −0.0 into 0.0, as the empty lanes do.

A body is written in this form if its short rows have nothing but float arithmetic; see `are_scalars`.
"""

from __future__ import annotations

from typing import Any

from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.typed_tree import Const, Row, Scalar

from .scalars import NUMPY

LONGEST = 4  # elements
_BINARY = ("+", "-", "*", "/")
_ALONE = {"neg": "(-{})", "abs": "abs({})", "sqrt": "math.sqrt({})"}


def is_short(length: Scalar) -> bool:
    """Whether rows of this length may be scalars."""
    return isinstance(length, Const) and 1 <= int(length.value) <= LONGEST


def are_scalars(body: Body) -> bool:
    """Whether all short rows of a body can be written as scalars."""
    found = False
    for node in nodes(body.steps):
        if len({is_short(row.length) for row in _together(node)}) > 1:
            return False  # a length is a constant here and a number of the call there
        match node:
            case t.Fold(value=value) | t.BufferAdd(value=value) if t.is_row(value) and is_short(value.length):
                return False
            case t.Extreme(x=x) if is_short(x.length):
                return False
            case t.Dot(x=x) | t.Sum(x=x) if is_short(x.length) and x.dtype not in ("f4", "f8"):
                return False
        if t.is_row(node) and is_short(node.length):
            if not _is_plain(node):
                return False
            found = True
    return found


def _together(x: Any) -> list[Any]:
    """Rows that one operation or assignment takes element by element."""
    rows: list[Any]
    match x:
        case t.Store(places=places, values=values):
            rows = [*places, *values]
        case t.RowOp(args=args):
            rows = [x, *args]
        case t.RowFma(x=a, y=b, z=c):
            rows = [x, a, b, c]
        case t.RowCast(x=a):
            rows = [x, a]
        case t.RowSelect(mask=a, yes=b, no=c):
            rows = [x, a, b, c]
        case t.Dot(x=a, y=b):
            rows = [a, b]
        case _:
            rows = []
    return [row for row in rows if t.is_row(row) or isinstance(row, t.RowPlace | t.RowName)]


def _is_plain(row: Row) -> bool:
    """Whether one operation has a scalar form; its arguments are rows of their own."""
    if row.dtype not in ("f4", "f8"):
        return False
    match row:
        case t.RowLoad() | t.RowLocal() | t.Splat():
            return True
        case t.RowOp(op=op, args=args):
            return op in _BINARY if len(args) == 2 else op in _ALONE
        case t.RowCast(x=x):
            return x.dtype in ("f4", "f8")
    return False


def operation(row: t.RowOp, args: list[str]) -> str:
    """One element of an operation, from the elements of its arguments."""
    text = f"({args[0]} {row.op} {args[1]})" if len(args) == 2 else _ALONE[row.op].format(args[0])
    return f"{NUMPY[row.dtype]}({text})"


def total(elements: list[str], dtype: str) -> str:
    """The sum of the elements."""
    first = [elements[0]] if len(elements) < 3 else [f"({elements[0]} + {elements[2]})"]
    second = elements[1:2] if len(elements) < 4 else [f"({elements[1]} + {elements[3]})"]
    return f"{NUMPY[dtype]}(({' + '.join(first + second)}) + {NUMPY[dtype]}(0))"
