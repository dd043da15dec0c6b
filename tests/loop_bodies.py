"""Loop functions out of thin air: hypothesis writes their source, and every way of running them is compared.

`three_ways` runs one loop with the reference interpreter, compiled on one thread and compiled on several, and compares
bits. `bodies` writes random functions whose writes are mostly such that they can run in parallel: a written array is
subscripted by an index of the loop, everything else is read only.
"""

from __future__ import annotations

import copy
import itertools
import linecache
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from hypothesis import strategies as hs

import stretto as st
from stretto.data.records.record_sets import Ragged
from stretto.loops.parallel import Loop
from stretto.state.accumulator import Accumulator
from stretto.state.buffer import Buffer
from stretto.state.state import State
from stretto.testing.arithmetic import same_bits
from stretto.testing.loops import reference

LENGTHS = (3, 16, 17, 40, 130)
TALL = 4  # rows of small matrices
FLOATS, WHOLE = ("f4", "f8"), ("i4", "i8", "u1", "i2", "u4")


@numba.njit
def squash(x):  # type: ignore[no-untyped-def]
    return x / (1.0 + abs(x))


@numba.njit
def mix(a, b):  # type: ignore[no-untyped-def]
    return (a * 31 + b) % 1009


def larger(a: Any, b: Any) -> Any:
    """An operator of the user's own."""
    return a if a > b else b


def halfway(value: Any, delta: Any) -> Any:
    """What a buffer applies."""
    return value + delta / 2


def adaptive(value: Any, delta: Any, past: Any) -> Any:
    """What a buffer with a helper array applies."""
    past = past + delta * delta
    return value + delta / (1 + past), past


SLACK = 0.25
FACTORS = np.linspace(-1, 1, 11).astype("f4")


def reach(w: Any, v: Any) -> Any:
    """A plain function of rows, with a number of this module."""
    d = w - v
    return np.sqrt(d @ d + SLACK)


def bounded(w: Any, most: Any = 2.0) -> Any:
    """A row, from several places, by way of another function."""
    if reach(w, w * 0.5) < most:
        return w
    t = w / (1.0 + abs(np.max(w)))
    if t[0] > 0:
        return t * 2.0
    return np.minimum(t, most)


def nudge(w: Any, v: Any, x: Any) -> None:
    """Changes a row."""
    w += x * v
    if w[0] > 1:
        return
    w[1] = x


def both(x: Any, y: Any) -> Any:
    if x > y:
        return x, y
    y += 1
    return y, x


def above(w: Any, x: Any) -> Any:
    """Leaves a loop."""
    for k in range(len(w)):
        if w[k] * FACTORS[k % 11] > x:
            return k
    return -1


PLAIN = {f.__name__: f for f in (reach, bounded, nudge, both, above)}
AROUND: dict[str, Any] = {"math": math, "np": np, "st": st, "squash": squash, "mix": mix, **PLAIN}
_numbers = itertools.count()


