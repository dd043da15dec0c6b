"""Statements as they are compiled: the arithmetic of `statements`, written so that it runs faster.

`statements` writes the canonical form, which fingerprints are made of. What is overridden here gives the same bits:

    folds of rows   whole chunks of sixteen lanes, without a temporary row, and one test of the subscripts for the row
    exp and log     of sixteen lanes at a time
"""

from __future__ import annotations

from stretto.loops.types import typed_tree as t
from stretto.loops.types.promote import floating, whole
from stretto.loops.types.typed_tree import Row

from .rows import LaneChunk
from .scalars import NUMPY, own
from .statements import StatementWriter

_LANES = {"+": "add", "*": "mul", "|": "either", "&": "both", "^": "differ"}


class CompiledStatements(StatementWriter):
    """Generates the statements of a body in the form that is compiled."""

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
        checked = any(x.checked)
        if checked:
            self.sheet.write("if bad[0] == 0:")
            self.sheet.depth += 1

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
        if checked:
            self.sheet.depth -= 1

    def chunk(self, row: Row, at: LaneChunk, ready: dict[int, str]) -> str:
        """One chunk of a prepared row, as an expression."""
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
