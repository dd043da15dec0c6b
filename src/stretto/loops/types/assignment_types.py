"""Type inference of assignments: targets, views, local rows and variables.

A name for part of an array is a view (`w = W[i]`). A row value is kept in registers or in an array local to the
iteration. A number becomes a variable whose kind holds all its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from stretto.loops.analyse.space import Space
from stretto.loops.analyse.view_swaps import refuse_swap, views_swapped
from stretto.loops.front import loop_tree
from stretto.loops.front.bind import AccumulatorInfo, ArrayInfo, BufferInfo, Info, NumberInfo
from stretto.loops.front.parse import read_names
from stretto.loops.types.body import BodyArray

from . import promote
from . import typed_tree as t
from .matrix_assignments import MatrixAssignments
from .matrix_values import MatrixView, sized
from .promote import NAMES, floating, whole
from .scope import assigned, subscripted
from .typed_nodes import cast, cast_row, row_op
from .typed_tree import INT, Const, Row, Scalar, ScalarType

_MANY = 128  # the most elements of a local row that is kept in registers


class Assignments(MatrixAssignments):
    """One pass over a body: its assignments."""

    def __init__(
        self,
        function: loop_tree.Function,
        infos: Mapping[str, Info],
        space: Space,
        known: Mapping[str, Any],
        body: tuple[loop_tree.Stmt, ...],
        kinds: Mapping[str, ScalarType],
        wide: Set[str] = frozenset(),
    ) -> None:
        super().__init__(function, infos, space, known)
        self.kinds = dict(kinds)
        self.wide = wide  # variables that must be int64 to hold a Python integer
        self.loose: set[str] = set()  # variables of this pass whose type may be too small for a Python integer
        self.counts = assigned(body)
        self.subscripted = subscripted(body)
        self.folded: set[str] = set()

    def writable(self, name: str, line: int) -> None:
        """Refuse names that a body must not rebind."""
        if name in self.indices or name in self.fields or name in self.ragged:
            self.no(line, f"{name} belongs to the loop and cannot be assigned", "use another name")
        info = self.infos.get(name)
        if isinstance(info, AccumulatorInfo):
            self.no(line, f"the accumulator {name} is assigned", f"fold into it: {name} += …")
        if name in self.known or isinstance(info, NumberInfo):
            self.no(
                line,
                f"the number {name} comes from outside the loop and cannot be carried from one iteration to the next",
                f"fold into an accumulator, {name} = st.accumulator(0.0) passed as an argument and {name} += … here; "
                "or use another name for a value of this iteration; or, if the next iteration needs it, keep it in an "
                f"array of one element, {name}[0] = …",
            )
        if info is not None:
            self.no(
                line,
                f"{name} comes from outside the loop and cannot be rebound in it",
                f"use another name, or write into its elements: {name}[...] = …",
            )

    def note(self, name: str, kind: ScalarType, line: int, value: Scalar | None = None) -> ScalarType:
        """Note that a local scalar is assigned a value of `kind`; return the kind of the variable."""
        if name in self.registers or name in self.locals:
            self.no(line, f"{name} is a row in one place and a number in another", "use two names")
        if name in self.wide and kind.dtype == "u8":
            self.no(
                line,
                f"{name} is uint64 here and a Python integer that may be negative in another place, and no "
                "integer holds both",
                "convert one of them, np.int64(...) or np.uint64(...), or use two names",
            )
        given = ScalarType("i8") if name in self.wide and whole(kind) else kind
        before = self.found.get(name, given)
        self.found[name] = promote.join(before, given)
        if floating(self.found[name]) and whole(before) and whole(given):
            self.no(line, f"{name} is {NAMES[before.dtype]} in one place and {NAMES[given.dtype]} here, and no integer "
                    "holds both", "convert one of them, or use two names")  # fmt: skip
        now = self.kinds.get(name) or self.found[name]
        narrow = whole(now) and not now.weak and now.dtype != "i8"
        if narrow and kind == INT and (value is None or not self.proven(value, now)):
            self.loose.add(name)
        return now

    def assign(self, x: loop_tree.Assign, steps: list[t.Step]) -> None:
        if any(isinstance(target, loop_tree.Unpacked) for target in x.targets):
            targets = (self.unpacked(one) if isinstance(one, loop_tree.Unpacked) else one for one in x.targets)
            x = replace(x, targets=tuple(targets))
        if len(x.targets) == 1 and self.column_target(x.targets[0]):
            self.store_column(x.line, x.targets[0], x.values[0])
            return
        if self.of_matrices(x):
            if len(x.targets) > 1:
                self.assign_apart(x, steps)
                return
            self.assign_matrix(x.line, x.targets[0], x.values[0])
            return
        if (
            len(x.targets) == 1
            and isinstance(x.values[0], loop_tree.LocalArray)
            and isinstance(x.targets[0], loop_tree.Name)
        ):
            self.fresh(x.targets[0].name, x.values[0], steps)
            return
        if views_swapped(x, self.axes, self.root):
            raise refuse_swap(self.function, x)
        values = [self.expr(value) for value in x.values]
        for target, given, found in zip(x.targets, x.values, values, strict=True):
            if isinstance(target, loop_tree.Name) and isinstance(given, loop_tree.Unary) and given.op == "own":
                self.returned(target.name, found)
            elif isinstance(target, loop_tree.Name) and self.column_target(given):
                self.note_copy(target.name, self.root(given.base), chosen=False)
        places: list[t.Place] = []
        stored: list[Scalar | Row] = []
        for target, value in zip(x.targets, values, strict=True):
            place = self.place(target, value, steps, alone=len(values) == 1)
            if place is not None:
                if isinstance(place, t.RowPlace) and isinstance(target, loop_tree.Name) and t.is_row(value):
                    value = sized(value, place.length)
                places.append(place)
                stored.append(self.fit(x.line, place, value))
        if places:
            steps.append(t.Store(x.line, tuple(places), tuple(stored)))

    def assign_apart(self, x: loop_tree.Assign, steps: list[t.Step]) -> None:
        """A, b = …: one after the other, since matrices are copied element by element; no value may read a target."""
        targets = {target.name for target in x.targets if isinstance(target, loop_tree.Name)}
        if len(targets) < len(x.targets) or not targets.isdisjoint(read_names(x.values)):
            self.no(x.line, "matrices are assigned several at once", "write one assignment to a line")
        for target, value in zip(x.targets, x.values, strict=True):
            self.assign(replace(x, targets=(target,), values=(value,)), steps)

    def returned(self, name: str, value: Scalar | Row) -> None:
        """Note that a function with several returns gave a copy of a row that Python would not copy."""
        inner = value.x if isinstance(value, t.RowCast) else value
        whose = inner.array if isinstance(inner, t.RowLoad) else inner.name if isinstance(inner, t.RowLocal) else ""
        if whose:
            self.note_copy(name, whose, chosen=True)

    def root(self, name: str) -> str:
        """The array that a view is part of."""
        view = self.views.get(name)
        return view.array if isinstance(view, t.RowLoad | MatrixView) else name

    def place(
        self, target: loop_tree.Target, value: Scalar | Row, steps: list[t.Step], *, alone: bool
    ) -> t.Place | None:
        """The place that is assigned; None when the target only becomes a view of an array."""
        if isinstance(target, loop_tree.Item):
            return self.item_place(target)
        assert isinstance(target, loop_tree.Name)
        name, line = target.name, target.line
        self.writable(name, line)
        if t.is_row(value):
            return self.row_place(name, value, steps, line)
        if name in self.views:
            del self.views[name]
        kind = self.note(name, value.type, line, value)
        self.defined.add(name)
        if self.counts[name] == 1 and whole(kind):
            self.scope.ranges[name] = self.scope.of(value)
        return t.VarPlace(kind, name)

    def row_place(self, name: str, value: Row, steps: list[t.Step], line: int) -> t.Place | None:
        """The place of a row with a name: None for a view, else registers or a local array."""
        if name in self.found:
            self.no(line, f"{name} is a number in one place and a row in another", "use two names")
        if isinstance(value, t.RowLoad | t.RowLocal) and name not in self.locals and name not in self.registers:
            self.views[name] = self.pin(value, steps) if isinstance(value, t.RowLoad) else value
            self.defined.add(name)
            return None
        if isinstance(value, t.RowLoad | t.RowLocal):
            whose = value.array if isinstance(value, t.RowLoad) else value.name
            self.no(line, f"{name} is a row of its own in one place and another name for {whose} here",
                    "write .copy() after the row, or use two names")  # fmt: skip
        self.alone(name, line)
        length = self.scope.of(value.length)
        if length is None or length[0] != length[1]:
            return self.long_place(name, value, steps, line)
        size = length[0]
        self.views.pop(name, None)
        self.defined.add(name)
        if name in self.subscripted or size > _MANY:
            known = self.locals.get(name)
            if known is not None and known.allocated:
                return self.long_place(name, value, steps, line)
            if known is not None and (known.dtype != value.dtype or known.sizes != (Const(INT, size),)):
                self.no(line, f"{name} is given a row of another type or length", "use two names")
            self.locals[name] = BodyArray(name, value.dtype, (size,), "local", (Const(INT, size),))
            return t.RowPlace(value.dtype, Const(INT, size), line, name, (), Const(INT, 0), (False,))
        if self.registers.setdefault(name, (value.dtype, size)) != (value.dtype, size):
            self.no(line, f"{name} is given a row of another type or length", "use two names")
        return t.RowName(value.dtype, Const(INT, size), name)

    def alone(self, name: str, line: int) -> None:
        """Refuse a new row for a name while another name is a view of its old row, since both share one array."""
        for other, view in self.views.items():
            whose = getattr(view, "array", "") or getattr(view, "name", "")
            if other != name and whose == name and (name in self.locals or name in self.registers):
                self.no(line, f"{name} is given a new row while {other} stands for its old one",
                        f"write .copy() where {other} is assigned")  # fmt: skip

    def pin(self, row: t.RowLoad, steps: list[t.Step]) -> t.RowLoad:
        """The same row, with subscripts that may change later saved in variables."""

        def kept(x: Scalar) -> Scalar:
            if self.steady(x):
                return x
            name = self.temporary()
            self.scope.ranges[name] = self.scope.of(x)
            steps.append(t.Store(row.line, (t.VarPlace(INT, name),), (x,)))
            return t.Var(INT, name)

        return replace(row, lead=tuple(kept(x) for x in row.lead), start=kept(row.start), length=kept(row.length))

    def fresh(self, name: str, x: loop_tree.LocalArray, steps: list[t.Step]) -> None:
        """p = np.zeros(n): an array local to the iteration, allocated once for each worker."""
        self.writable(name, x.line)
        self.alone(name, x.line)
        sizes = tuple(self.integer(size) for size in x.shape)
        dtype, elements = self.elements(x)
        array = self.allocated(name, dtype, sizes, x.line)
        self.views.pop(name, None)
        self.defined.add(name)
        self.fill(array, x, elements)

    def long_place(self, name: str, value: Row, steps: list[t.Step], line: int) -> t.Place:
        """The place of a row with a name whose length is known only as the loop runs."""
        if name in self.registers:
            self.no(line, f"{name} is given a row of another type or length", "use two names")
        array = self.allocated(name, value.dtype, (value.length,), line)
        self.views.pop(name, None)
        self.defined.add(name)
        return self.place_of(array, (), line)

    def item_place(self, x: loop_tree.Item) -> t.Place:
        """A subscripted target of a plain assignment."""
        info = self.infos.get(x.base)
        if isinstance(info, AccumulatorInfo | BufferInfo):
            what = "accumulator" if isinstance(info, AccumulatorInfo) else "buffer"
            self.no(x.line, f"the {what} {x.base} is assigned", f"add to it: {x.base}[...] += …")
        found = self.item(x)
        self.writable_array(found.array, x.line)  # type: ignore[union-attr]
        if isinstance(found, t.Element):
            return t.ElementPlace(found.type.dtype, x.line, found.array, found.index, found.checked)
        assert isinstance(found, t.RowLoad)
        return t.RowPlace(found.dtype, found.length, x.line, found.array, found.lead, found.start, found.checked)

    def writable_array(self, array: str, line: int) -> None:
        """Refuse to write to a captured array, by its own name or through a view."""
        self.unheard(array, line)
        info = self.infos.get(array)
        if array not in self.locals and isinstance(info, ArrayInfo) and info.role == "captured":
            name = array.partition(".")[0]
            self.no(
                line,
                f"{name} comes from outside the function, and a loop writes to its arguments alone",
                f"pass {name} as an argument; for an array of each iteration's own write {name} = np.empty(…) here",
            )

    def fit(self, line: int, place: t.Place, value: Scalar | Row) -> Scalar | Row:
        """The value, converted to the type of the place."""
        if not isinstance(place, t.VarPlace):
            self.stored(line, ScalarType(place.dtype), value)
        if isinstance(place, t.RowPlace | t.RowName):
            if not t.is_row(value):
                return t.Splat(place.dtype, place.length, cast(ScalarType(place.dtype), value))
            if not self.equal(value.length, place.length):
                self.level(line, place.dtype, t.RowLocal(place.dtype, place.length, ""), value)
            return cast_row(place.dtype, sized(value, place.length))
        if t.is_row(value):
            self.no(
                line, "a whole row is assigned to one element", "subscript the row, or leave out the last subscript"
            )
        kind = place.type if isinstance(place, t.VarPlace) else ScalarType(place.dtype)
        return cast(kind, value)

    def update(self, x: loop_tree.AugAssign, steps: list[t.Step]) -> None:
        """target op= value."""
        assert not isinstance(x.target, loop_tree.Unpacked)
        base = x.target.name if isinstance(x.target, loop_tree.Name) else x.target.base
        info = self.infos.get(base)
        if isinstance(info, AccumulatorInfo | BufferInfo):
            self.folding(x, info, steps)
            return
        if self.dims(x.target) == 2:
            self.update_matrix(x)
            return
        if self.column_target(x.target):
            self.update_column(x)
            return
        if x.op == "@":
            self.no(x.line, "@= is not supported", "write A[...] = A @ B, or w[:] = A @ w")
        if isinstance(x.target, loop_tree.Name) and (base in self.known or isinstance(info, NumberInfo)):
            self.writable(base, x.line)  # raises the specific error
        old = self.expr(x.target)
        if isinstance(old, t.Element | t.RowLoad):
            self.writable_array(old.array, x.line)
        if isinstance(old, t.RowLocal):
            self.unheard(old.name, x.line)
        right = self.expr(x.value)
        if t.is_row(old):
            self.in_place(x, old, right)
        elif isinstance(x.target, loop_tree.Name):
            new = self.power_or(x, old, right)
            assert not t.is_row(new) or t.is_row(old)
            if t.is_row(new):
                self.no(x.line, f"{base} is a number and becomes a row", "use another name")
            kind = self.note(base, new.type, x.line, new)
            steps.append(t.Store(x.line, (t.VarPlace(kind, base),), (cast(kind, new),)))
            return
        new = self.power_or(x, old, right)
        place: t.Place
        match old:
            case t.Element(type=kind, array=array, index=index, checked=checked):
                place = t.ElementPlace(kind.dtype, x.line, array, index, checked)
            case t.RowLoad(dtype=dtype, length=length, array=array, lead=lead, start=start, checked=checked):
                place = t.RowPlace(dtype, length, x.line, array, lead, start, checked)
            case t.RowLocal(dtype=dtype, length=length, name=name):
                place = t.RowName(dtype, length, name)
            case _:
                self.no(x.line, "this cannot be updated in place", "assign it to a name or an element")
        steps.append(t.Store(x.line, (place,), (self.fit(x.line, place, new),)))

    def in_place(self, x: loop_tree.AugAssign, old: Row, right: Scalar | Row) -> None:
        """Refuse what NumPy refuses: a row that is updated in place keeps its type."""
        given = ScalarType(right.dtype) if t.is_row(right) else right.type
        made = (
            promote.arithmetic(x.op, ScalarType(old.dtype), given) if x.op not in ("@", "**") else ScalarType(old.dtype)
        )
        if made is not None and not np.can_cast(made.dtype, old.dtype, "same_kind"):
            self.no(
                x.line,
                f"{x.op}= makes {NAMES[made.dtype]} of a row of {NAMES[old.dtype]}, which keeps its type",
                f"use an array of {NAMES[made.dtype]}",
            )

    def power_or(self, x: loop_tree.AugAssign, old: Scalar | Row, right: Scalar | Row) -> Scalar | Row:
        if x.op == "**":
            return self.power(loop_tree.Binary(x.line, "**", x.target, x.value))
        return self.combine(x.line, x.op, old, right)

    def folding(self, x: loop_tree.AugAssign, info: AccumulatorInfo | BufferInfo, steps: list[t.Step]) -> None:
        """acc += x, buffer[k] += x."""
        name = info.name
        adds = isinstance(info, BufferInfo) or info.op == "+"
        if x.op != "+" and not (x.op == "-" and adds):
            self.no(x.line, f"{name} {x.op}= …", f"write {name} += …; its own operator is applied")
        index: tuple[Scalar, ...] = ()
        if isinstance(x.target, loop_tree.Item):
            if any(isinstance(part, loop_tree.Span) for part in x.target.index):
                self.no(x.line, f"a slice of {name}", "add to one element, or to a whole row")
            index = tuple(self.integer(part) for part in x.target.index if not isinstance(part, loop_tree.Span))
        if self.dims(x.value) == 2:
            self.fold_matrix(x, info, index)
            return
        value = self.expr(x.value)
        if len(info.shape) - len(index) not in (0, 1):
            self.no(
                x.line, f"{name} has {len(info.shape)} axes and {len(index)} subscripts", "add to an element or a row"
            )
        kind = ScalarType(info.dtype)
        given = value.dtype if t.is_row(value) else value.type.dtype
        if floating(given) and not floating(kind):
            self.no(x.line, f"floats are added to {name}, which holds whole numbers ({info.dtype})",
                    "start it as a float, st.accumulator(0.0), or write int(...) around what is added")  # fmt: skip
        if len(index) < len(info.shape):
            length = Const(INT, info.shape[-1])
            place = t.RowName(info.dtype, length, name)
            value = self.fit(x.line, place, value)
            assert t.is_row(value)
            value = row_op("neg", value) if x.op == "-" else value
        else:
            if t.is_row(value):
                self.no(x.line, f"a whole row is added to one element of {name}", "subscript the row")
            value = cast(kind, value)
            value = t.Op(kind, "neg", (value,)) if x.op == "-" else value
        checked = tuple(not self.scope.inside(k, info.shape[axis]) for axis, k in enumerate(index))
        self.folded.add(name)
        make: Callable[..., t.Step] = t.Fold if isinstance(info, AccumulatorInfo) else t.BufferAdd
        steps.append(make(x.line, name, index, checked, value))
