"""`KnownRanges`: between which numbers the integer variables of a body are at one place of it.

known.of(x)                       interval of an integer expression; None if it is not known
known.assign(name, interval)      after an assignment
known.learn(test, True)           where a test was true: inside `if i > 0`, i is at least 1
known.join(state)                 where two ways through the body meet
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from stretto.loops.front.bind import AccumulatorInfo, ArrayInfo, BufferInfo, Info
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.promote import whole
from stretto.loops.types.scope import Interval, Scope

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

Fact: TypeAlias = tuple[t.Test, ...]  # comparisons of which not all are true
State: TypeAlias = tuple[dict[str, Interval], tuple[Fact, ...]]


class KnownRanges:
    """Intervals of variables at a place that moves along the statements of a body."""

    def __init__(self, body: Body, infos: Mapping[str, Info]) -> None:
        self.body, self.infos = body, infos
        self.scope = Scope(self.size)
        self.never: tuple[Fact, ...] = ()

    def size(self, array: str, axis: int) -> int | None:
        """Elements of an array along an axis; None if that is not known."""
        info = self.infos.get(array)
        if isinstance(info, ArrayInfo | BufferInfo | AccumulatorInfo):
            return info.shape[axis]
        known = next((one for one in self.body.arrays if one.name == array), None)
        if known is None or known.allocated:
            return None
        if known.sizes:
            found = self.scope.of(known.sizes[axis])
            return found[0] if found and found[0] == found[1] else None
        return known.shape[axis]

    def of(self, x: Any) -> Interval:
        """The interval of a value; None for rows, floats and what is not known."""
        if t.is_row(x) or not whole(x.type):
            return None
        if isinstance(x, t.Select):
            yes, no = self.of(x.yes), self.of(x.no)
            return (min(yes[0], no[0]), max(yes[1], no[1])) if yes and no else None
        return self.scope.of(x)

    def state(self) -> State:
        return dict(self.scope.ranges), self.never

    def back(self, state: State) -> None:
        self.scope.ranges, self.never = dict(state[0]), state[1]

    def join(self, other: State) -> None:
        """What holds here and in another state."""
        ranges, never = other
        found: dict[str, Interval] = {}
        for name, here in self.scope.ranges.items():
            there = ranges.get(name)
            if here and there:
                found[name] = min(here[0], there[0]), max(here[1], there[1])
        self.scope.ranges, self.never = found, tuple(fact for fact in self.never if fact in never)

    def assign(self, name: str, interval: Interval) -> None:
        self.scope.ranges[name] = interval
        self.never = tuple(fact for fact in self.never if not any(mentions(test, {name}) for test in fact))

    def learn(self, test: t.Scalar, true: bool) -> None:
        """Narrow intervals by the outcome of a test."""
        match test:
            case t.Logic(op="not", args=(a,)):
                self.learn(a, not true)
            case t.Logic(op="and", args=args) if true:
                for arg in args:
                    self.learn(arg, True)
            case t.Logic(op="or", args=args) if not true:
                for arg in args:
                    self.learn(arg, False)
            case t.Logic(op="and", args=args):
                tests = tuple(arg for arg in args if isinstance(arg, t.Test))
                if len(tests) == len(args):
                    self.never = (*self.never, tests)
            case t.Test(op=op, x=x, y=y):
                self.compared(op if true else _OPPOSITE[op], x, y)
                self.conclude()

    def conclude(self) -> None:
        """Of comparisons that are not all true, one is false if the others are true."""
        for fact in self.never:
            open_ = [test for test in fact if not self.certain(test)]
            if len(open_) == 1:
                self.compared(_OPPOSITE[open_[0].op], open_[0].x, open_[0].y)

    def certain(self, test: t.Test) -> bool:
        a, b = self.of(test.x), self.of(test.y)
        if not a or not b:
            return False
        match test.op:
            case "<" | "<=":
                return a[1] < b[0] + (test.op == "<=")
            case ">" | ">=":
                return a[0] > b[1] - (test.op == ">=")
            case "==":
                return a[0] == a[1] == b[0] == b[1]
        return a[1] < b[0] or b[1] < a[0]

    def compared(self, op: str, x: t.Scalar, y: t.Scalar) -> None:
        """Narrow the intervals of two sides of a comparison that is true."""
        a, b = self.of(x), self.of(y)
        if not a or not b:
            return
        for side, mine, other, how in ((x, a, b, op), (y, b, a, _SWAPPED[op])):
            while isinstance(side, t.Cast) and whole(side.x.type) and self.of(side.x) == mine:
                side = side.x
            if not isinstance(side, t.Var):
                continue
            low, high = mine
            match how:
                case "<" | "<=":
                    high = min(high, other[1] - (how == "<"))
                case ">" | ">=":
                    low = max(low, other[0] + (how == ">"))
                case "==":
                    low, high = max(low, other[0]), min(high, other[1])
                case "!=" if other[0] == other[1]:
                    low, high = low + (low == other[0]), high - (high == other[0])
            if low <= high:  # otherwise this place is never reached
                self.scope.ranges[side.name] = low, high


def mentions(x: Any, names: set[str]) -> bool:
    """Whether an expression contains one of these variables."""
    return any(isinstance(node, t.Var) and node.name in names for node in nodes(x))
