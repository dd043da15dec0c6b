"""Code generation for scalar expressions: Numba source with explicit conversions and subscript checks.

A `SourceBuilder` collects lines. An expression is returned as text; code that must run before it, such as a row
product, is written as lines first. Users' names get an underscore at the end, so that generated names cannot collide
with them.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from stretto.loops.types import typed_tree as t
from stretto.loops.types.promote import floating, whole
from stretto.loops.types.typed_tree import MOST_CHOICES, Const, Scalar, ScalarType

NUMPY = {"b1": "np.bool_", "i1": "np.int8", "i2": "np.int16", "i4": "np.int32", "i8": "np.int64", "u1": "np.uint8",
         "u2": "np.uint16", "u4": "np.uint32", "u8": "np.uint64", "f4": "np.float32", "f8": "np.float64"}  # fmt: skip
# Numba computes these in another type than NumPy does, so their results are converted back.
_WIDENED = ("i1", "i2", "i4", "u1", "u2", "u4")
_WRITTEN = {"sqrt": "math.sqrt", "floor": "np.floor", "ceil": "np.ceil", "abs": "abs"}


def own(name: str) -> str:
    """The identifier for a user's name; `W.x`, a field of a struct, gets one that no plain name has."""
    plain = re.sub(r"\W", "_", name)
    return plain + "_" if plain == name else plain + "_f"


def literal(value: int | float | bool) -> str:
    """A number as source."""
    if isinstance(value, float) and not math.isfinite(value):
        return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "(-np.inf)"
    if isinstance(value, int) and abs(value) >= 2**31:
        # Python would fold large literals itself, and Python's integers do not wrap around.
        return f"np.uint64({value})" if value >= 2**63 else f"np.int64({value})"
    return repr(value) if value >= 0 or isinstance(value, bool) else f"({value!r})"


def in_bits(count: Scalar) -> bool:
    """Whether a shift count is a constant smaller than the number of bits."""
    given = count.x if isinstance(count, t.Cast) else count
    return isinstance(given, Const) and 0 <= given.value < 8 * int(count.type.dtype[1:])


CHOICES = "st.integers"
SIZE = "the size of a local array"


@dataclass(frozen=True, slots=True)
class Site:
    """A subscript that is checked at run time, for the error message."""

    line: int  # in the user's file
    array: str  # name; CHOICES for the first argument of `st.integers`
    axis: int  # of the array


@dataclass
class SourceBuilder:
    """Source code under construction."""

    lines: list[str] = field(default_factory=list)  # of the source
    depth: int = 0  # of indentation
    temporaries: int = 0  # number of temporaries so far
    sites: list[Site] = field(default_factory=list)  # subscripts that are checked
    users: list[Any] = field(default_factory=list)  # functions of the user's that the source calls
    imports: dict[str, None] = field(default_factory=dict)  # modules that only some loops need
    leaves: bool = False  # whether a worker returns at a subscript out of range; otherwise it notes that and goes on

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def new(self) -> str:
        """A name for a temporary."""
        self.temporaries += 1
        return f"t{self.temporaries}"

    def site(self, line: int, array: str, axis: int) -> int:
        found = Site(line, array, axis)
        if found not in self.sites:
            self.sites.append(found)
        return self.sites.index(found)

    def in_range(self, text: str, extent: str | int, site: int) -> str:
        """A subscript that is checked."""
        return f"within({text}, {extent}, {self._fault(site)})" if self.leaves else f"at({text}, {extent}, bad, {site})"

    def span(self, start: str, length: str, extent: str, site: int) -> str:
        """The start of a row that is checked."""
        if self.leaves:
            return f"span_within({start}, {length}, {extent}, {self._fault(site)})"
        return f"span({start}, {length}, {extent}, bad, {site})"

    def _fault(self, site: int) -> str:
        self.imports.setdefault("from stretto.kernels.core.guard import span_within, within")
        return f"fault, {site}, pass_, v"

    def guard(self, needed: bool = True) -> bool:
        """Generate the test that no subscript was out of range, and indent; return whether that was needed."""
        if needed and not self.leaves:
            self.write("if bad[0] == 0:")
            self.depth += 1
            return True
        return False

    def unseen(self, number: str | int) -> str:
        """A number that the compiler takes for unknown, and an import of `kernels.core.opaque`."""
        self.imports.setdefault("from stretto.kernels.core.opaque import opaque")
        return f"opaque({number})"

    def defined(self, call: str) -> str:
        """The source of a call of `kernels.numeric.defined`, and an import of that module."""
        self.imports.setdefault("from stretto.kernels.numeric import defined as dx")
        return f"dx.{call}"

    def elementary(self, call: str) -> str:
        """The source of a call of `kernels.numeric.elementary`, and an import of that module."""
        self.imports.setdefault("from stretto.kernels.numeric import elementary as el")
        return f"el.{call}"

    def by_table(self, call: str) -> str:
        """The source of a call of `kernels.functions.tables`, and an import of that module."""
        self.imports.setdefault("from stretto.kernels.functions import tables as tf")
        return f"tf.{call}"

    def each(self, call: str) -> str:
        """The source of a call of `kernels.numeric.vector_functions`, and an import of that module."""
        self.imports.setdefault("from stretto.kernels.numeric import vector_functions as ve")
        return f"ve.each_{call}"

    def user(self, target: Any) -> str:
        """The global name of a user's function in the source."""
        known = next((k for k, other in enumerate(self.users) if other is target), None)
        if known is None:
            known = len(self.users)
            self.users.append(target)
        return f"user{known}"


