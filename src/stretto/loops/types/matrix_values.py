"""Values of type inference with two axes, and helpers for them: they are no nodes of the typed tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from stretto.loops.front import loop_tree

from . import promote
from . import typed_tree as t
from .promote import floating
from .typed_nodes import simple
from .typed_tree import INT, Const, Row, Scalar, ScalarType


@dataclass(frozen=True, slots=True)
class MatrixView:
    """Part of an array: array[lead..., start : start + rows, first : first + columns].

    checked: as `RowLoad`'s, for the lead axes, the axis of rows and the span of columns.
    """

    dtype: str
    rows: Scalar
    columns: Scalar
    line: int
    array: str
    lead: tuple[Scalar, ...]
    start: Scalar
    first: Scalar
    checked: tuple[bool, ...]

    def row(self, k: Scalar) -> Row:
        lead = (*self.lead, simple("+", self.start, k))
        return t.RowLoad(self.dtype, self.columns, self.line, self.array, lead, self.first, self.checked)


@dataclass(frozen=True, slots=True)
class RowWise:
    """A matrix that is computed row by row where it is used."""

    dtype: str
    rows: Scalar
    columns: Scalar
    row: Callable[[Scalar], Row]


Matrix = MatrixView | RowWise


def sized(row: Row, length: Scalar) -> Row:
    """The same row with its length written in another way."""
    return row if row.length == length else replace(row, length=length)


def turned(x: loop_tree.Expr) -> loop_tree.Expr | None:
    """A of A.T; None for anything else."""
    return x.operand if isinstance(x, loop_tree.Unary) and x.op == "T" else None


def limit(dtype: str, op: str) -> Const:
    """What is below (for 'max') or above (for 'min') every number of a type."""
    if floating(dtype):
        return Const(t.FLOAT, float("-inf") if op == "max" else float("inf"))
    if dtype == "b1":
        return Const(t.BOOL, op != "max")
    low, high = promote.limits(dtype)
    value = low if op == "max" else high
    return Const(INT if value < 2**63 else ScalarType("u8"), value)


def reads(x: Any, array: str) -> Iterator[t.RowLoad | t.Element]:
    """Every load from an array in an expression."""
    if isinstance(x, t.RowLoad | t.Element) and x.array == array:
        yield x
    if isinstance(x, tuple):
        for part in x:
            yield from reads(part, array)
    elif is_dataclass(x):
        for field in fields(x):
            yield from reads(getattr(x, field.name), array)
