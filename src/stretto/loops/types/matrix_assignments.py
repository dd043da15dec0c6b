"""Type inference of assignments of matrices: stores row by row, in an order in which no row is read too late."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from stretto.loops.front import loop_tree
from stretto.loops.front.bind import AccumulatorInfo, BufferInfo

from . import typed_tree as t
from .matrices import Matrices
from .matrix_values import Matrix, MatrixView, reads, sized
from .named_copies import NamedCopy
from .promote import NAMES, floating
from .reductions import kind_of
from .typed_nodes import cast_row, row_op, simple
from .typed_tree import INT, Const, Row, Scalar, ScalarType


class MatrixAssignments(Matrices):
    """The typing of assignments of matrices."""

    folded: set[str]  # accumulators and buffers that the body folds into

    @abstractmethod
    def writable(self, name: str, line: int) -> None:
        """Refuse names that a body must not rebind."""

    @abstractmethod
    def writable_array(self, array: str, line: int) -> None:
        """Refuse to write to a captured array, by its own name or through a view."""

    @abstractmethod
    def alone(self, name: str, line: int) -> None:
        """Refuse a new row for a name while another name is a view of its old row."""

    @abstractmethod
    def item_place(self, x: loop_tree.Item) -> t.Place:
        """A subscripted target of a plain assignment."""

    @abstractmethod
    def fit(self, line: int, place: t.Place, value: Scalar | Row) -> Scalar | Row:
        """The value, converted to the type of the place."""

    def of_matrices(self, x: loop_tree.Assign) -> bool:
        """Whether an assignment is of a matrix."""
        axes = [self.dims(value) for value in x.values if not isinstance(value, loop_tree.LocalArray)]
        axes += [self.dims(target) for target in x.targets if isinstance(target, loop_tree.Item)]
        return max(axes, default=0) >= 2

    def assign_matrix(self, line: int, target: loop_tree.Target, given: loop_tree.Expr) -> None:
        """name = matrix, or part of an array = matrix, row or number."""
        if isinstance(target, loop_tree.Item):
            if isinstance(self.infos.get(target.base), AccumulatorInfo | BufferInfo):
                self.item_place(target)  # refuses it
            if self.dims(target) < 2:
                self.no(line, "a matrix is assigned to a row or a number", "subscript it, or leave out a subscript")
            self.store_matrix(line, self.part_of_matrix(target), self.operand(line, given))
            return
        assert isinstance(target, loop_tree.Name)
        name = target.name
        self.writable(name, line)
        if name in self.found or name in self.registers:
            self.no(line, f"{name} is a matrix here and something else in another place", "use two names")
        value = self.matrix(given)
        viewed = isinstance(given, loop_tree.Name | loop_tree.Item) and name not in self.locals
        if viewed and isinstance(value, MatrixView):
            kept = [self.keep(k, line) if not self.steady(k) else k for k in (*value.lead, value.start, value.first)]
            *lead, start, first = kept
            self.views[name] = replace(value, lead=tuple(lead), start=start, first=first)
            self.defined.add(name)
            return
        self.alone(name, line)
        whose, before = self.copied_from(given, value), self.copied.pop(name, None)
        if any(True for _ in reads(value.row(Const(INT, 0)), name)):
            value = self.complete(line, value)
        array = self.allocated(name, value.dtype, (value.rows, value.columns), line)
        self.views.pop(name, None)
        self.defined.add(name)
        self.store_matrix(line, self.view_of(array, (), line), value)
        if before is not None:
            self.copied[name] = before
        if whose:
            self.note_copy(name, whose, chosen=isinstance(given, loop_tree.Unary) and given.op == "own")

    @abstractmethod
    def root(self, name: str) -> str:
        """The array that a view is part of."""

    def copied_from(self, given: loop_tree.Expr, value: Matrix) -> str:
        """The array that a transposed matrix, or one that a function chose, is copied from; '' for other matrices."""
        turned = given
        while isinstance(turned, loop_tree.Unary) and turned.op == "T":
            turned = turned.operand
        if turned is not given and isinstance(turned, loop_tree.Name | loop_tree.Item):
            return self.root(turned.name if isinstance(turned, loop_tree.Name) else turned.base)
        if isinstance(given, loop_tree.Unary) and given.op == "own" and isinstance(value, MatrixView):
            return value.array
        return ""

    def note_copy(self, name: str, whose: str, *, chosen: bool) -> None:
        """Note that a name stands for a copy where NumPy has a view."""
        inlined = "." in whose and (whose in self.locals or whose in self.registers)
        if whose == name or (inlined and ".result" in name):  # nobody else sees what it was copied from
            return
        before = [self.copied[one] for one in (name, whose) if one in self.copied]
        self.copied[name] = NamedCopy(chosen, frozenset({whose}).union(*(copy.sources for copy in before)))

    def column_target(self, x: loop_tree.Target | loop_tree.Expr) -> TypeGuard[loop_tree.Item]:
        """Whether a target is a column of an array."""
        return isinstance(x, loop_tree.Item) and self.dims(x) == 1 and self.is_column(x)

    def store_column(self, line: int, x: loop_tree.Item, given: loop_tree.Expr) -> None:
        """W[:, j] = row or number, element by element."""
        value = self.operand(line, given)
        if not isinstance(value, t.RowLoad) and self.dims(given) > 1:
            self.no(line, "a matrix is assigned to a column", "subscript it, or leave out a subscript")
        at, start, count = self.ends_of_column(x)
        if isinstance(value, t.RowLoad):
            self.same(line, count, value.length)
            if value.array == x.base:
                value = self.copied_row(line, value)
        with self.rows(line, count) as k, self.binding(line, simple("+", start, k)) as place:
            element = self.item_place(replace(x, index=(*x.index[:at], place, *x.index[at + 1 :])))
            part = self.element(value, k) if isinstance(value, t.RowLoad) else value
            assert not isinstance(part, Matrix)
            self.put(line, element, self.fit(line, element, part))

    def copied_row(self, line: int, row: t.RowLoad) -> t.RowLoad:
        """A copy of a row in a generated array."""
        copy = self.local(row.dtype, (row.length,), line)
        self.put(line, self.place_of(copy, (), line), row)
        return self.array_row(line, self.whole(copy, line))

    def operand(self, line: int, x: loop_tree.Expr) -> Scalar | t.RowLoad | Matrix:
        """What is stored into a matrix: a matrix, or a row or a number for every row."""
        if self.dims(x) == 2:
            return self.matrix(x)
        found = self.expr(x)
        return self.array_row(line, found) if t.is_row(found) else self.keep(found, line)

    def store_matrix(self, line: int, view: MatrixView, value: Scalar | t.RowLoad | Matrix) -> None:
        """Store row by row; where a row that is stored may be read later, the value is completed first."""
        self.writable_array(view.array, line)
        if isinstance(value, Matrix):
            self.same(line, view.rows, value.rows)
            self.same(line, view.columns, value.columns)
            mark = t.Var(INT, "at.row")
            place = view.row(mark)
            assert isinstance(place, t.RowLoad)
            for load in reads(value.row(mark), view.array):
                if not isinstance(load, t.RowLoad) or (load.lead, load.start) != (place.lead, place.start):
                    value = self.complete(line, value)
                    break
        elif isinstance(value, t.RowLoad):
            self.same(line, view.columns, value.length)
            if value.array == view.array:
                value = self.copied_row(line, value)
        with self.rows(line, view.rows) as k:
            row = view.row(k)
            assert isinstance(row, t.RowLoad)
            target = t.RowPlace(row.dtype, row.length, line, row.array, row.lead, row.start, row.checked)
            part = value.row(k) if isinstance(value, Matrix) else value
            if t.is_row(part):
                part = sized(part, target.length)
            self.put(line, target, self.fit(line, target, part))

    def update_column(self, x: loop_tree.AugAssign) -> None:
        """W[:, j] op= row or number."""
        assert isinstance(x.target, loop_tree.Item)
        made = loop_tree.Binary(x.line, x.op, x.target, x.value)
        old, new = kind_of(self.expr(x.target)).dtype, kind_of(self.expr(made)).dtype
        if not np.can_cast(new, old, "same_kind"):
            self.no(x.line, f"{x.op}= makes {NAMES[new]} of a column of {NAMES[old]}, which keeps its type",
                    f"use an array of {NAMES[new]}")  # fmt: skip
        self.store_column(x.line, x.target, made)

    def update_matrix(self, x: loop_tree.AugAssign) -> None:
        """matrix op= matrix, row or number."""
        if x.op == "@":
            self.no(x.line, "@= is not supported", "write A[...] = A @ B")
        view = self.matrix(x.target)
        assert isinstance(view, MatrixView)
        value = self.matrix(loop_tree.Binary(x.line, x.op, x.target, x.value))
        if not np.can_cast(value.dtype, view.dtype, "same_kind"):
            self.no(x.line, f"{x.op}= makes {NAMES[value.dtype]} of a matrix of {NAMES[view.dtype]}, which keeps its "
                    "type", f"use an array of {NAMES[value.dtype]}")  # fmt: skip
        self.store_matrix(x.line, view, value)

    def fold_matrix(
        self, x: loop_tree.AugAssign, info: AccumulatorInfo | BufferInfo, index: tuple[Scalar, ...]
    ) -> None:
        """acc += matrix, row by row."""
        if len(info.shape) - len(index) != 2:
            self.no(x.line, f"a matrix is added to {info.name}, which has {len(info.shape)} axes and {len(index)} "
                    "subscripts", "leave two axes for it")  # fmt: skip
        value = self.matrix(x.value)
        rows, columns = (Const(INT, size) for size in info.shape[-2:])
        self.same(x.line, rows, value.rows)
        self.same(x.line, columns, value.columns)
        index = tuple(self.keep(k, x.line) for k in index)
        kind = ScalarType(info.dtype)
        if floating(value.dtype) and not floating(kind):
            self.no(x.line, f"floats are added to {info.name}, which holds whole numbers ({info.dtype})",
                    "start it as an array of floats")  # fmt: skip
        checked = tuple(not self.scope.inside(k, info.shape[axis]) for axis, k in enumerate(index))
        self.folded.add(info.name)
        make: Callable[..., t.Step] = t.Fold if isinstance(info, AccumulatorInfo) else t.BufferAdd
        with self.rows(x.line, rows) as k:
            row = cast_row(info.dtype, sized(value.row(k), columns))
            row = row_op("neg", row) if x.op == "-" else row
            self.before.append(make(x.line, info.name, (*index, k), (*checked, False), row))
