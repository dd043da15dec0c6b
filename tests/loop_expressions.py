"""Random expressions of loop bodies: numbers, rows and matrices of what has a value at a place of the body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LENGTHS = (3, 16, 17, 40, 130)
TALL = 4  # rows of small matrices
FLOATS, WHOLE = ("f4", "f8"), ("i4", "i8", "u1", "i2", "u4")


@dataclass
class Known:
    """Names that have a value at this point of the body."""

    floats: list[str] = field(default_factory=list)
    ints: list[str] = field(default_factory=list)
    bools: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)  # names for rows, of the body's length
    matrices: list[str] = field(default_factory=list)  # names for matrices of TALL rows

    def inside(self) -> Known:
        return Known(list(self.floats), list(self.ints), list(self.bools), list(self.rows), list(self.matrices))


class Expressions:
    """Writes expressions. Arrays: `Wi` [n, K] rows and `ui` [n] numbers for each index i, all of them written at their
    own index only; `table` [7, K], `numbers` [11], `picks` [11] of integers and `flags` [11], which are read.
    """

    def __init__(self, between: Callable[[int, int], int]) -> None:
        self.between = between  # an integer from one to the other, both included: every choice comes from here
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.arguments: dict[str, Any] = {}
        self.captured: dict[str, Any] = {}
        self.rng = np.random.default_rng(between(0, 2**16))
        self.length = self.pick(LENGTHS)
        self.known = Known()
        self.indices: list[str] = []
        self.written: dict[str, str] = {}  # row arrays that may be written → index
        self.vectors: dict[str, str] = {}
        self.blocks: dict[str, str] = {}  # arrays of matrices that may be written → index
        self.cells: list[str] = []  # two-dimensional arrays written at [i, j]
        self.folds: list[tuple[str, str]] = []
        self.buffered: list[str] = []
        self.inner = 0
        self.entries = False  # whether records have a ragged field `fs`
        self.loops = 0  # of inner loops around here, so that the number of steps stays small

    # --- choices ---

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.between(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        """Rare things are at the top, so that shrinking takes them out."""
        return bool(self.between(0, 99) >= 100 - percent)

    def new(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def array(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if dtype == "b1":
            return self.rng.random(shape) < 0.5
        if dtype in FLOATS:
            return self.rng.normal(size=shape).astype(dtype)
        low = 0 if dtype.startswith("u") else -50
        return self.rng.integers(low, 51, shape).astype(dtype)

    # --- expressions ---

    def float_(self, depth: int) -> str:
        leaves = [*self.known.floats, "lr", "half", *(f"{u}[{i}]" for u, i in self.vectors.items())]
        leaves += [f"{w}[{i}, {self.pick(range(self.length))}]" for w, i in self.written.items()]
        leaves += ["0.5", "-1.25", "3.0", f"numbers[{self.index(11)}]"]
        if depth <= 0 or self.chance(30):
            return str(self.pick(leaves))
        a = self.float_(depth - 1)
        match self.pick(range(30)):
            case 24:
                return f"reach({self.row(depth - 1)}, {self.row(0)})"
            case 25:
                return f"np.{self.pick(('mean', 'var', 'std'))}({self.row(depth - 1)})"
            case 26:
                return f"(({self.matrix(depth - 1)} @ {self.row(0)}) @ four)"
            case 27:
                return f"np.{self.pick(('sum', 'max', 'min', 'mean'))}({self.matrix(depth - 1)})"
            case 28:
                along = f"np.{self.pick(('sum', 'max', 'min', 'mean'))}({self.matrix(1)}, axis=1)"
                return f"{self.pick(('sum', 'np.max'))}({along})"
            case 29:
                return f"tall[:, {self.pick(range(self.length))}] @ four"
            case 20:
                return f"{self.pick(('np', 'math'))}.{self.pick(('tanh', 'sin', 'cos'))}({a})"
            case 21:
                return f"{self.pick(('math.erf', 'np.sign', 'np.square', 'np.log1p'))}(abs({a}))"
            case 22:
                return f"np.clip(np.expm1(min({a}, 2.0)), {self.pick(('-0.5', 'lr', '-2'))}, {self.float_(0)})"
            case 23:
                return f"(abs({a}) {self.pick(('** 1.5', '** -1', '** half', '** 2.0'))})"
            case 0 | 1 | 2:
                return f"({a} {self.pick('+-*')} {self.float_(depth - 1)})"
            case 3:
                return f"({a} / {self.float_(depth - 1)})"
            case 4:
                return f"({a} {self.pick('+-*')} {self.int_(depth - 1)})"
            case 5:
                return f"(-{a})"
            case 6:
                return f"abs({a})"
            case 7:
                return f"np.sqrt(abs({a}))"
            case 8:
                return f"np.exp(min({a}, 2.0))"
            case 9:
                return f"np.log(abs({a}) + {self.pick(('1.0', '0.0', '1'))})"
            case 10:
                return f"{self.pick(('max', 'min', 'np.maximum', 'np.minimum'))}({a}, {self.float_(depth - 1)})"
            case 11 | 12:
                return f"({self.row(depth - 1)} @ {self.row(depth - 1)})"
            case 13:
                return f"{self.pick(('sum', 'np.max', 'np.min', 'np.sum'))}({self.row(depth - 1)})"
            case 14:
                return f"({a} if {self.bool_(depth - 1)} else {self.float_(depth - 1)})"
            case 15:
                return f"st.uniform({self.int_(0)}, {self.pick(self.indices)})"
            case 16:
                return f"squash({a})"
            case 17:
                return f"np.where({self.bool_(depth - 1)}, {a}, {self.float_(depth - 1)})"
            case 18:
                return f"({a} {self.pick(('//', '%'))} {self.pick(('0.75', '-1.5', '2', 'half'))})"
            case _:
                return f"{self.pick(('float', 'np.float32', 'np.float64'))}({self.int_(depth - 1)})"

    def int_(self, depth: int) -> str:
        leaves = [*self.known.ints, *self.indices, "shift", "3", "-2", "7", f"len({self.pick(list(self.written))})"]
        leaves += [f"picks[{self.index(11)}]", f"{self.pick(list(self.written))}.shape[1]"]
        if depth <= 0 or self.chance(30):
            return str(self.pick(leaves))
        a = self.int_(depth - 1)
        match self.pick(range(15)):
            case 12:
                return f"np.{self.pick(('argmax', 'argmin'))}({self.row(depth - 1)})"
            case 13:
                return f"above({self.row(0)}, {self.float_(0)})"
            case 14:
                return f"np.argmax({self.matrix(0)} @ {self.row(0)})"
            case 0 | 1 | 2:
                return f"({a} {self.pick('+-*')} {self.int_(depth - 1)})"
            case 3:
                return f"({a} {self.pick(('//', '%'))} {self.pick(('3', '-4', '7', self.int_(0)))})"
            case 4:
                return f"({a} {self.pick('&|^')} {self.int_(depth - 1)})"
            case 5:
                return f"({a} {self.pick(('<<', '>>'))} {self.pick(range(7))})"
            case 6:
                return f"int({self.bool_(depth - 1)})"
            case 7:  # whatever the float is, NaN too, this is from -9 to 9
                return f"int(min(9.0, max(-9.0, {self.float_(depth - 1)})))"
            case 8:
                return f"st.integers(5, {a}, {self.pick(self.indices)})"
            case 9:
                return f"{self.pick(('max', 'min'))}({a}, {self.int_(depth - 1)})"
            case 10:
                return f"mix({a}, {self.int_(0)})"
            case _:
                return str(
                    self.pick((f"(-{a})", f"abs({a})", f"(~{a})", f"({a} if {self.bool_(0)} else {self.int_(0)})"))
                )

    def index(self, size: int) -> str:
        """A subscript that is inside, provably or not."""
        return str(self.pick(("2", f"({self.pick(self.indices)} % {size})", f"({self.small()} % {size})")))

    def small(self) -> str:
        return str(self.pick((*self.known.ints, *self.indices, "(shift * 3)")))

    def bool_(self, depth: int) -> str:
        if depth <= 0 and self.known.bools and self.chance(40):
            return str(self.pick(self.known.bools))
        match self.pick(range(7 if depth > 0 else 3)):
            case 0:
                return f"({self.float_(0)} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {self.float_(depth - 1)})"
            case 1:
                return f"({self.int_(depth - 1)} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {self.int_(0)})"
            case 2:
                return f"flags[{self.index(11)}]"
            case 3:
                return f"({self.bool_(depth - 1)} and {self.bool_(depth - 1)})"
            case 4:
                return f"({self.bool_(depth - 1)} or {self.float_(depth - 1)} > 0)"
            case 5:
                return f"(not {self.bool_(depth - 1)})"
            case _:
                return f"(-1 < {self.int_(0)} <= {self.int_(0)})"

    def row(self, depth: int) -> str:
        """Elements of a row of the body's length."""
        n = self.length
        leaves = [*self.known.rows, *(f"{w}[{i}]" for w, i in self.written.items()), f"table[{self.index(7)}]"]
        at = self.pick((0, 1, 5))
        leaves += [f"long[{self.index(4)}, {at}:{at + n}]", f"long[{self.index(4)}][{at}:{at + n}]"]
        if depth <= 0 or self.chance(35):
            return str(self.pick(leaves))
        a = self.row(depth - 1)
        match self.pick(range(18)):
            case 14:
                return f"bounded({a})"
            case 15:
                return f"(four @ {self.matrix(depth - 1)})"
            case 16:
                return f"np.{self.pick(('sum', 'max', 'min', 'mean'))}({self.matrix(depth - 1)}, axis=0)"
            case 17:
                names = self.known.matrices
                return f"{self.pick(names)}[{self.index(TALL)}]" if names else f"({a} @ np.outer({a}, {self.row(0)}))"
            case 12:
                return f"np.{self.pick(('tanh', 'sin', 'cos', 'sign', 'square'))}({a})"
            case 13:
                return f"{self.pick(('np.log1p(abs({}))', 'np.clip({}, -1.0, 2)', '(abs({}) ** 0.75)')).format(a)}"
            case 0 | 1 | 2:
                return f"({a} {self.pick('+-*')} {self.row(depth - 1)})"
            case 3 | 4:
                return f"({self.float_(depth - 1)} {self.pick('+-*')} {a})"
            case 5:
                return f"({a} / {self.pick((self.float_(0), self.row(0)))})"
            case 6:
                return f"(-{a})"
            case 7:
                return f"abs({a})"
            case 8:
                return f"{self.pick(('np.sqrt', 'np.floor', 'np.ceil'))}(abs({a}))"
            case 9:
                return f"np.exp(np.minimum({a}, 1.5))"
            case 10:
                test = f"{self.row(0)} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {self.float_(0)}"
                return f"np.where({test}, {a}, {self.pick((self.row(0), self.float_(0)))})"
            case _:
                return f"{self.pick(('np.maximum', 'np.minimum'))}({a}, {self.row(depth - 1)})"

    def matrix(self, depth: int) -> str:
        """Elements of a matrix of TALL rows of the body's length."""
        leaves = [*self.known.matrices, *(f"{m}[{i}]" for m, i in self.blocks.items()), "tall", "tall"]
        if depth <= 0 or self.chance(35):
            return str(self.pick(leaves))
        a = self.matrix(depth - 1)
        match self.pick(range(8)):
            case 0 | 1:
                return f"({a} {self.pick('+-*')} {self.pick((self.matrix(depth - 1), self.float_(0), self.row(0)))})"
            case 2 | 3:
                return f"np.outer(four, {self.row(depth - 1)})"
            case 4:
                return f"np.{self.pick(('tanh', 'sin', 'sign', 'square'))}({a})"
            case 5:
                test = f"{a} {self.pick(('<', '>='))} {self.float_(0)}"
                return f"np.where({test}, {a}, {self.pick((self.matrix(0), '0.5'))})"
            case 6:
                return f"(({a} @ {self.matrix(0)}.T) @ {self.matrix(0)})"
            case _:
                return f"np.{self.pick(('maximum', 'minimum'))}(abs({a}), {self.float_(0)})"
