"""Value-range analysis of integers in a body, to prove subscripts in range.

Ranges are intervals over the whole loop: an index takes the values of its dimension, a field of the data those from its
smallest to its largest, a variable that is assigned once those of its expression. A subscript whose interval is in
range of the array needs no check at run time; any other subscript is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias

from stretto.loops.front import loop_tree

from .typed_tree import AxisSize, Cast, Const, Op, RaggedSize, RandomNumber, Scalar, ScalarType, Var

Interval: TypeAlias = tuple[int, int] | None
_FAR = 2**62


@dataclass
class Scope:
    """Intervals of variables and sizes of arrays."""

    sizes: Callable[[str, int], int | None]  # (array, axis) -> elements, None if unknown
    ranges: dict[str, Interval] = field(default_factory=dict)  # intervals of variables
    consulted: set[str] = field(default_factory=set)  # variables whose interval was used

    def of(self, x: Scalar) -> Interval:
        """The interval of an integer expression; None if unknown."""
        match x:
            case Const(value=value) if isinstance(value, int):
                return int(value), int(value)
            case Var(name=name):
                self.consulted.add(name)
                return self.ranges.get(name)
            case AxisSize(array=array, axis=axis):
                size = self.sizes(array, axis)
                return None if size is None else (size, size)
            case RaggedSize():
                return None
            case Cast(type=kind, x=inner):
                return _held(kind, self.of(inner))
            case RandomNumber(which="integers", args=args):
                most = self.of(args[0])
                return (0, most[1] - 1) if most and most[1] > 0 else None
            case Op(op="neg", args=(a,)):
                found = self.of(a)
                return _held(x.type, (-found[1], -found[0]) if found else None)
            case Op(op=op, args=(a, b)):
                return _held(x.type, _arithmetic(op, self.of(a), self.of(b)))
        return None

    def inside(self, x: Scalar, size: int | None) -> bool:
        """Whether an integer is proven to be a valid subscript of an axis with `size` elements."""
        found = self.of(x)
        return found is not None and size is not None and found[0] >= 0 and found[1] < size


def _held(kind: ScalarType, found: Interval) -> Interval:
    """The interval, if it fits integers of this kind; otherwise None, because they may wrap around."""
    if found is None or kind.dtype[0] not in "iu":
        return None
    bits = 8 * int(kind.dtype[1:]) - (kind.dtype[0] == "i")
    least = -(2**bits) if kind.dtype[0] == "i" else 0
    return found if max(least, -_FAR) <= found[0] and found[1] < min(2**bits, _FAR) else None


def _arithmetic(op: str, a: Interval, b: Interval) -> Interval:
    if a is None or b is None:
        if op == "%" and b is not None and b[0] > 0:
            return 0, b[1] - 1
        return None
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "*":
        ends = [x * y for x in a for y in b]
        return min(ends), max(ends)
    if op == "//" and b[0] == b[1] > 0:
        return a[0] // b[0], a[1] // b[0]
    if op == "%" and b[0] > 0:
        return 0, b[1] - 1
    if op in ("max", "min"):
        pick = max if op == "max" else min
        return pick(a[0], b[0]), pick(a[1], b[1])
    return None


def assigned(body: tuple[loop_tree.Stmt, ...]) -> Mapping[str, int]:
    """Number of assignments of each local name, including loops over it; intervals hold for those assigned once."""
    counts: dict[str, int] = {}

    def note(name: str, times: int = 1) -> None:
        counts[name] = counts.get(name, 0) + times

    def visit(statements: tuple[loop_tree.Stmt, ...]) -> None:
        for statement in statements:
            for call in inlined(statement):
                visit(call.steps)
            match statement:
                case loop_tree.Assign(targets=targets):
                    for target in targets:
                        if isinstance(target, loop_tree.Name):
                            note(target.name)
                case loop_tree.AugAssign(target=loop_tree.Name(name=name)):
                    note(name, 2)
                case loop_tree.If(body=yes, orelse=no):
                    visit(yes)
                    visit(no)
                case loop_tree.While(body=inner):
                    visit(inner)
                case loop_tree.For(pattern=pattern, body=inner):
                    for name in names_in(pattern):
                        note(name)
                    visit(inner)

    visit(body)
    return counts


def names_in(pattern: loop_tree.Pattern) -> tuple[str, ...]:
    """Every name of a pattern, from the left."""
    if isinstance(pattern, str):
        return (pattern,)
    return tuple(name for part in pattern for name in names_in(part))


def inlined(statement: loop_tree.Stmt) -> Iterator[loop_tree.Inlined]:
    """Inlined calls in the expressions of a statement; not those inside other inlined calls, or in nested blocks."""
    waiting = [getattr(statement, part.name) for part in fields(statement) if part.name not in ("body", "orelse")]
    while waiting:
        x = waiting.pop()
        if isinstance(x, loop_tree.Inlined):
            yield x
        elif isinstance(x, tuple):
            waiting += x
        elif is_dataclass(x):
            waiting += [getattr(x, part.name) for part in fields(x) if part.name != "target"]


def subscripted(body: tuple[loop_tree.Stmt, ...]) -> frozenset[str]:
    """Names that occur with a subscript anywhere in the body, themselves or under another name for their row."""
    found: set[str] = set()
    aliases: list[tuple[str, str]] = []  # names and what they are assigned
    waiting: list[Any] = [body]
    while waiting:
        x = waiting.pop()
        if isinstance(x, tuple):
            waiting += x
        elif is_dataclass(x):
            if isinstance(x, loop_tree.Item):
                found.add(x.base)
            if isinstance(x, loop_tree.IteratedName):
                found.add(x.name)
            if isinstance(x, loop_tree.Assign):
                aliases += [
                    (target.name, value.name)
                    for target, value in zip(x.targets, x.values, strict=True)
                    if isinstance(target, loop_tree.Name) and isinstance(value, loop_tree.Name)
                ]
            skipped = "target" if isinstance(x, loop_tree.Call) else ""
            waiting += [getattr(x, part.name) for part in fields(x) if part.name != skipped]
    while more := {name for alias, name in aliases if alias in found} - found:
        found |= more
    return frozenset(found)
