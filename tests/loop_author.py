"""Random loop functions, whose writes are mostly such that they can run in parallel.

A written array is subscripted by an index of the loop, everything else is read only. `drawn` writes the function of a
number, `bodies` is the strategy of Hypothesis, which finds a short one among those that fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as hs

import stretto as st
from loop_bodies import adaptive, function, halfway, larger
from loop_expressions import FLOATS, TALL, WHOLE, Expressions
from stretto.data.records.record_sets import Ragged
from stretto.loops.parallel import Loop


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


class Author(Expressions):
    """Writes one body."""

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


def drawn(number: int) -> Written:
    """The random loop of a number, always the same."""
    return Author(random.Random(number).randint).function()


@hs.composite
def bodies(draw: Callable[[Any], Any]) -> Written:
    """Random loops; see Author."""
    return Author(lambda low, high: draw(hs.integers(low, high))).function()
