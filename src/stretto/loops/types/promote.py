"""NumPy 2's type promotion for scalar kinds: plain Python numbers are weak and take the type of the other operand.

>>> arithmetic("*", FLOAT, ScalarType("f4")), arithmetic("+", ScalarType("i4"), FLOAT), arithmetic("/", INT, INT)
(ScalarType(dtype='f4', weak=False), ScalarType(dtype='f8', weak=False), ScalarType(dtype='f8', weak=True))
"""

from __future__ import annotations

import numpy as np

from .typed_tree import BOOL, FLOAT, INT, ScalarType

DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
NAMES = {short: np.dtype(short).name for short in DTYPES}  # as users write them
BITWISE = ("&", "|", "^")
SHIFTS = ("<<", ">>")


def floating(kind: ScalarType | str) -> bool:
    """Whether a kind or dtype is of floats."""
    return (kind if isinstance(kind, str) else kind.dtype).startswith("f")


def whole(kind: ScalarType | str) -> bool:
    """Whether a kind or dtype is of integers (bool is not)."""
    return (kind if isinstance(kind, str) else kind.dtype)[0] in "iu"


def limits(dtype: str) -> tuple[int, int]:
    """The least and the greatest integer of a type.

    >>> limits("i1"), limits("u2")
    ((-128, 127), (0, 65535))
    """
    bits = 8 * int(dtype[1:])
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def short(dtype: np.dtype[np.generic]) -> str:
    """The short name of a dtype: 'f4', 'i8', 'b1'."""
    return "b1" if dtype == np.bool_ else f"{dtype.kind}{dtype.itemsize}"


def join(a: ScalarType, b: ScalarType) -> ScalarType:
    """The kind that can hold either: of a variable assigned in two places, or of two operands."""
    if a == b:
        return a
    if a.weak and b.weak:
        order = (BOOL, INT, FLOAT)
        return order[max(order.index(a), order.index(b))]
    if a.weak != b.weak:
        weak, strong = (a, b) if a.weak else (b, a)
        if weak.dtype == "b1" or floating(strong) or (whole(strong) and whole(weak)):
            return strong
        # A Python float with integers, or a Python int with bools, keeps its own type.
        return ScalarType(weak.dtype)
    return ScalarType(short(np.promote_types(np.dtype(a.dtype), np.dtype(b.dtype))))


def arithmetic(op: str, a: ScalarType, b: ScalarType) -> ScalarType | None:
    """The kind in which `a op b` is computed, and of its result; None where NumPy has no such operation.

    >>> arithmetic("+", BOOL, BOOL), arithmetic("&", FLOAT, INT)
    (ScalarType(dtype='i8', weak=True), None)
    """
    kind = join(a, b)
    if op in BITWISE:
        return None if floating(kind) else kind
    if kind == BOOL:
        kind = INT
    if op in SHIFTS:
        return kind if whole(kind) else None
    if kind.dtype == "b1":
        # For two NumPy bools + and * are logical, which is hardly intended.
        return None
    if op == "/" and not floating(kind):
        return FLOAT if kind.weak else ScalarType("f8")
    return kind


def lifted(kind: ScalarType) -> ScalarType:
    """The kind in which a function such as exp or sqrt computes: floats stay, other numbers become float64."""
    if floating(kind):
        return kind
    return FLOAT if kind.weak else ScalarType("f8")


def summed(dtype: str) -> str:
    """The dtype of the sum of a row: small integers and bools are added up in 64 bits."""
    if floating(dtype):
        return dtype
    return "u8" if dtype.startswith("u") else "i8"
