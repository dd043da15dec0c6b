"""Random loops whose every number is exact, so that the undecorated function says what is right, to the last bit.

Integers of all types, at the edges of their ranges and beyond, bools, and floats that are small multiples of a quarter:
nothing is rounded, in NumPy or here. Types are mixed as users mix them. Where plain Python raises (an OverflowError of
NumPy's, a division by zero), nothing is compared; where the loop is refused, neither. `compare` runs the reference
interpreter, which takes milliseconds, and compiled code where asked.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st
from loop_bodies import fresh, function
from stretto.errors import DataError, PlanError, RunError
from stretto.loops.parallel import Loop
from stretto.loops.types.promote import short
from stretto.testing.loops import reference

Array = np.ndarray[Any, Any]
INTS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
KINDS = (*INTS, "b1", "f4", "f8")
N, M = 6, 5  # of the indices i and j


@dataclass
class Case:
    """A loop, and what it is called with."""

    source: str
    arguments: dict[str, Any]
    ordered: bool | None = None
    strategies: tuple[str, ...] = ()  # once it was planned

    def __repr__(self) -> str:
        shown = [f"{k}={v.dtype}" if isinstance(v, np.ndarray) else f"{k}={v!r}" for k, v in self.arguments.items()]
        return f"\n{self.source}{', '.join(shown)}; ordered={self.ordered}"


class Writer:
    """Writes one function. `A0`, `A1`, … [N, M] are read and `B0`, … [N, M] written at [i, j], or both at offsets."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.known: dict[str, str] = {}  # local numbers that have a value, and their types
        self.depth = 3
        self.reads = [f"A{k}" for k in range(3)]
        self.writes = [f"B{k}" for k in range(2)]
        for name in (*self.reads, *self.writes):
            self.arguments[name] = self.array(self.pick(KINDS))
        self.arguments |= {"k": self.pick((0, 1, 3, 5, 100, -2, 300, 2**40)), "c": self.number()}

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw.choice(options)

    def number(self) -> Any:
        kind = self.pick(KINDS)
        value = self.array(kind)[0, 0]
        return value if self.draw.random() < 0.5 else value.item()

    def array(self, kind: str) -> Array:
        shape = (N + 2, M + 2)
        if kind == "b1":
            return np.array([[self.draw.random() < 0.5 for _ in range(M + 2)] for _ in range(N + 2)])
        if kind in ("f4", "f8"):
            pool: list[Any] = [k / 4 for k in range(-12, 13)]
        else:
            info = np.iinfo(kind)
            pool = [x for x in (*range(-5, 9), 63, 64, 100, info.min, info.max) if info.min <= x <= info.max]
        return np.array([self.pick(pool) for _ in range(shape[0] * shape[1])], kind).reshape(shape)

    # --- expressions: a text and the type of its value, 'int', 'float' or 'bool' for one of Python's own ---

    def leaf(self) -> tuple[str, str]:
        choice = self.draw.random()
        if choice < 0.55:
            name = self.pick(self.reads)
            at = self.pick(("i, j", "i, j", "i + 1, j", "i, j + 1", "2, i"))
            return f"{name}[{at}]", short(self.arguments[name].dtype)
        if choice < 0.65 and self.known:
            name = self.pick(list(self.known))
            return name, self.known[name]
        if choice < 0.75:
            return "c", self.kind_of(self.arguments["c"])
        if choice < 0.78:
            return self.pick(("k", "-2", "64", "300")), "int"
        text = self.pick(("i", "j", "0", "1", "3", "True", "0.25", "-1.5", "2.0"))
        return text, "bool" if text == "True" else "float" if "." in text else "int"

    def kind_of(self, value: Any) -> str:
        return short(value.dtype) if isinstance(value, np.generic) else type(value).__name__

    def expression(self, depth: int) -> tuple[str, str]:
        if depth <= 0 or self.draw.random() < 0.25:
            return self.leaf()
        (a, left), (b, right) = self.expression(depth - 1), self.expression(depth - 1)
        made = joined(left, right)
        match self.pick(range(10)):
            case 0 | 1 | 2:
                if self.draw.random() < 0.3:
                    op, b = self.pick(("//", "%")), self.pick(("3", "(j + 1)", "5", b))
                    return f"({a} {op} {b})", left if b[0] in "3(5" and left != "bool" else made
                return f"({a} {self.pick('+-*')} {b})", "int" if made == "bool" else made
            case 3:
                if "f" in made or made == "?":
                    return a, left
                return f"({a} {self.pick('&|^')} {b})", made
            case 4:
                if "f" in made or made == "?":
                    return a, left
                # Python's own integers have as many bits as they need, and here they have 64.
                by = (
                    self.pick(("j", "3"))
                    if left in ("int", "bool")
                    else self.pick(("j", "(i + 60)", "3", "(7 * i)", b))
                )
                return f"({a} {self.pick(('<<', '>>'))} {by})", "int" if made == "bool" else made
            case 5:
                return f"({self.pick('-~')}{a})", "int" if left == "bool" else left
            case 6 if left == right:  # one type: Python gives one of the two as it is
                return f"{self.pick(('max', 'min', 'np.maximum', 'np.minimum'))}({a}, {b})", left
            case 7 if left == right:
                return f"({a} if {self.test(depth - 1)} else {b})", left
            case 8 if left != "u8":  # which int(...) makes negative from 2⁶³ on
                name, kind = self.pick((("int", "int"), ("bool", "bool"), ("np.int32", "i4"), ("np.int64", "i8"),
                                        ("np.float32", "f4"), ("np.float64", "f8"), ("float", "float")))  # fmt: skip
                return f"{name}({a})", kind
            case 9:
                return f"abs({a})", "int" if left == "bool" else left
        return f"({self.test(depth - 1)})", "?"

    def test(self, depth: int) -> str:
        (a, _), (b, _), (c, _) = self.expression(depth), self.expression(depth), self.leaf()
        op = self.pick(("<", "<=", ">", ">=", "==", "!="))
        return str(self.pick((f"{a} {op} {b}", f"{a} {op} {b}", f"{a} < {b} <= {c}",
                              f"({c} {op} {b}) {self.pick(('and', 'or'))} ({a} != {c})", f"not {a}")))  # fmt: skip

    def value(self) -> str:
        """What is stored: a choice may be between two types here, where nothing is computed with it."""
        (a, left), (b, right) = self.expression(3), self.expression(1)
        if self.draw.random() < 0.7 or not alike(left, right):
            return a
        return str(self.pick((f"max({a}, {b})", f"min({a}, {b})", f"{a} if {self.test(1)} else {b}")))

    # --- statements ---

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def statement(self) -> None:
        match self.pick(range(6)):
            case 0 | 1:
                name = f"x{len(self.lines)}"
                text, kind = self.expression(2)
                self.write(f"{name} = {text}")
                if kind != "?":
                    self.known[name] = kind
            case 2:
                self.write(f"if {self.test(1)}:")
                self.nested()
                if self.draw.random() < 0.5:
                    self.write("else:")
                    self.nested()
            case 3:
                self.write(f"for q in range({self.pick(('3', 'j', 'i + 1'))}):")
                self.nested()
            case 4:  # a variable with two types is stored, and not computed with
                name, (a, left), (b, right) = f"y{len(self.lines)}", self.expression(1), self.expression(1)
                self.write(f"{name} = {a}")
                self.write(f"if {self.test(1)}:")
                self.write(f"    {name} = {b if alike(left, right) else a}")
                self.write(f"{self.pick(self.writes)}[i, j] = {name}")
            case _:
                self.store()

    def nested(self) -> None:
        before, self.known = self.known, dict(self.known)
        self.depth += 1
        for _ in range(self.pick((1, 2))):
            self.statement()
        self.depth -= 1
        self.known = before

    def store(self) -> None:
        name = self.pick(self.writes)
        if self.draw.random() < 0.3:
            self.write(f"{name}[i, j] {self.pick('+-*')}= {self.expression(2)[0]}")
        else:
            self.write(f"{name}[i, j] = {self.value()}")

    def case(self, ordered: bool | None = None) -> Case:
        for _ in range(self.pick((1, 2, 3, 4))):
            self.statement()
        self.store()
        names = ", ".join(self.arguments)
        head = f"def loop({names}):\n    for i in range({N}):\n        for j in range({M}):\n"
        return Case(head + "\n".join(self.lines) + "\n", self.arguments, ordered)


