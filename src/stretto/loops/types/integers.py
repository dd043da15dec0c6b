"""Mixed integer types: the common type of two integers, and errors for values that do not fit.

A Python integer takes the type of the other operand, and NumPy raises an OverflowError if it does not fit. The
intervals of `scope` often decide this before the loop runs: values that certainly do not fit are refused. If a value is
stored rather than computed with, the type is one that holds it.
"""

from __future__ import annotations

from . import promote
from . import typed_tree as t
from .lookup import NameResolver
from .promote import NAMES, floating, whole
from .typed_tree import INT, Const, Row, Scalar, ScalarType


class Integers(NameResolver):
    """Checks whether integers fit a type."""

    def proven(self, value: Scalar, kind: ScalarType) -> bool:
        """Whether all possible values of a Python integer fit a NumPy type."""
        found, (low, high) = self.scope.of(value), promote.limits(kind.dtype)
        return found is not None and low <= found[0] and found[1] <= high

    def meets(self, line: int, kind: ScalarType, *values: Scalar | Row) -> None:
        """Refuse a Python integer that does not fit the type of the computation."""
        if said := self.misfit(kind, values):
            problem = f"{said} is out of bounds for {NAMES[kind.dtype]}, the type it meets"
            self.no(line, problem, "convert the other side: np.int64(...)")

    def stored(self, line: int, kind: ScalarType, value: Scalar | Row) -> None:
        """Refuse a number that does not fit the type it is converted to: an integer, or a literal float."""
        said = self.misfit(kind, (value,))
        if isinstance(value, Const) and isinstance(value.value, float) and whole(kind):
            low, high = promote.limits(kind.dtype)
            said = "" if low - 1 < value.value < high + 1 else f"{value.value}"
        if said:
            self.no(line, f"{said} is out of bounds for {NAMES[kind.dtype]}", "use a wider type, or a float")

    def misfit(self, kind: ScalarType, values: tuple[Scalar | Row, ...]) -> str:
        """The first Python integer that certainly does not fit a NumPy type, in words; '' if there is none."""
        if kind.weak or not whole(kind) or kind.dtype == "i8":
            return ""
        low, high = promote.limits(kind.dtype)
        for value in values:
            found = None if t.is_row(value) or value.type != INT else self.scope.of(value)
            if found is not None and (found[1] < low or found[0] > high):
                return f"{found[0]}" if found[0] == found[1] else f"a number from {found[0]} to {found[1]}"
        return ""

    def holding(self, line: int, left: Scalar | Row, right: Scalar | Row) -> ScalarType:
        """The kind that holds the values of both, for a choice between them."""
        a, b = (ScalarType(value.dtype) if t.is_row(value) else value.type for value in (left, right))
        kind = promote.join(a, b)
        if floating(kind) and whole(a) and whole(b):
            self.no(line, f"no integer holds both {NAMES[a.dtype]} and {NAMES[b.dtype]}", "convert one of them")
        if kind.weak or not whole(kind) or kind.dtype == "i8" or t.is_row(left) or t.is_row(right):
            return kind
        if all(value.type != INT or self.proven(value, kind) for value in (left, right)):
            return kind
        if kind.dtype == "u8":
            self.no(line, "a Python integer that may be negative meets uint64", "convert one of them: np.int64(...)")
        return ScalarType("i8")