class Scalars(ABC):
    """Generates scalar expressions; the subclass `Rows` adds row expressions."""

    def __init__(self, sheet: SourceBuilder) -> None:
        self.sheet = sheet

    def typed(self, kind: ScalarType, text: str) -> str:
        """text converted to a kind."""
        return f"({text} != 0)" if kind.dtype == "b1" else f"{NUMPY[kind.dtype]}({text})"

    def cast(self, kind: ScalarType, given: ScalarType, text: str) -> str:
        """text, of the kind `given`, converted to another."""
        if floating(given) and whole(kind):
            return self.sheet.defined(f"whole({text}, {NUMPY[kind.dtype]}(0))")
        return self.typed(kind, text)

    def scalar(self, x: Scalar) -> str:
        """The source of a scalar."""
        match x:
            case Const(type=kind, value=value):
                return literal(value) if kind.weak else self.typed(kind, literal(value))
            case t.Var(name=name):
                return own(name)
            case t.AxisSize(array=array, axis=axis):
                return f"{own(array)}.shape[{axis}]"
            case t.RaggedSize(ragged=ragged):
                return f"(vx.get({own(ragged)}ptr, t + 1) - vx.get({own(ragged)}ptr, t))"
            case t.Element(array=array, index=index, checked=checked, line=line):
                return f"vx.get({own(array)}, {self.flat(line, array, index, checked)})"
            case t.Cast(type=kind, x=inner):
                return self.cast(kind, inner.type, self.scalar(inner))
            case t.Op():
                return self.operation(x)
            case t.Test(op=op, x=a, y=b):
                return f"({self.scalar(a)} {op} {self.scalar(b)})"
            case t.Logic(op="not", args=(a,)):
                return f"(not {self.scalar(a)})"
            case t.Logic(op=op, args=args):
                return self.chain(op, args)
            case t.Select():
                return self.pick(x)
            case t.UserCall(type=kind, target=target, args=args):
                return self.typed(kind, f"{self.sheet.user(target)}({', '.join(self.scalar(arg) for arg in args)})")
            case t.RandomNumber():
                return self.random(x)
            case t.Dot() | t.Sum() | t.Extreme():
                return self.reduction(x)
        raise AssertionError(x)

    @abstractmethod
    def reduction(self, x: t.Dot | t.Sum | t.Extreme) -> str:
        """The source of a product, sum or extreme of rows."""

    def width(self, array: str, axis: int) -> str:
        """Elements along an axis, as source."""
        return f"{own(array)}.shape[{axis}]"

    def flat(self, line: int, array: str, index: tuple[Scalar, ...], checked: tuple[bool, ...]) -> str:
        """The flat index of an element in its array."""
        text = ""
        for axis, (k, check) in enumerate(zip(index, checked, strict=True)):
            at = self.subscript(line, array, axis, k, check)
            text = f"({text}) * {self.width(array, axis)} + {at}" if text else at
        return text

    def subscript(self, line: int, array: str, axis: int, k: Scalar, checked: bool) -> str:
        text = self.scalar(k)
        if not checked:
            return text
        return self.sheet.in_range(text, f"{own(array)}.shape[{axis}]", self.sheet.site(line, array, axis))

    def operation(self, x: t.Op) -> str:
        args = [self.scalar(arg) for arg in x.args]
        match x.op:
            case "neg" | "~":
                text = f"({'-' if x.op == 'neg' else '~'}{args[0]})"
            case "exp" | "log":
                text = self.sheet.by_table(f"{x.op}(np.float64({args[0]}))")
                return text if x.type.dtype == "f8" else self.typed(x.type, text)
            case "power":
                text = self.sheet.by_table(f"power({', '.join(f'np.float64({arg})' for arg in args)})")
                return text if x.type.dtype == "f8" else self.typed(x.type, text)
            case op if op in t.ELEMENTARY:
                text = self.sheet.elementary(f"{op}(np.float64({args[0]}))")
                return text if x.type.dtype == "f8" else self.typed(x.type, text)
            case "max" | "min":
                a, b = (self.named(arg) for arg in args)
                return f"({b} if {b} {'>' if x.op == 'max' else '<'} {a} else {a})"
            case "maximum" | "minimum":
                a, b = (self.named(arg) for arg in args)
                return f"({b} if {b} {'>' if x.op == 'maximum' else '<'} {a} or {b} != {b} else {a})"
            case "//" if x.type.dtype == "i8" and (not isinstance(x.args[1], Const) or x.args[1].value == -1):
                a, b = (self.named(arg) for arg in args)
                return (
                    f"(-{a} if {b} == -1 else {a} // {b})"  # the smallest integer divided by -1 is itself, as in NumPy
                )
            case "<<" | ">>" if not in_bits(x.args[1]):
                return self.sheet.defined(f"{'shl' if x.op == '<<' else 'shr'}({args[0]}, {args[1]})")
            case op if len(args) == 1:
                text = f"{_WRITTEN[op]}({args[0]})"
            case op:
                text = f"({args[0]} {op} {args[1]})"
        return self.typed(x.type, text) if x.type.dtype in _WIDENED else text

    def named(self, text: str) -> str:
        """A variable for a value that is used twice; names and literals are returned unchanged."""
        if re.fullmatch(r"[\w.]+", text):
            return text
        name = self.sheet.new()
        self.sheet.write(f"{name} = {text}")
        return name

    def apart(self, x: Scalar) -> tuple[list[str], str]:
        """The lines that an expression needs before it, without writing them, and its text."""
        lines, self.sheet.lines = self.sheet.lines, []
        text = self.scalar(x)
        needed, self.sheet.lines = self.sheet.lines, lines
        return needed, text

    def chain(self, op: str, args: tuple[Scalar, ...]) -> str:
        """`and` and `or` with short-circuit evaluation: operands that need lines before them are nested."""
        first, *rest = args
        text = self.scalar(first)
        for arg in rest:
            needed, other = self.apart(arg)
            if not needed:
                text = f"({text} {op} {other})"
                continue
            name = self.sheet.new()
            self.sheet.write(f"{name} = {text}")
            self.sheet.write(f"if {name if op == 'and' else f'not {name}'}:")
            self.sheet.lines += [f"    {line}" for line in needed]
            self.sheet.write(f"    {name} = {other}")
            text = name
        return text

    def pick(self, x: t.Select) -> str:
        test = self.scalar(x.test)
        yes_lines, yes = self.apart(x.yes)
        no_lines, no = self.apart(x.no)
        if not yes_lines and not no_lines:
            return f"({yes} if {test} else {no})"
        name = self.sheet.new()
        for head, lines, value in ((f"if {test}:", yes_lines, yes), ("else:", no_lines, no)):
            self.sheet.write(head)
            self.sheet.lines += [f"    {line}" for line in lines]
            self.sheet.write(f"    {name} = {value}")
        return name

    def random(self, x: t.RandomNumber) -> str:
        """A random number; its keys are hashed from the left."""
        keys = x.args[1:] if x.which == "integers" else x.args
        text = x.which.upper()
        for key in keys:
            text = f"absorb({text}, {self.scalar(key)})"
        if x.which == "integers":
            count = self.scalar(x.args[0])
            if any(x.checked):  # as a subscript is: 0 to MOST_CHOICES - 1
                site = self.sheet.site(x.line, CHOICES, 0)
                count = f"(1 + {self.sheet.in_range(f'{count} - 1', MOST_CHOICES, site)})"
            return f"below({text}, {count})"
        return f"{'unit' if x.which == 'uniform' else 'gauss'}({text})"
