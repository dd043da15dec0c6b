"""Statements as they are compiled: the arithmetic of `statements`, written so that it runs faster.

`statements` writes the canonical form, which fingerprints are made of. What is overridden here gives the same bits:

    folds of rows   whole chunks of sixteen lanes, without a temporary row, and one test of the subscripts for the row
    exp and log     of sixteen lanes at a time
    x % n           without a division where x is from -n to 2 n - 1, as in (i + 1) % n
    short rows      of floats as scalars; see `short_rows`
    inner loops     with a number of iterations that the compiler does not see where it is constant; see `opaque`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.promote import floating, whole
from stretto.loops.types.typed_tree import Row, Scalar

from . import short_rows
from .buffers import Buffers
from .proofs import WRAPPED
from .rows import LaneChunk
from .scalars import NUMPY, SourceBuilder, own
from .statements import StatementWriter

UNROLLED = 8  # iterations of an inner loop that the compiler may write one after another
_LANES = {"+": "add", "*": "mul", "|": "either", "&": "both", "^": "differ"}


class CompiledStatements(StatementWriter):
    """Generates the statements of a body in the form that is compiled."""

    def __init__(
        self, sheet: SourceBuilder, body: Body, operators: Mapping[str, tuple[str, Any]], buffers: Buffers
    ) -> None:
        super().__init__(sheet, body, operators, buffers)
        self.constants = _constants(body)
        self.scalar_rows = short_rows.are_scalars(body)

    def step(self, step: t.Step) -> None:
        if not isinstance(step, t.RangeLoop):
            super().step(step)
            return
        start, stop, stride = (self.scalar(x) for x in (step.start, step.stop, step.step))
        first, last = self.constant(step.start), self.constant(step.stop)
        up = self.constant(step.step) != -1
        if last is not None and up and last - (first or 0) >= UNROLLED:
            stop = self.sheet.unseen(stop)
        elif first is not None and not up and first - (last or 0) >= UNROLLED - 1:
            start = self.sheet.unseen(start)
        if abs(self.constant(step.step) or 1) > 1:
            stride = self.sheet.unseen(stride)
        self.sheet.write(f"for {own(step.name)} in range({start}, {stop}, {stride}):")
        self.nested(step.body)

    def operation(self, x: t.Op) -> str:
        if x.op != WRAPPED:
            return super().operation(x)
        a, n = (self.named(self.scalar(arg)) for arg in x.args)
        return f"({a} + {n} if {a} < 0 else ({a} - {n} if {a} >= {n} else {a}))"

    def constant(self, x: Scalar) -> int | None:
        """The value of an integer that the compiler can compute; None if it cannot."""
        match x:
            case t.Const(value=value):
                return int(value)
            case t.Var(name=name):
                return self.constants.get(name)
            case t.Cast(x=inner) if whole(x.type):
                return self.constant(inner)
            case t.AxisSize(array=array, axis=axis):
                sizes = self.body.array(array).sizes
                return self.constant(sizes[axis]) if sizes else None
            case t.Op(op="+" | "-" as op, args=(a, b)):
                left, right = self.constant(a), self.constant(b)
                if left is None or right is None:
                    return None
                return left + right if op == "+" else left - right
        return None

    def fold(self, x: t.Fold) -> None:
        """Fold a number into one element: read and written without the test whether a subscript is negative."""
        if t.is_row(x.value) or not x.index:
            super().fold(x)
            return
        array, value = own(x.accumulator), self.named(self.scalar(x.value))
        at = self.named(self.flat(x.line, x.accumulator, x.index, x.checked))
        old = self.named(f"vx.get({array}, {at})")
        new = self.folded(x.accumulator, old, value, self.body.array(x.accumulator).dtype)
        self.guarded(x.checked, f"vx.put({array}, {at}, {new})")

    def fold_row(self, x: t.Fold, row: Row) -> None:
        """Fold a whole row into an accumulator, in lanes."""
        op, _ = self.operators[x.accumulator]
        array = self.body.array(x.accumulator)
        widened = floating(row.dtype) and array.dtype == "f8"
        if (op not in _LANES and op not in ("max", "min")) or not (widened or row.dtype == array.dtype != "b1"):
            super().fold_row(x, row)
            return
        lead = [
            self.named(self.subscript(x.line, x.accumulator, axis, k, check))
            for axis, (k, check) in enumerate(zip(x.index, x.checked, strict=True))
        ]
        base = ""
        for axis, k in enumerate(lead):
            base = f"({base}) * {self.width(x.accumulator, axis)} + {k}" if base else k
        base = self.named(f"({base}) * {self.width(x.accumulator, len(lead))}") if base else "0"
        ready: dict[int, str] = {}
        self.prepare(row, ready)
        guarded = self.sheet.guard(any(x.checked))

        def fold(at: LaneChunk) -> None:
            value, old = self.sheet.new(), self.sheet.new()
            part, suffix = (f", {at.part}", "_part") if at.part else ("", "")
            text = self.chunk(row, at, ready)
            if row.dtype != array.dtype:
                text = f"vx.cast({text}, {NUMPY[array.dtype]}(0))"
            place = f"{own(x.accumulator)}, {base} + {at.offset}{part}"
            self.sheet.write(f"{value} = {text}")
            self.sheet.write(f"{old} = vx.load{suffix}({place})")
            self.sheet.write(f"vx.store{suffix}({place}, {self.lanes(op, old, value, array.dtype)})")

        self.each_chunk(row.length, fold)
        self.sheet.depth -= guarded

    def chunks(self, length: int) -> list[LaneChunk]:
        """The chunks of a row of known length: elements if it is short."""
        if self.scalar_rows and length <= short_rows.LONGEST:
            return [LaneChunk(str(at), single=True) for at in range(length)]
        return super().chunks(length)

    def prepare(self, row: Row, ready: dict[int, str]) -> None:
        """Generate what a row needs before its chunks; of a short row scalars stay scalars."""
        if isinstance(row, t.Splat) and self.scalar_rows and short_rows.is_short(row.length):
            ready[id(row)] = self.named(self.scalar(row.x))
            return
        super().prepare(row, ready)

    def reduction(self, x: t.Dot | t.Sum | t.Extreme) -> str:
        """A product, sum or extreme of rows."""
        if isinstance(x, t.Extreme) or not (self.scalar_rows and short_rows.is_short(x.x.length)):
            return super().reduction(x)
        ready: dict[int, str] = {}
        rows = (x.x, x.y) if isinstance(x, t.Dot) else (x.x,)
        for row in rows:
            self.prepare(row, ready)
        elements = []
        assert isinstance(x.x.length, t.Const)
        for at in self.chunks(int(x.x.length.value)):
            elements.append(self.named(" * ".join(self.chunk(row, at, ready) for row in rows)))
        return self.named(short_rows.total(elements, x.x.dtype))

    def element_of(self, row: Row, at: LaneChunk, ready: dict[int, str]) -> str:
        """One element of a short row, as an expression."""
        match row:
            case t.RowLoad(array=array):
                return f"vx.get({own(array)}, {ready[id(row)]} + {at.offset})"
            case t.RowOp(args=args):
                return short_rows.operation(row, [self.element_of(arg, at, ready) for arg in args])
            case t.RowCast(dtype=dtype, x=x):
                return f"{NUMPY[dtype]}({self.element_of(x, at, ready)})"
        return super().chunk(row, at, ready)  # a local row, or a number

    def chunk(self, row: Row, at: LaneChunk, ready: dict[int, str]) -> str:
        """One chunk of a prepared row, as an expression."""
        if at.single:
            return self.element_of(row, at, ready)
        match row:
            case t.RowOp(op="exp" | "log" as op, args=(x,)):
                self.sheet.imports.setdefault("from stretto.kernels.numeric import vector_exp as vl")
                inner = self.chunk(x, at, ready)
                if x.dtype == "f8":
                    return f"vl.{op}({inner})"
                return f"vx.cast(vl.{op}(vx.cast({inner}, np.float64(0))), {NUMPY[row.dtype]}(0))"
        return super().chunk(row, at, ready)

    @staticmethod
    def lanes(op: str, old: str, value: str, dtype: str) -> str:
        """old op value of every lane, as `folded` gives it of one number."""
        if op in _LANES:
            return f"vx.{_LANES[op]}({old}, {value})"
        better = f"vx.less({old}, {value})" if op == "max" else f"vx.less({value}, {old})"
        if not whole(dtype):
            better = f"vx.either({better}, vx.unequal({value}, {value}))"
        return f"vx.pick({better}, {value}, {old})"


def _constants(body: Body) -> dict[str, int]:
    """Variables that are assigned in one place, and there an integer constant."""
    assigned: Counter[str] = Counter()
    found: dict[str, int] = {}
    for node in nodes(body.steps):
        match node:
            case t.Store(places=places, values=values):
                for place, value in zip(places, values, strict=True):
                    if isinstance(place, t.VarPlace):
                        assigned[place.name] += 1
                        if isinstance(value, t.Const) and whole(value.type):
                            found[place.name] = int(value.value)
            case t.RangeLoop(name=name):
                assigned[name] += 1
            case t.RaggedLoop(names=names):
                assigned.update(names)
    return {name: value for name, value in found.items() if assigned[name] == 1}
