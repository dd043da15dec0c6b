"""Constructors of typed nodes: conversions, constant folding of integers, fused multiply-adds.

Only this module creates fused multiply-adds, so that the interpreter and the compiled code use the same ones: x·y + z,
z + x·y, x·y − z and z − x·y of float32 rows (the left product first).
"""

from __future__ import annotations

from . import typed_tree as t
from .promote import floating
from .typed_tree import INT, Const, Row, Scalar, ScalarType

_FOLDED = ("+", "-", "*", "<<")


def cast(kind: ScalarType, x: Scalar) -> Scalar:
    """x as `kind`; constants are converted now if that is exact."""
    if x.type == kind:
        return x
    if isinstance(x, Const) and kind.weak and (kind.dtype != "i8" or abs(x.value) < 2**63):
        value = {"b1": bool, "i8": int, "f8": float}[kind.dtype](x.value)
        return Const(kind, value)
    return t.Cast(kind, x)


def cast_row(dtype: str, row: Row) -> Row:
    """The row with elements of another dtype."""
    return row if row.dtype == dtype else t.RowCast(dtype, row.length, row)


def simple(op: str, a: Scalar, b: Scalar, kind: ScalarType = INT) -> Scalar:
    """a op b, with integer constants folded and zeros dropped, so that subscripts stay readable."""
    if kind == INT and isinstance(a, Const) and isinstance(b, Const) and op in _FOLDED:
        x, y = int(a.value), int(b.value)
        shifted = x << y if op == "<<" and 0 <= y < 64 else 0
        found = {"+": x + y, "-": x - y, "*": x * y, "<<": shifted}[op]
        return Const(INT, (found + 2**63) % 2**64 - 2**63)  # integers wrap around at run time too
    if kind == INT and isinstance(b, Const) and b.value == 0 and op in ("+", "-"):
        return a
    if kind == INT and isinstance(a, Const) and a.value == 0 and op == "+":
        return b
    return t.Op(kind, op, (a, b))


def row_op(op: str, *args: Row) -> Row:
    """op of rows of one dtype and length."""
    dtype, length = args[0].dtype, args[0].length
    if op == "neg":
        return negated(args[0])
    if dtype == "f4" and op in ("+", "-"):
        x, z = args
        if product := _factors(x):
            return t.RowFma(dtype, length, *product, z if op == "+" else negated(z))
        if product := _factors(z):
            first, second = product
            return t.RowFma(dtype, length, first if op == "+" else negated(first), second, x)
    return t.RowOp(dtype, length, op, args)


def _factors(row: Row) -> tuple[Row, Row] | None:
    if isinstance(row, t.RowOp) and row.op == "*":
        return row.args[0], row.args[1]
    return None


def negated(row: Row) -> Row:
    """−row, with the sign moved to where it is cheapest, which does not change the bits."""
    match row:
        case t.Splat(dtype=dtype, length=length, x=x) if floating(dtype):
            return t.Splat(dtype, length, t.Op(x.type, "neg", (x,)))
        case t.RowOp(dtype=dtype, length=length, op="*", args=(x, y)) if floating(dtype):
            if isinstance(y, t.Splat):
                return t.RowOp(dtype, length, "*", (x, negated(y)))
            return t.RowOp(dtype, length, "*", (negated(x), y))
    return t.RowOp(row.dtype, row.length, "neg", (row,))
