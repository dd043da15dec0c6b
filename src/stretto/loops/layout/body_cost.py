"""Estimate how much a loop computes, for choices of the layout: operations of the typed tree, over all iterations.

The estimate depends on the body, the shapes and the data, never on threads. An inner loop whose length is not known
counts as eight iterations.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from stretto.loops.analyse.analysis import Analysis
from stretto.loops.types import typed_tree as t

_UNKNOWN = 8  # iterations of an inner loop
_CALL = 20  # operations of an elementary function, a call of the user's own or a random number
_LANES = 8  # elements of a row for one operation
_CALLED = ("exp", "log", "power", *t.ELEMENTARY)


def operations(analysis: Analysis) -> float:
    """Operations of all iterations together, roughly."""
    count = max(1, len(analysis.space))
    entries = {name: len(column.parts[0]) / count for name, column in analysis.space.ragged if column.parts}
    return count * _Cost(analysis, entries).of(analysis.body.steps)


class _Cost:
    def __init__(self, analysis: Analysis, entries: dict[str, float]) -> None:
        self.consulted, self.entries = analysis.consulted, entries

    def of(self, x: Any) -> float:
        """Operations of a part of the tree."""
        match x:
            case tuple():
                return sum(self.of(part) for part in x)
            case t.Const() | t.Var() | t.AxisSize() | t.VarPlace():
                return 0
            case t.RangeLoop(start=start, stop=stop, step=stride, body=body):
                return self.times(start, stop, stride) * (1 + self.of(body))
            case t.RaggedLoop(ragged=ragged, body=body):
                return self.entries.get(ragged, _UNKNOWN) * (1 + self.of(body))
            case t.WhileLoop(test=test, body=body):
                return _UNKNOWN * (self.of(test) + self.of(body))
            case t.Branch(test=test, body=body, orelse=orelse):
                return self.of(test) + max(self.of(body), self.of(orelse))
        if not is_dataclass(x) or isinstance(x, type) or type(x).__module__ != t.__name__:
            return 0
        inside = sum(self.of(getattr(x, part.name)) for part in fields(x))
        each: float = _CALL if isinstance(x, t.UserCall | t.RandomNumber) or getattr(x, "op", "") in _CALLED else 1
        row: Any = x
        if t.is_row(row):
            each *= max(1.0, (self.number(row.length) or _UNKNOWN) / _LANES)
        return each + inside

    def times(self, start: t.Scalar, stop: t.Scalar, stride: t.Scalar) -> float:
        """Iterations of an inner loop."""
        first, last, step = self.number(start), self.number(stop), self.number(stride)
        if last is None or first is None or not step:
            return _UNKNOWN if last is None else max(1, math.ceil(last / 2))
        return len(range(first, last, step))

    def number(self, x: t.Scalar) -> int | None:
        match x:
            case t.Const(value=value):
                return int(value)
            case t.Var(name=name):
                return self.consulted.get(name)
        return None