def function(source: str, **captured: Any) -> Callable[..., Any]:
    """The function `loop` of a source text, kept where a notebook keeps what is typed."""
    file = f"<loop body {next(_numbers)}>"
    source = textwrap.dedent(source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    around = {**AROUND, **captured}
    exec(compile(source, file, "exec"), around)
    made: Callable[..., Any] = around["loop"]
    return made


# --- running --------------------------------------------------------------------------------------------------------


def fresh(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with arrays of their own; buffers stand before the copies."""
    memo: dict[int, np.ndarray[Any, Any]] = {}

    def array(given: Any) -> Any:
        bare = given.array if isinstance(given, State) else given
        if id(bare) not in memo:
            memo[id(bare)] = bare.copy(order="K")
        return State._of(memo[id(bare)]) if isinstance(given, State) else memo[id(bare)]

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray | State):
            return array(value)
        if isinstance(value, Accumulator):
            other = copy.copy(value)
            other.array = value.array.copy()
            return other
        if isinstance(value, Buffer):
            helpers = tuple(array(helper) for helper in value.helpers)
            snapshot = None if value.snapshot is None else helpers[value.snapshot]
            return Buffer(array(value.target), value.apply, helpers, snapshot, value.every)
        return value

    return {name: one(value) for name, value in arguments.items()}


def results(arguments: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Every array, and what accumulators hold."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in arguments.items():
        if isinstance(value, Accumulator | State):
            found[name] = np.asarray(value.array)
        elif isinstance(value, np.ndarray):
            found[name] = value
        elif isinstance(value, Buffer):
            found[f"{name}.target"] = value.target
            found |= {f"{name}.with{k}": helper for k, helper in enumerate(value.helpers)}
    return found


def three_ways(loop: Loop, arguments: Mapping[str, Any], threads: Sequence[int] = (2, 3)) -> dict[str, Any]:
    """Run a loop by the interpreter, serially and on threads; compare all bits; the arguments after one of the runs.

    The loop keeps what it prepared, so all ways share one plan and one compiled function.
    """
    mine = Loop(loop.plain, loop.options, st.Serial())
    plan = mine.plan(**fresh(arguments))
    expect = reference(plan)
    after: dict[str, Any] = {}
    runtimes: list[st.Serial | st.Threads] = [st.Serial(), *(st.Threads(count) for count in threads)]
    for runtime in runtimes:
        mine.runtime = runtime
        after = fresh(arguments)
        mine(**after)
        for name, array in results(after).items():
            wanted = expect.accumulators.get(name, expect.arrays.get(name))
            if wanted is None:  # an array behind a buffer that is an argument too, or one that is not used
                continue
            if wanted.dtype.names:
                assert np.array_equal(wanted, array), name
                continue
            assert same_bits(wanted, array), f"{name} on {runtime}:\n{wanted}\n{array}"
    return after


# --- writing --------------------------------------------------------------------------------------------------------


@dataclass
class Written:
    """A random loop: its source, what it captures and what it is called with."""

    source: str
    captured: dict[str, Any]
    arguments: dict[str, Any]
    options: dict[str, Any]

    def loop(self) -> Loop:
        made: Loop = st.parallel(**self.options)(function(self.source, **self.captured))
        return made

    def __repr__(self) -> str:
        def said(value: Any) -> str:
            return f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else repr(value)

        shown = [f"{name}={said(value)}" for name, value in {**self.arguments, **self.captured}.items()]
        return f"\n{self.source}\n{', '.join(shown)}; {self.options}"


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


class Author:
    """Writes one body. Arrays: `Wi` [n, K] rows and `ui` [n] numbers for each index i, all of them written at their
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

    # --- statements ---

    def block(self, most: int) -> None:
        outer = self.known
        self.known = outer.inside()
        self.depth += 1
        written = len(self.lines)
        for _ in range(self.between(1, most)):
            self.statement()
        if len(self.lines) == written:
            self.write("pass")
        self.depth -= 1
        self.known = outer

    def statement(self) -> None:
        choices: list[Callable[[], None]] = [
            self.scalar, self.scalar, self.scalar, self.several, self.augmented, self.store_row, self.store_row,
            self.store_number, self.row_name, self.alias, self.change_row, self.fold, self.fold, self.local_array,
            self.matrix_name, self.change_matrix, self.store_block, self.store_block, self.own_function, self.allocated,
        ]  # fmt: skip
        if self.depth < 5:
            choices += [self.branch, self.branch]
        if self.loops < 2:
            choices += [self.repeat, self.count, self.count]
            if self.entries:
                choices += [self.walk] * 4
        if self.buffered:
            choices += [self.buffer, self.buffer]
        if self.inner and self.depth > 2:
            choices.append(self.leave)
        self.pick(choices)()

    def scalar(self) -> None:
        kind = self.pick("fffiib")
        names, make = {
            "f": (self.known.floats, self.float_),
            "i": (self.known.ints, self.int_),
            "b": (self.known.bools, self.bool_),
        }[kind]
        value = make(3)
        own = [name for name in names if name[0] in "xkb" and name[1:].isdigit()]
        name = self.pick(own) if own and self.chance(40) else self.new({"f": "x", "i": "k", "b": "b"}[kind])
        self.write(f"{name} = {value}")
        if name not in names:
            names.append(name)

    def several(self) -> None:
        if len(self.known.floats) >= 2 and self.chance(50):
            own = [name for name in self.known.floats if name[0] == "x"]
            if len(own) >= 2:
                self.write(f"{own[0]}, {own[-1]} = {own[-1]}, {own[0]}")
                return
        a, b = self.new("x"), self.new("x")
        self.write(f"{a}, {b} = {self.float_(2)}, {self.float_(2)}")
        self.known.floats += [a, b]

    def augmented(self) -> None:
        own = [name for name in self.known.floats if name[0] == "x"]
        if not own or self.chance(30):
            own = [name for name in self.known.ints if name[0] == "k"]
            if own:
                self.write(f"{self.pick(own)} {self.pick(('+', '-', '*', '&', '//', '%'))}= {self.int_(1)}")
            return
        self.write(f"{self.pick(own)} {self.pick('+-*/')}= {self.float_(2)}")

    def place(self) -> str:
        w = self.pick(list(self.written))
        return f"{w}[{self.written[w]}]"

    def store_row(self) -> None:
        match self.pick(range(6)):
            case 0 | 1:
                self.write(f"{self.place()} = {self.row(3)}")
            case 2:
                self.write(f"{self.place()} {self.pick('+-*')}= {self.pick((self.row(2), self.float_(2)))}")
            case 3 if len(self.written) > 1:
                a, b = list(self.written)[:2]
                first, second = f"{a}[{self.written[a]}]", f"{b}[{self.written[b]}]"
                self.write(f"{first}, {second} = {first} + {self.row(2)}, {second} - {self.row(2)}")
            case 4:
                stop = self.pick(range(1, self.length + 1))
                w = self.pick(list(self.written))
                self.write(f"{w}[{self.written[w]}, 0:{stop}] = {self.float_(2)}")
            case _:
                self.write(f"{self.place()} = {self.float_(2)}")

    def store_number(self) -> None:
        w = self.pick([*self.written, *self.vectors, *self.cells])
        c = self.pick((f"{self.pick(range(self.length))}", f"({self.small()} % {self.length})"))
        if w in self.vectors:
            target = f"{w}[{self.vectors[w]}]"
        else:
            target = f"{w}[i, j]" if w in self.cells else f"{w}[{self.written[w]}, {c}]"
        if self.arguments[w].dtype.kind != "f":
            self.write(f"{target} {self.pick(('', '', '+', '-'))}= {self.int_(2)}")
        else:
            self.write(f"{target} {self.pick(('', '', '+', '-', '*', '/'))}= {self.float_(2)}")

    def row_name(self) -> None:
        name = self.new("g")
        self.write(f"{name} = {self.pick((f'{self.row(2)} * {self.float_(1)}', f'{self.row(0)}.copy()'))}")
        self.known.rows.append(name)

    def alias(self) -> None:
        name = self.new("w")
        self.write(f"{name} = {self.place()}")
        self.known.rows.append(name)

    def change_row(self) -> None:
        if self.known.rows:
            self.write(f"{self.pick(self.known.rows)} {self.pick('+-*')}= {self.pick((self.row(1), self.float_(1)))}")

    def local_array(self) -> None:
        name, c = self.new("p"), self.new("c")
        size = self.pick(("5", str(self.length)))
        dtype = self.pick((", np.float32", "", ", np.int64"))
        self.write(f"{name} = np.zeros({size}{dtype})")
        self.write(f"for {c} in range({self.pick((size, '2'))}):")
        value = f"{c} + {self.int_(1)}" if "int" in dtype else f"{c} * {self.float_(1)}"
        self.write(f"    {name}[{c}] {self.pick(('', '+'))}= {value}")
        (self.known.ints if "int" in dtype else self.known.floats).append(f"{name}[{self.pick(range(2))}]")
        if size != "5" and not dtype.endswith("int64"):
            self.known.rows.append(name)

    def matrix_name(self) -> None:
        name = self.new("m")
        self.write(f"{name} = {self.pick((f'({self.matrix(1)} * {self.float_(0)})', *self.block_places()))}")
        self.known.matrices.append(name)

    def block_places(self) -> list[str]:
        return [f"{m}[{i}]" for m, i in self.blocks.items()]

    def change_matrix(self) -> None:
        if self.known.matrices:
            value = self.pick((self.matrix(1), self.row(1), self.float_(1)))
            part = self.pick(("", "[:]", f"[{self.index(TALL)}]"))
            if part.startswith("[") and part != "[:]":
                value = self.pick((self.row(1), self.float_(1)))
            self.write(f"{self.pick(self.known.matrices)}{part} {self.pick('+-*')}= {value}")

    def store_block(self) -> None:
        place, op = self.pick(self.block_places()), self.pick(("", "", "+", "-", "*"))
        match self.pick(range(4)):
            case 0:
                self.write(f"{place} {op}= {self.matrix(2)}")
            case 1:
                self.write(f"{place} {op}= {self.pick((self.row(1), self.float_(1)))}")
            case 2:
                first = self.pick((0, 1, 2))
                inner = place[:-1]
                other = self.pick((f"{inner}, 1:3]", f"tall[{first}:{first + 2}]"))
                self.write(f"{inner}, {first}:{first + 2}] {op}= {other} * {self.float_(1)}")
            case _:
                self.write(f"{place[:-1]}, {self.index(TALL)}] {op}= {self.row(1)}")

    def own_function(self) -> None:
        if self.chance(50):
            a, b = self.new("x"), self.new("x")
            self.write(f"{a}, {b} = both({self.float_(1)}, {self.float_(1)})")
            self.known.floats += [a, b]
            return
        rows = [name for name in self.known.rows if name[0] in "gw"]
        self.write(f"nudge({self.pick((self.place(), *rows))}, {self.row(1)}, {self.float_(1)})")

    def allocated(self) -> None:
        name = self.new("q")
        self.write(f"{name} = np.{self.pick(('zeros', 'ones'))}({self.small()} % {self.pick((5, 40))} + 1)")
        self.write(f"{name}[{self.small()} % len({name})] {self.pick(('', '+'))}= {self.float_(1)}")
        self.known.floats.append(self.pick((f"{name}[0]", f"np.sum({name})", f"({name} @ {name})")))
        self.known.ints.append(f"len({name})")

    def fold(self) -> None:
        if not self.folds:
            return
        name, shape = self.pick(self.folds)
        if shape == "row":
            self.write(f"{name} += {self.row(1)}")
        elif shape == "vector":
            self.write(f"{name}[{self.index(6)}] += {self.float_(2)}")
        elif shape == "count":
            self.write(f"{name} += {self.int_(2)}")
        else:
            self.write(f"{name} += {self.float_(2)}")

    def buffer(self) -> None:
        name = self.pick(self.buffered)
        if self.arguments[name].ndim == 2:
            target, value = f"{name}[{self.index(9)}]", self.pick((self.row(1), self.float_(1)))
        else:
            target, value = f"{name}[{self.index(9)}]", self.float_(2)
        self.write(f"{target} {self.pick('+-')}= {value}")

    def branch(self) -> None:
        self.write(f"if {self.bool_(2)}:")
        self.block(3)
        if self.chance(50):
            self.write("else:")
            self.block(2)
        elif not self.inner and self.chance(15):
            self.depth += 1
            self.write("continue")
            self.depth -= 1

    def repeat(self) -> None:
        k = self.new("n")
        self.write(f"{k} = 0")
        self.write(f"while {k} < 3 and {self.bool_(1)}:")
        self.write(f"    {k} += 1")
        self.loop_body()

    def count(self) -> None:
        k = self.new("c")
        bounds = self.pick(("3", "1, 4", "4, 0, -1", "0, 7, 3", "shift"))
        self.write(f"for {k} in range({bounds}):")
        before = list(self.known.ints)
        self.known.ints.append(k)
        self.loop_body()
        self.known.ints = before

    def walk(self) -> None:
        f, z = self.new("c"), self.new("z")
        self.write(f"for {f}, {z} in fs:")
        ints, floats = list(self.known.ints), list(self.known.floats)
        self.known.ints.append(f)
        self.known.floats += [z, f"numbers[{f}]"]
        self.loop_body()
        self.known.ints, self.known.floats = ints, floats

    def loop_body(self) -> None:
        self.inner += 1
        self.loops += 1
        self.block(3)
        self.loops -= 1
        self.inner -= 1

    def leave(self) -> None:
        self.write(f"if {self.bool_(1)}:")
        self.write(f"    {self.pick(('break', 'continue'))}")

    # --- the function ---

    def function(self) -> Written:
        kind = self.pick(("sparse", "sparse", "ragged", "range", "grid", "dense", "vector"))
        head = self.space(kind)
        self.written = {f"W{i}": i for i in self.indices}
        sizes = {i: self.sizes[i] for i in self.indices}
        for w, i in self.written.items():
            self.arguments[w] = self.array((sizes[i], self.length), self.pick(("f4", "f4", "f8")))
        for i in self.indices:
            self.vectors[f"u{i}"] = i
            self.arguments[f"u{i}"] = self.array((sizes[i],), self.pick(("f4", "f8", *WHOLE)))
            self.blocks[f"M{i}"] = i
            self.arguments[f"M{i}"] = self.array((sizes[i], TALL, self.length), self.pick(FLOATS))
        if kind in ("grid", "dense"):
            self.cells.append("cell")
            self.arguments["cell"] = self.array((sizes["i"], sizes["j"]), self.pick(("f4", "f8", *WHOLE)))
        self.around()
        self.depth += len(head)
        for k, line in enumerate(head):
            self.lines.append("    " * (k + 1) + line)
        for _ in range(self.between(1, 7)):
            self.statement()
        names = ", ".join(self.arguments)
        source = f"def loop({names}):\n" + "\n".join([*self.lines, "    " * self.depth + "pass"]) + "\n"
        options = {"blocks": self.pick(((), (3,), (2, 4), (5, 3))), "width": self.pick((16, 4)),
                   "ordered": self.pick((False, False, True))}  # fmt: skip
        return Written(source, self.captured, self.arguments, options)

    def around(self) -> None:
        """What is read, captured, folded into and buffered."""
        self.captured |= {
            "table": self.array((7, self.length), self.pick(FLOATS)),
            "long": self.array((4, self.length + 6), self.pick((*FLOATS, "i4"))),
            "numbers": self.array((11,), self.pick(FLOATS)),
            "tall": self.array((TALL, self.length), self.pick((*FLOATS, "i4"))),
            "four": self.array((TALL,), self.pick(FLOATS)),
            "picks": self.array((11,), self.pick(WHOLE)),
            "flags": self.array((11,), "b1"),
            "half": self.pick((0.5, np.float32(0.5), np.float64(0.5))),
        }
        self.arguments |= {
            "lr": self.pick((0.01, np.float32(0.01), np.float64(0.01), 1)),
            "shift": self.pick((2, np.int32(3), 0)),
        }
        for _ in range(self.between(0, 3)):
            self.accumulator()
        if self.chance(40):
            for _ in range(self.between(1, 2)):
                self.buffer_argument()

    def accumulator(self) -> None:
        name = self.new("acc")
        shape = self.pick(("number", "row", "vector", "count"))
        start: Any = {
            "number": self.pick((0.0, np.float32(0))),
            "row": np.zeros(self.length, self.pick(FLOATS)),
            "vector": np.zeros(6, self.pick(FLOATS)),
            "count": self.pick((0, np.int32(0))),
        }[shape]
        op = self.pick((None, None, max, min, "own"))
        identity = None
        if op == "own":
            op, identity = larger, -(2**20)
        self.arguments[name] = st.accumulator(start, op=op, identity=identity)
        self.folds.append((name, shape))

    def buffer_argument(self) -> None:
        name = self.new("B")
        shape = self.pick(((9,), (9, self.length)))
        target = self.array(shape, self.pick(FLOATS))
        apply = self.pick((None, halfway, adaptive))
        helpers = (np.abs(self.array(shape, self.pick(FLOATS))),) if apply is adaptive else ()
        made = st.buffer(target, apply=apply, with_=helpers, every=self.pick((None, 1, 3)))
        if self.chance(50):  # its array is read, too
            self.arguments[f"T{name}"] = target
            if len(shape) == 2:
                self.known.rows.append(f"T{name}[{self.index(9)}]")
            else:
                self.known.floats.append(f"T{name}[{self.index(9)}]")
        self.arguments[name] = made
        self.buffered.append(name)

    sizes: dict[str, int]

    def space(self, kind: str) -> list[str]:
        """The lines that open the loops; the names of its indices and fields are known afterwards."""
        n, m = self.pick((1, 5, 12, 20)), self.pick((1, 4, 9, 20))
        self.sizes = {"i": n, "j": m}
        rng = self.rng
        self.indices = ["i", "j"] if kind in ("sparse", "grid", "dense") else ["i"]
        match kind:
            case "sparse":
                count = int(rng.integers(0, 60))
                values = rng.normal(size=count).astype("f4")
                rows, cols = rng.integers(0, n, count), rng.integers(0, m, count)
                self.arguments["d"] = st.Data.from_arrays(rows, cols, values, shape=(n, m))
                self.known.floats.append("r")
                return ["for (i, j), r in d:"]
            case "ragged":
                dense = np.where(rng.random((n, 11)) < 0.3, rng.normal(size=(n, 11)), 0).astype(self.pick(FLOATS))
                self.arguments["d"] = data = st.samples(dense, self.array((n,), self.pick(("i4", "f4", "b1"))))
                assert isinstance(data, Ragged)
                kind = str(data.records().value[0].values.dtype.kind)  # type: ignore[index, union-attr]
                {"i": self.known.ints, "f": self.known.floats, "b": self.known.bools}[kind].append("y")
                self.entries = True
                return ["for i, (y, fs) in d:"]
            case "dense":
                self.arguments["d"] = st.dense(self.array((n, m), dtype := self.pick(("f4", "f8", "i4", "b1", "u1"))))
                {"f": self.known.floats, "b": self.known.bools}.get(dtype[0], self.known.ints).append("r")
                return ["for (i, j), r in d:"]
            case "vector":
                self.arguments["d"] = st.dense(self.array((n,), self.pick(FLOATS)))
                self.known.floats.append("r")
                return ["for i, r in d:"]
            case "grid":
                self.arguments |= {"n": n, "m": m}
                return [f"for i in range({self.pick(('n', '0, n', '1, n', '0, n, 2'))}):", "for j in range(m):"]
        self.arguments["n"] = n
        return [f"for i in range({self.pick(('n', '1, n', '0, n, 3'))}):"]


@hs.composite
def bodies(draw: Callable[[Any], Any]) -> Written:
    """Random loops; see Author."""
    return Author(lambda low, high: draw(hs.integers(low, high))).function()
