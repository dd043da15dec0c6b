"""Code generation for rows: SIMD chunks of sixteen lanes, unrolled if the length is known and small, else in a loop.

A row expression is computed chunk by chunk: loads, arithmetic in registers, stores. All chunks of an unrolled statement
are loaded and computed before the first is stored, so the compiler may keep a row in registers from a product to the
update that follows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stretto.loops.types import typed_tree as t
from stretto.loops.types.promote import floating, whole
from stretto.loops.types.typed_tree import Const, Row, Scalar

from .scalars import NUMPY, Scalars, literal, own

LANES = 16
MOST_UNROLLED = 8  # chunks
_BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div", "max": "larger", "min": "smaller", "&": "both",
           "|": "either", "^": "differ", "<": "less", "<=": "less_equal", "==": "equal", "!=": "unequal"}  # fmt: skip
_ALONE = {"neg": "neg", "abs": "absolute", "~": "invert", "sqrt": "root", "floor": "down", "ceil": "up"}


@dataclass(frozen=True, slots=True)
class LaneChunk:
    """Sixteen elements of a row, or fewer."""

    offset: str  # of its first element, as source
    part: str = ""  # number of elements, as source; "" for sixteen
    single: bool = False  # one element, as a scalar


def chunks(length: int) -> list[LaneChunk]:
    """The chunks of a row of known length."""
    return [LaneChunk(str(at), "" if at + LANES <= length else str(length - at)) for at in range(0, length, LANES)]


def limit(dtype: str, op: str) -> float | int:
    """The initial value of a search for the largest ('max') or smallest element."""
    if dtype.startswith("f"):
        return -math.inf if op == "max" else math.inf
    if dtype == "b1":
        return op != "max"
    info = np.iinfo(dtype)
    return int(info.min if op == "max" else info.max)


def unrolls(length: Scalar) -> bool:
    """Whether rows of this length are unrolled."""
    return isinstance(length, Const) and int(length.value) <= LANES * MOST_UNROLLED


class RowExpressions(Scalars):
    """Generates row expressions, in addition to scalars."""

    def base(self, row: t.RowLoad | t.RowPlace) -> str:
        """A variable with the flat index of a row's first element in its array."""
        axes = len(row.lead)
        text = ""
        for axis, k in enumerate(row.lead):
            at = self.subscript(row.line, row.array, axis, k, row.checked[axis])
            text = at if not text else f"({text}) * {own(row.array)}.shape[{axis}] + {at}"
        start = self.scalar(row.start)
        if row.checked[-1]:
            site = self.sheet.site(row.line, row.array, axes)
            length = self.scalar(row.length)
            start = self.sheet.span(start, length, f"{own(row.array)}.shape[{axes}]", site)
        if text:
            text = f"({text}) * {self.width(row.array, axes)}"
            text = text if start == "0" else f"{text} + {start}"
        else:
            text = start
        return self.named(text)

    def chunks(self, length: int) -> list[LaneChunk]:
        """The chunks of a row of known length."""
        return chunks(length)

    def prepare(self, row: Row, ready: dict[int, str]) -> None:
        """Generate what a row needs before its chunks: addresses and broadcast scalars."""
        match row:
            case t.RowLoad():
                ready[id(row)] = self.base(row)
            case t.Splat(x=x):
                name = self.sheet.new()
                self.sheet.write(f"{name} = vx.splat({self.scalar(x)})")
                ready[id(row)] = name
            case t.RowOp(args=args):
                for arg in args:
                    self.prepare(arg, ready)
            case t.RowFma(x=x, y=y, z=z):
                for arg in (x, y, z):
                    self.prepare(arg, ready)
            case t.RowCast(x=x):
                self.prepare(x, ready)
            case t.RowSelect(mask=mask, yes=yes, no=no):
                for arg in (mask, yes, no):
                    self.prepare(arg, ready)

    def chunk(self, row: Row, at: LaneChunk, ready: dict[int, str]) -> str:
        """One chunk of a prepared row, as an expression."""
        match row:
            case t.RowLoad(array=array):
                place = ready[id(row)] if at.offset == "0" else f"{ready[id(row)]} + {at.offset}"
                if at.part:
                    return f"vx.load_part({own(array)}, {place}, {at.part})"
                return f"vx.load({own(array)}, {place})"
            case t.RowLocal(name=name):
                return f"{own(name)}{at.offset}"
            case t.Splat():
                return ready[id(row)]
            case t.RowOp(op=op, args=(x,)) if op in ("exp", "log"):
                inner = self.chunk(x, at, ready)
                if x.dtype == "f8":
                    return f"vx.each_{op}({inner})"
                return f"vx.cast(vx.each_{op}(vx.cast({inner}, np.float64(0))), {NUMPY[row.dtype]}(0))"
            case t.RowOp(op=op, args=args) if op in t.ELEMENTARY or op == "power":
                lanes = [self.chunk(arg, at, ready) for arg in args]
                if row.dtype == "f8":
                    return self.sheet.each(f"{op}({', '.join(lanes)})")
                wide = ", ".join(f"vx.cast({lane}, np.float64(0))" for lane in lanes)
                return f"vx.cast({self.sheet.each(f'{op}({wide})')}, {NUMPY[row.dtype]}(0))"
            case t.RowOp(op=op, args=(x,)):
                return f"vx.{_ALONE[op]}({self.chunk(x, at, ready)})"
            case t.RowOp(op=op, args=(x, y)):
                return f"vx.{_BINARY[op]}({self.chunk(x, at, ready)}, {self.chunk(y, at, ready)})"
            case t.RowFma(x=x, y=y, z=z):
                return f"vx.fma({', '.join(self.chunk(arg, at, ready) for arg in (x, y, z))})"
            case t.RowCast(dtype=dtype, x=x) if floating(x.dtype) and whole(dtype):
                return self.sheet.defined(f"each({self.chunk(x, at, ready)}, {NUMPY[dtype]}(0))")
            case t.RowCast(dtype=dtype, x=x):
                return f"vx.cast({self.chunk(x, at, ready)}, {NUMPY[dtype]}(0))"
            case t.RowSelect(mask=mask, yes=yes, no=no):
                return f"vx.pick({', '.join(self.chunk(arg, at, ready) for arg in (mask, yes, no))})"
        raise AssertionError(row)

    def reduction(self, x: t.Dot | t.Sum | t.Extreme) -> str:
        """A product, sum or extreme of rows: one accumulator of sixteen lanes, folded at the end."""
        ready: dict[int, str] = {}
        rows = (x.x, x.y) if isinstance(x, t.Dot) else (x.x,)
        for row in rows:
            self.prepare(row, ready)
        acc, dtype, length = self.sheet.new(), rows[0].dtype, rows[0].length
        start = f"{NUMPY[dtype]}({literal(limit(dtype, x.op)) if isinstance(x, t.Extreme) else 0})"
        self.sheet.write(f"{acc} = vx.splat({start})")

        def add(at: LaneChunk) -> None:
            values = [self.chunk(row, at, ready) for row in rows]
            if isinstance(x, t.Extreme):
                fold = "larger" if x.op == "max" else "smaller"
                value = f"vx.keep({values[0]}, {at.part}, {start})" if at.part else values[0]
                self.sheet.write(f"{acc} = vx.{fold}({acc}, {value})")
                return
            if at.part:
                # A load fills the lanes beyond the end with zeros; arithmetic may change them.
                values = [
                    value if isinstance(row, t.RowLoad) else f"vx.keep({value}, {at.part}, {NUMPY[dtype]}(0))"
                    for row, value in zip(rows, values, strict=True)
                ]
            if isinstance(x, t.Dot):
                if dtype == "f4":
                    self.sheet.write(f"{acc} = vx.fma({values[0]}, {values[1]}, {acc})")
                else:
                    self.sheet.write(f"{acc} = vx.add({acc}, vx.mul({values[0]}, {values[1]}))")
            else:
                self.sheet.write(f"{acc} = vx.add({acc}, {values[0]})")

        self.each_chunk(length, add)
        result = self.sheet.new()
        if isinstance(x, t.Extreme):
            which = "largest" if x.op == "max" else "least"
            self.sheet.write(f"{result} = vx.{which}({acc}, 16)")
        else:
            self.sheet.write(f"{result} = vx.total({acc})")
        return result

    def size(self, length: Scalar) -> str:
        """A length as source; 0 once a subscript, or a bound of a slice, was out of range, so nothing is accessed."""
        if isinstance(length, Const):
            return str(length.value)
        name = self.sheet.new()
        unless = "" if self.sheet.leaves else " if bad[0] == 0 else 0"
        self.sheet.write(f"{name} = {self.scalar(length)}{unless}")
        return name

    def each_chunk(self, length: Scalar, write: Callable[[LaneChunk], None]) -> None:
        """Call write(chunk) for every chunk of an unrolled row, else once inside a loop and once for the rest."""
        if unrolls(length):
            assert isinstance(length, Const)
            for at in self.chunks(int(length.value)):
                write(at)
            return
        sheet = self.sheet
        size, c = self.size(length), sheet.new()
        known = int(length.value) if isinstance(length, Const) else None
        whole_part = f"{known // LANES * LANES}" if known is not None else f"{size} - {size} % {LANES}"
        sheet.write(f"for {c} in range(0, {whole_part}, {LANES}):")
        sheet.depth += 1
        write(LaneChunk(c))
        sheet.depth -= 1
        if known is None or known % LANES:
            sheet.write(f"if {size} % {LANES} != 0:")
            sheet.depth += 1
            sheet.write(f"{c} = {size} - {size} % {LANES}")
            write(LaneChunk(c, f"{size} % {LANES}"))
            sheet.depth -= 1