def alike(a: str, b: str) -> bool:
    """Whether one type holds the values of both: integers of 64 bits and floats have none."""
    return "?" not in (a, b) and ("f" in a) == ("f" in b)


def joined(a: str, b: str) -> str:
    """The type of a sum; '?' is anything, which nothing more is done with."""
    order = ("bool", "int", "float")
    if "?" in (a, b):
        return "?"
    if a in order and b in order:
        return max(a, b, key=order.index)
    if a in order or b in order:
        weak, strong = (a, b) if a in order else (b, a)
        if strong == "b1":
            return {"bool": "b1", "int": "i8", "float": "f8"}[weak]
        return "f8" if weak == "float" and strong[0] in "iu" else strong
    return short(np.promote_types(a, b))


class Nest(Writer):
    """Nests whose order matters: arrays are read at offsets of the places that are written."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.levels = self.pick((2, 2, 3, 3))
        self.arguments = {"A": self.small(), "B": self.small()}

    def small(self) -> Array:
        shape = (7,) * (2 if self.levels == 2 or self.draw.random() < 0.5 else 3)
        return np.array([self.draw.randint(-4, 4) for _ in range(7 ** len(shape))], np.int64).reshape(shape)

    def subscript(self, array: str, spread: int) -> str:
        names = "tij"[-self.levels :]
        axes = self.arguments[array].ndim
        chosen = self.draw.sample(names, axes) if self.draw.random() < 0.4 else list(names[-axes:])
        shifts = [self.pick((0, 0, 1, -1)[: 2 + spread]) for _ in chosen]
        return ", ".join(
            f"{name} + {s}" if s > 0 else f"{name} - {-s}" if s else name
            for name, s in zip(chosen, shifts, strict=True)
        )

    def case(self, ordered: bool | None = None) -> Case:
        steps = [
            self.pick(("range(1, 6)", "range(1, 6)", "range(1, 6, 2)", "range(5, 0, -1)")) for _ in range(self.levels)
        ]
        head = "def loop(A, B):\n"
        for depth, (name, step) in enumerate(zip("tij"[-self.levels :], steps, strict=True)):
            head += "    " * (depth + 1) + f"for {name} in {step}:\n"
        pad = "    " * (self.levels + 1)
        body = ""
        for _ in range(self.pick((1, 1, 2))):
            target = self.pick("AB")
            reads = [f"{name}[{self.subscript(name, 2)}]" for name in self.draw.choices("AAB", k=self.pick((1, 2, 3)))]
            value = f" {self.pick('+-')} ".join(reads)
            body += f"{pad}{target}[{self.subscript(target, 0)}] {self.pick(('=', '=', '+='))} ({value}) % 97\n"
        return Case(head + body, self.arguments, ordered)


def compare(case: Case, compiled: bool = False, serial: bool | None = None) -> str:
    """'same', 'refused' or 'raises' (plain Python does); AssertionError where the numbers differ."""
    plain = function(case.source)
    wanted = fresh(case.arguments)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            plain(**wanted)
    except (OverflowError, ZeroDivisionError, TypeError, ValueError):
        return "raises"
    loop = Loop(plain, st.parallel(ordered=case.ordered, serial=serial)(plain).options, st.Serial())
    given = fresh(case.arguments)
    try:
        plan = loop.plan(**given)
        case.strategies = tuple(part.prepared.analysis.strategy.name for part in plan.parts)
        found: Any = reference(plan).arrays
        if compiled:
            loop(**given)
    except (PlanError, DataError, RunError):
        return "refused"
    for name, array in wanted.items():
        if isinstance(array, np.ndarray):
            _same(case, name, found[name], array, "reference")
            if compiled:
                _same(case, name, given[name], array, "compiled")
    return "same"


def _same(case: Case, name: str, found: Array, wanted: Array, way: str) -> None:
    equal = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    assert equal.all(), f"{way}: {name}{np.argwhere(~equal)[0]}: {found[~equal][0]}, plain {wanted[~equal][0]}{case!r}"


def cases(make: Callable[[random.Random], Writer], seeds: Sequence[int], ordered: bool | None = None) -> list[Case]:
    return [make(random.Random(seed)).case(ordered) for seed in seeds]
