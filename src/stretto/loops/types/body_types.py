"""Type inference of a loop body: its statements, branches and inner loops, repeated until types no longer change.

    body = fuse(function, loop, infos, space, known)

In `z = 0.0` followed by `z += W[k] * x`, z is float32 if W is, as it would be in NumPy after the first addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from stretto.loops.analyse.space import Space
from stretto.loops.front import loop_tree
from stretto.loops.front.bind import AccumulatorInfo, ArrayInfo, BufferInfo, Info
from stretto.loops.types.body import Body, BodyArray

from . import typed_tree as t
from .assignment_types import Assignments
from .moves import with_moves
from .named_copies import read_too_late
from .promote import whole
from .scope import assigned, names_in
from .typed_nodes import cast
from .typed_tree import BOOL, INT, ScalarType

_WALKS = 24  # the most passes: kinds only become wider, along a chain shorter than this


def fuse(
    function: loop_tree.Function,
    loop: loop_tree.LoopNest,
    infos: Mapping[str, Info],
    space: Space,
    known: Mapping[str, Any],
) -> tuple[Body, dict[str, int]]:
    """The typed body of a loop for these arguments, and the numbers whose values it depends on."""
    body = with_moves(loop.body)
    kinds: dict[str, ScalarType] = {}
    wide: frozenset[str] = frozenset()
    for _ in range(_WALKS):
        walk = Statements(function, infos, space, known, body, kinds, wide)
        steps = walk.block(body)
        if walk.found == kinds:
            if walk.loose <= wide:
                break
            wide |= walk.loose
        kinds = {**kinds, **walk.found}
    targets = {name: info.target for name, info in infos.items() if isinstance(info, BufferInfo)}
    if late := read_too_late(steps, walk.copied, targets):
        line, name = late
        copy = walk.copied[name]
        said = copy.what if "." in name else f"{name}, {copy.what},"
        sources = " or ".join(sorted(one.rpartition(".")[2] for one in copy.sources))
        walk.no(line, f"{said} is read after {sources} was written, and it is a copy here", copy.remedy)
    folded = tuple(
        BodyArray(name, info.dtype, info.shape, "accumulator" if isinstance(info, AccumulatorInfo) else "buffer")
        for name, info in infos.items()
        if isinstance(info, AccumulatorInfo | BufferInfo) and name in walk.folded
    )
    typed = Body(
        loop.line,
        tuple(dim.name for dim in space.dims),
        space.field_kinds,
        space.ragged_kinds,
        tuple(walk.numbers.items()),
        (*walk.arrays.values(), *walk.locals.values(), *folded),
        steps,
    )
    relied = walk.scope.consulted & set(walk.numbers)
    return typed, {name: found[0] for name in sorted(relied) if (found := walk.scope.ranges.get(name))}


def leaves(statements: tuple[loop_tree.Stmt, ...]) -> bool:
    """Whether every way through some statements ends with `continue` or `break`."""
    match statements[-1:]:
        case (loop_tree.LoopExit(),):
            return True
        case (loop_tree.If(body=body, orelse=orelse),):
            return leaves(body) and leaves(orelse)
    return False


class Statements(Assignments):
    """One pass over a body: its branches and inner loops."""

    def block(self, statements: tuple[loop_tree.Stmt, ...]) -> tuple[t.Step, ...]:
        steps: list[t.Step] = []
        outer, self.before = self.before, steps
        for statement in statements:
            match statement:
                case loop_tree.Assign():
                    self.assign(statement, steps)
                case loop_tree.AugAssign():
                    self.update(statement, steps)
                case loop_tree.If():
                    self.branch(statement, steps)
                case loop_tree.While(line=line, test=test, body=body):
                    self.unsettle(body)
                    first, condition = self.aside(partial(self.truth, test))
                    inner = self.inside(body)
                    if first:  # what the test needs runs before every iteration
                        leave = t.Branch(line, condition, (), (t.Jump(line, "break"),))
                        condition, inner = t.Const(BOOL, True), (*first, leave, *inner)
                    steps.append(t.WhileLoop(line, condition, inner))
                case loop_tree.For():
                    self.inner(statement, steps)
                case loop_tree.LoopExit(line=line, kind=kind):
                    steps.append(t.Jump(line, kind))
        self.before = outer
        return tuple(steps)

    def inside(self, body: tuple[loop_tree.Stmt, ...]) -> tuple[t.Step, ...]:
        """Type a block that may run any number of times; names that it defines may be undefined afterwards."""
        self.unsettle(body)
        defined, views = set(self.defined), dict(self.views)
        steps = self.block(body)
        self.defined = defined
        self.views = {name: row for name, row in views.items() if self.views.get(name) == row}
        return steps

    def unsettle(self, body: tuple[loop_tree.Stmt, ...]) -> None:
        """Mark views that the body of a loop reassigns: in the second iteration they may be of another part."""
        for name in assigned(body):
            if self.views.pop(name, None) is not None:
                self.moved.add(name)
                self.defined.discard(name)

    def branch(self, x: loop_tree.If, steps: list[t.Step]) -> None:
        test = self.truth(x.test)
        defined, views = set(self.defined), dict(self.views)
        yes = self.block(x.body)
        after, seen = self.defined, self.views
        self.defined, self.views = set(defined), dict(views)
        no = self.block(x.orelse)
        steps.append(t.Branch(x.line, test, yes, no))
        if leaves(x.orelse):  # what follows is reached by the other way alone
            self.defined, self.views = after, seen
            return
        if leaves(x.body):
            return
        either = self.views.keys() | seen.keys()
        self.views, other = {name: row for name, row in self.views.items() if seen.get(name) == row}, self.defined
        # A name that is a view on one path and a local row on the other is neither afterwards.
        self.defined = {name for name in after & other if name in self.views or name not in either}
        self.moved |= either - self.views.keys()

    def inner(self, x: loop_tree.For, steps: list[t.Step]) -> None:
        names = names_in(x.pattern)
        for name in names:
            self.writable(name, x.line)
            self.views.pop(name, None)
        if isinstance(x.over, loop_tree.IteratedName):
            self.walk(x, names, steps)
            return
        if len(names) != 1:
            self.no(x.line, "range gives one number", "write for k in range(...)")
        (name,) = names
        start, stop, step = (self.integer(bound) for bound in (x.over.start, x.over.stop, x.over.step))
        if self.note(name, INT, x.line) != INT:
            self.no(x.line, f"{name} counts a loop here and is another kind of number elsewhere", "use two names")
        stride, first, last = self.scope.of(step), self.scope.of(start), self.scope.of(stop)
        if self.counts[name] == 1 and stride and stride[0] > 0 and first and last:
            self.scope.ranges[name] = (first[0], max(first[0], last[1] - 1))
        outer = set(self.defined)
        self.defined.add(name)
        body = self.inside(x.body)
        runs = first is not None and last is not None and first[1] < last[0] and stride is not None and stride[0] > 0
        self.defined = outer | {name} if runs else outer
        steps.append(t.RangeLoop(x.line, name, start, stop, step, body))

    def through(self, x: loop_tree.For, name: str, steps: list[t.Step]) -> None:
        """for x in row: its elements one by one."""
        assert isinstance(x.over, loop_tree.IteratedName)
        if x.over.name in assigned(x.body):
            self.no(x.line, f"{x.over.name} is assigned in the loop over its elements", "give the new row another name")
        row = self.array_row(x.line, self.expr(loop_tree.Name(x.line, x.over.name)))
        counter = self.temporary()
        size = self.scope.of(row.length)
        self.scope.ranges[counter] = (0, max(0, size[1] - 1)) if size else None
        kind = self.note(name, ScalarType(row.dtype), x.line)
        outer = set(self.defined)
        self.defined.add(name)
        element = cast(kind, self.element(row, t.Var(INT, counter)))
        body = (t.Store(x.line, (t.VarPlace(kind, name),), (element,)), *self.inside(x.body))
        self.defined = outer
        steps.append(t.RangeLoop(x.line, counter, t.Const(INT, 0), row.length, t.Const(INT, 1), body))

    def walk(self, x: loop_tree.For, names: tuple[str, ...], steps: list[t.Step]) -> None:
        assert isinstance(x.over, loop_tree.IteratedName)
        ragged = self.ragged.get(x.over.name)
        if ragged is None and self.dims(loop_tree.Name(x.line, x.over.name)) == 1 and len(names) == 1:
            self.through(x, names[0], steps)
            return
        if ragged is None:
            what = "an array" if isinstance(self.infos.get(x.over.name), ArrayInfo) else "not a ragged field"
            self.no(
                x.line,
                f"an inner loop runs over {x.over.name}, which is {what}",
                f"write for k in range(len({x.over.name})) and subscript",
            )
        if len(names) != len(ragged.types):
            self.no(x.line, f"an entry of {ragged.name} holds {len(ragged.types)} numbers, not {len(names)}")
        column = dict(self.space.ragged)[ragged.name]
        for name, kind, part in zip(names, ragged.types, column.parts, strict=True):
            self.note(name, kind, x.line)
            if whole(kind) and self.counts[name] == 1 and len(part):
                self.scope.ranges[name] = int(part.min()), int(part.max())
        outer = set(self.defined)
        self.defined |= set(names)
        body = self.inside(x.body)
        self.defined = outer
        steps.append(
            t.RaggedLoop(
                x.line,
                names,
                tuple(self.kinds.get(n, k) for n, k in zip(names, ragged.types, strict=True)),
                ragged.name,
                body,
            )
        )
