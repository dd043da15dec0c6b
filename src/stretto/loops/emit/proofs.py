"""Proofs that subscripts are in range, from what is known before a loop is compiled: fewer checks as it runs.

Types are inferred from a body as the user wrote it, and there a variable has one interval, or none if it is assigned
twice. When the loop is compiled, its inner loops are known, and it is followed statement by statement: the counter of
`for r in range(n)` lies between its bounds inside, a variable has the interval of what it was last assigned, inside
`if i > 0` the index i is at least 1. A subscript that is proven here loses its check, and `(i + 1) % n` its division.
A loop without checks has no reason to stop early, so the compiler can turn it into vector instructions. The canonical
form of the source, which fingerprints are made of, keeps every check.

    body, relied = proven(body, space, infos, numbers)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from stretto.loops.analyse.space import Space
from stretto.loops.front.bind import Info
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.promote import whole
from stretto.loops.types.scope import Interval

from .known_ranges import KnownRanges, State, mentions

WRAPPED = "wrapped"  # the operation x % n where x is from -n to 2 n - 1; it needs no division
_ROUNDS = 2  # through the body of an inner loop, after which a variable that still grows is not known


def proven(
    body: Body, space: Space, infos: Mapping[str, Info], numbers: Mapping[str, int]
) -> tuple[Body, dict[str, int]]:
    """The body with fewer subscripts to check, and the numbers among the arguments on which the proofs rely.

    Parameters
    ----------
    body : Body
        A typed body.
    space : Space
        Its iterations.
    infos : mapping
        Descriptions of the arguments, by name.
    numbers : mapping
        Values of integers among the arguments, by name.
    """
    if not any(any(getattr(node, "checked", ())) or getattr(node, "op", "") == "%" for node in nodes(body.steps)):
        return body, {}
    walk = _Proofs(body, space, infos, numbers)
    steps = walk.block(body.steps)
    if steps == body.steps:
        return body, {}
    relied = {name: value for name, value in walk.numbers.items() if name in walk.scope.consulted}
    return replace(body, steps=steps), relied


class _Proofs(KnownRanges):
    """A walk along the statements of a body."""

    def __init__(self, body: Body, space: Space, infos: Mapping[str, Info], numbers: Mapping[str, int]) -> None:
        super().__init__(body, infos)
        self.ragged = dict(space.ragged)
        self.jumps: list[State] = []  # at the `break` and `continue` of the loop around
        self.numbers = {name: numbers[name] for name, kind in body.numbers if whole(kind) and name in numbers}
        for dim in space.dims:
            ends = (dim.start, dim.start + (dim.extent - 1) * dim.step)
            self.scope.ranges[dim.name] = (min(ends), max(ends)) if dim.extent else (0, -1)
        for name, column in space.fields:
            if column.values.dtype.kind in "iu" and len(column.values):
                self.scope.ranges[name] = int(column.values.min()), int(column.values.max())
        self.scope.ranges |= {name: (value, value) for name, value in self.numbers.items()}

    # --- statements ---

    def block(self, steps: tuple[t.Step, ...]) -> tuple[t.Step, ...]:
        return tuple(self.step(step) for step in steps)

    def step(self, step: t.Step) -> t.Step:
        match step:
            case t.Store(places=places, values=values):
                new_values, new_places = self.renewed(values), []
                known = [self.of(value) for value in values]
                for place, interval in zip(places, known, strict=True):  # one may be a subscript of the next
                    new_places.append(self.renewed(place))
                    if isinstance(place, t.VarPlace):
                        self.assign(place.name, interval if whole(place.type) else None)
                return replace(step, places=tuple(new_places), values=new_values)
            case t.Jump():
                self.jumps.append(self.state())
                return step
            case t.Branch(test=test, body=body, orelse=orelse):
                return self.branch(step, test, body, orelse)
            case t.WhileLoop(test=test, body=body):
                self.settle(body, {})
                test = self.renewed(test)
                kept = self.state()
                self.learn(test, True)
                body = self.inside(body)
                self.back(kept)
                return replace(step, test=test, body=body)
            case t.RangeLoop(name=name, start=start, stop=stop, step=stride, body=body):
                bounds = {part: self.renewed(getattr(step, part)) for part in ("start", "stop", "step")}
                within = _counter(self.of(start), self.of(stop), self.of(stride))
                return replace(step, body=self.repeated(body, {name: within}), **bounds)
            case t.RaggedLoop(names=names, types=kinds, ragged=field, body=body):
                parts = self.ragged[field].parts
                ranges = {name: (int(part.min()), int(part.max())) if whole(kind) and len(part) else None
                          for name, kind, part in zip(names, kinds, parts, strict=True)}  # fmt: skip
                return replace(step, body=self.repeated(body, ranges))
        return self.renewed(step)  # type: ignore[no-any-return]

    def branch(self, step: t.Branch, test: t.Scalar, body: tuple[t.Step, ...], orelse: tuple[t.Step, ...]) -> t.Branch:
        test = self.renewed(test)
        before = self.state()
        self.learn(test, True)
        yes, after = self.block(body), self.state()
        self.back(before)
        self.learn(test, False)
        no = self.block(orelse)
        if _leaves(orelse):
            self.back(after)
        elif not _leaves(body):
            self.join(after)
        return replace(step, test=test, body=yes, orelse=no)

    def repeated(self, body: tuple[t.Step, ...], counters: Mapping[str, Interval]) -> tuple[t.Step, ...]:
        """The body of a loop, read with intervals that hold in each of its iterations; after it only those hold."""
        self.settle(body, counters)
        kept = self.state()
        for name, interval in counters.items():
            self.assign(name, interval)
        found = self.inside(body)
        self.back(kept)
        for name in counters:
            self.assign(name, None)
        return found

    def inside(self, body: tuple[t.Step, ...], *, joined: bool = False) -> tuple[t.Step, ...]:
        """The body of a loop. joined: what holds afterwards holds also where the loop is left or continued early."""
        outer, self.jumps = self.jumps, []
        found = self.block(body)
        for state in self.jumps if joined else ():
            self.join(state)
        self.jumps = outer
        return found

    def settle(self, body: tuple[t.Step, ...], counters: Mapping[str, Interval]) -> None:
        """Widen the intervals of what a loop assigns, until they hold before each of its iterations."""
        names = _assigned(body)
        if not names:
            return
        self.never = tuple(fact for fact in self.never if not any(mentions(one, names) for one in fact))
        if any(self.scope.ranges.get(name) for name in names) and not _nested(body):
            for _ in range(_ROUNDS):
                before = self.state()
                for name, interval in counters.items():
                    self.assign(name, interval)
                self.inside(body, joined=True)
                after = self.state()
                self.back(before)
                self.join(after)
                if all(self.scope.ranges.get(name) == before[0].get(name) for name in names):
                    return
        for name in names:
            self.assign(name, None)

    # --- parts of a statement ---

    def renewed(self, x: Any) -> Any:
        """A part of the tree with the checks that are still needed."""
        match x:
            case tuple():
                return tuple(self.renewed(part) for part in x)
            case t.Logic(op="and" | "or", args=args):
                kept, found = self.state(), []
                for arg in args:
                    found.append(self.renewed(arg))
                    self.learn(arg, x.op == "and")
                self.back(kept)
                return replace(x, args=tuple(found))
            case t.Select(test=test, yes=yes, no=no):
                kept, test = self.state(), self.renewed(test)
                self.learn(test, True)
                yes = self.renewed(yes)
                self.back(kept)
                self.learn(test, False)
                no = self.renewed(no)
                self.back(kept)
                return replace(x, test=test, yes=yes, no=no)
            case t.Op(op="%", args=(a, b)) if x.type.dtype == "i8":
                return self.remainder(self.within(x), self.of(a), self.of(b))
            case t.Element(array=array, index=index) | t.ElementPlace(array=array, index=index):
                return self.checks(x, array, index)
            case t.RowLoad(array=array, lead=lead) | t.RowPlace(array=array, lead=lead):
                return self.span(self.checks(x, array, lead))
            case t.Fold(accumulator=array, index=index) | t.BufferAdd(buffer=array, index=index):
                return self.checks(x, array, index)
        return self.within(x) if is_dataclass(x) and type(x).__module__ == t.__name__ else x

    def remainder(self, x: t.Op, a: Interval, b: Interval) -> t.Scalar:
        """x % n, without a division where that is possible."""
        if not a or not b or b[0] <= 0 or a[0] < -b[0] or a[1] >= 2 * b[0]:
            return x
        return x.args[0] if a[0] >= 0 and a[1] < b[0] else replace(x, op=WRAPPED)

    def within(self, x: Any) -> Any:
        """A node with new parts; the node itself if none has changed."""
        parts = {part.name: (getattr(x, part.name), self.renewed(getattr(x, part.name))) for part in fields(x)}
        changed = {name: new for name, (old, new) in parts.items() if new is not old and new != old}
        return replace(x, **changed) if changed else x

    def checks(self, x: Any, array: str, index: tuple[t.Scalar, ...]) -> Any:
        """A reference with fewer checks."""
        found = self.within(x)
        checked = list(found.checked)
        for axis, k in enumerate(index):
            if checked[axis]:
                interval, size = self.of(k), self.size(array, axis)
                checked[axis] = not (interval and size is not None and interval[0] >= 0 and interval[1] < size)
        return replace(found, checked=tuple(checked)) if tuple(checked) != found.checked else found

    def span(self, row: Any) -> Any:
        """A row whose span is not checked if it is proven."""
        if not row.checked[-1]:
            return row
        start, length, size = self.of(row.start), self.of(row.length), self.size(row.array, len(row.lead))
        if not start or not length or size is None or start[0] < 0 or length[0] < 0 or start[1] + length[1] > size:
            return row
        return replace(row, checked=(*row.checked[:-1], False))


def _counter(start: Interval, stop: Interval, stride: Interval) -> Interval:
    """The interval of the counter of a range, inside its loop."""
    if not start or not stop or not stride:
        return None
    if stride[0] > 0:
        return start[0], max(start[0], stop[1] - 1)
    if stride[1] < 0:
        return min(start[1], stop[0] + 1), start[1]
    return None


def _assigned(body: tuple[t.Step, ...]) -> set[str]:
    """Variables that statements assign."""
    found: set[str] = set()
    for node in nodes(body):
        match node:
            case t.VarPlace(name=name) | t.RangeLoop(name=name):
                found.add(name)
            case t.RaggedLoop(names=names):
                found.update(names)
    return found


def _nested(body: tuple[t.Step, ...]) -> bool:
    """Whether statements contain loops in loops: to follow those several times takes too long."""
    loops = (t.RangeLoop, t.RaggedLoop, t.WhileLoop)
    return any(
        isinstance(inner, loops) for node in nodes(body) if isinstance(node, loops) for inner in nodes(node.body)
    )


def _leaves(steps: tuple[t.Step, ...]) -> bool:
    """Whether every way through some statements ends with `continue` or `break`."""
    match steps[-1:]:
        case (t.Jump(),):
            return True
        case (t.Branch(body=body, orelse=orelse),):
            return _leaves(body) and _leaves(orelse)
    return False
