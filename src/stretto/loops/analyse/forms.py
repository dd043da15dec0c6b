"""Linear forms of integers in a loop body: subscripts, bounds of inner loops, and tests over indices.

    A[2 * i + j]                   2 i + j
    A[i * m + j]                   m i + j, with the value that the number m has in this call
    for k in range(i + 1, n):      k is i + 1 + u for a counter u with 0 ≤ u and i + 1 + u ≤ n - 1
        if k != j and k < 2 * i:   2 i - k - 1 ≥ 0 holds inside; `!=` says nothing linear

A variable is a dimension of the iteration space (0, 1, …: the value of its index) or the counter of an inner loop (-1,
-2, …). A local name that is assigned once, to a form of indices alone, is replaced by that form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.typed_tree import Const, Row, Scalar

from .linear import Linear

LARGEST = 2**31  # of a factor or a constant; anything larger counts as unknown


class Forms:
    """Linear forms in a body, with the conditions under which the statement at hand runs."""

    def __init__(self, body: Body, shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, int]) -> None:
        self.known = {name: Linear(((dim, 1),)) for dim, name in enumerate(body.indices)}
        self.conditions: list[Linear] = []  # each ≥ 0
        self.used: set[str] = set()  # numbers whose values are in a form
        self.counters = 0
        self.once = Counter(_assigned(body.steps))
        local = {name for name, _ in body.fields} | self.once.keys()
        self.numbers = {name: value for name, value in numbers.items() if name not in local}
        own = {array.name for array in body.arrays if array.role == "local"}
        self.shapes = {name: shape for name, shape in shapes.items() if name not in own}

    def of(self, x: Scalar) -> Linear | None:
        """The form of an integer expression; None if it has none."""
        found = self._of(x)
        if found is None or max(map(abs, (found.constant, *(by for _, by in found.terms)))) > LARGEST:
            return None
        return found

    def _of(self, x: Scalar) -> Linear | None:
        if getattr(x.type, "dtype", "") != "i8":
            return None
        match x:
            case Const(value=value):
                return Linear((), int(value))
            case t.Var(name=name) if name in self.known:
                return self.known[name]
            case t.Var(name=name) if name in self.numbers:
                self.used.add(name)
                return Linear((), self.numbers[name])
            case t.AxisSize(array=array, axis=axis) if array in self.shapes:
                return Linear((), self.shapes[array][axis])
            case t.Op(op="neg", args=(a,)):
                found = self.of(a)
                return found.times(-1) if found else None
            case t.Op(op=op, args=(a, b)) if op in ("+", "-", "*", "//", "%"):
                one, two = self.of(a), self.of(b)
                return _combined(op, one, two) if one and two else None
            case t.Cast(x=a):
                return self.of(a)
        return None

    def assign(self, place: t.Place, value: Scalar | Row) -> None:
        """Note a local name that is assigned once, to a form that is the same wherever an iteration reads it."""
        if not isinstance(place, t.VarPlace) or self.once[place.name] != 1 or t.is_row(value):
            return
        form = self.of(value)
        if form is not None and not form.counters:
            self.known.setdefault(place.name, form)

    # --- where a statement runs ---

    def enter_range(self, x: t.RangeLoop) -> list[Linear]:
        """The conditions inside a loop over a range; its name gets a form. Undo with `leave`."""
        before = list(self.conditions)
        start, stop, stride = self.of(x.start), self.of(x.stop), self.of(x.step)
        if self.once[x.name] != 1 or stride is None or stride.terms or stride.constant == 0:
            return before
        self.counters += 1
        counter = Linear(((-self.counters, 1),))
        if start is None:
            self.known[x.name] = counter
            return before
        value = start.plus(counter, stride.constant)
        self.known[x.name] = value
        self.conditions.append(counter)
        if stop is not None:
            left = stop.plus(value, -1) if stride.constant > 0 else value.plus(stop, -1)
            self.conditions.append(left.shifted(-1))
        return before

    def leave(self, before: list[Linear], name: str = "") -> None:
        """Restore the conditions. A loop's name keeps no form: it may have another last value than in its body."""
        self.conditions = before
        self.known.pop(name, None)

    def where(self, test: Scalar, holds: bool) -> list[Linear]:
        """Add what a test says if it holds, or if it does not; return the conditions before."""
        before = list(self.conditions)
        self.conditions += self._said(test, holds)
        return before

    def _said(self, test: Scalar, holds: bool) -> Iterator[Linear]:
        match test:
            case t.Logic(op="not", args=(a,)):
                yield from self._said(a, not holds)
            case t.Logic(op=op, args=args) if (op == "and") == holds:
                for arg in args:
                    yield from self._said(arg, holds)
            case t.Test(op=op, x=x, y=y):
                one, two = self.of(x), self.of(y)
                if one is not None and two is not None:
                    op = op if holds else _OTHERWISE[op]
                    ahead, behind = two.plus(one, -1), one.plus(two, -1)  # y - x and x - y
                    if op in ("<", "<=", "=="):
                        yield ahead.shifted(-1 if op == "<" else 0)
                    if op in (">", ">=", "=="):
                        yield behind.shifted(-1 if op == ">" else 0)

    def domain(self, forms: tuple[Linear, ...]) -> tuple[Linear, ...]:
        """The conditions that matter for these forms: those that say something of an index, or of their counters."""
        wanted = {counter for form in forms for counter in form.counters}
        kept: dict[Linear, None] = {}
        grown = True
        while grown:
            grown = False
            for condition in self.conditions:
                ties = condition.dims or wanted.intersection(condition.counters)
                if ties and condition not in kept:
                    kept[condition] = None
                    wanted.update(condition.counters)
                    grown = True
        return tuple(kept)


def _assigned(steps: tuple[t.Step, ...]) -> Iterator[str]:
    """Local names, once for each statement or range that assigns them."""
    for step in steps:
        match step:
            case t.Store(places=places):
                yield from (place.name for place in places if isinstance(place, t.VarPlace | t.RowName))
            case t.Branch(body=body, orelse=orelse):
                yield from _assigned((*body, *orelse))
            case t.RangeLoop(name=name, body=body):
                yield name
                yield from _assigned(body)
            case t.RaggedLoop(names=names, body=body):
                yield from names
                yield from _assigned(body)
            case t.WhileLoop(body=body):
                yield from _assigned(body)


_OTHERWISE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _combined(op: str, a: Linear, b: Linear) -> Linear | None:
    if op in ("+", "-"):
        return a.plus(b, 1 if op == "+" else -1)
    if op == "*":
        if a.terms and b.terms:
            return None
        return a.times(b.constant) if not b.terms else b.times(a.constant)
    if a.terms or b.terms or b.constant == 0:
        return None
    return Linear((), a.constant // b.constant if op == "//" else a.constant % b.constant)
