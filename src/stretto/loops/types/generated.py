"""Type inference: statements, variables and local arrays that an expression needs and the body does not have.

They are appended to `before`, the statements that run before the one that is being typed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from stretto.loops.front import loop_tree
from stretto.loops.types.body import BodyArray

from . import typed_tree as t
from .expression_types import Expressions
from .matrix_values import MatrixView
from .typed_nodes import cast, simple
from .typed_tree import INT, Const, Row, Scalar, ScalarType

_ZERO, _ONE = Const(INT, 0), Const(INT, 1)


class Generated(Expressions):
    """Generated statements."""

    counts: Mapping[str, int]  # assignments of each local name

    @abstractmethod
    def view_of(self, array: BodyArray, lead: tuple[Scalar, ...], line: int) -> MatrixView:
        """array[lead...], which leaves two axes."""

    def put(self, line: int, place: t.Place, value: Scalar | Row) -> None:
        """Append a store, with the value's length that of the place."""
        self.before.append(t.Store(line, (place,), (value,)))

    def variable(self, line: int, kind: ScalarType, value: Scalar) -> t.Var:
        """A generated variable."""
        name = self.temporary()
        self.put(line, t.VarPlace(kind, name), cast(kind, value))
        return t.Var(kind, name)

    @contextmanager
    def rows(self, line: int, count: Scalar) -> Iterator[t.Var]:
        """Statements inside are repeated for every k below `count`."""
        outer, self.before = self.before, []
        name, found = self.temporary(), self.scope.of(count)
        self.scope.ranges[name] = (0, max(0, found[1] - 1)) if found else None
        yield t.Var(INT, name)
        outer.append(t.RangeLoop(line, name, _ZERO, count, _ONE, tuple(self.before)))
        self.before = outer

    @contextmanager
    def binding(self, line: int, value: Any) -> Iterator[loop_tree.Name]:
        """A name for a typed value, to be used in an expression."""
        outer, name = self.placed, self.temporary()
        self.placed = {**outer, name: value}
        yield loop_tree.Name(line, name)
        self.placed = outer

    def local(self, dtype: str, sizes: tuple[Scalar, ...], line: int) -> BodyArray:
        """A generated local array; where a size changes from iteration to iteration it is allocated here."""
        return self.allocated(self.temporary(), dtype, sizes, line)

    def place_of(self, array: BodyArray, lead: tuple[Scalar, ...], line: int) -> t.RowPlace:
        """The place array[lead...] of a local array, for rows inside its size."""
        length = array.sizes[-1]
        return t.RowPlace(array.dtype, length, line, array.name, lead, _ZERO, (False,) * (len(lead) + 1))

    def whole(self, array: BodyArray, line: int) -> t.RowCast:
        """The value of a generated row: no view, because the array is used again when the statement is."""
        length = array.sizes[0]
        row = t.RowLoad(array.dtype, length, line, array.name, (), _ZERO, (False,))
        return t.RowCast(array.dtype, length, row)

    def array_row(self, line: int, value: Scalar | Row) -> t.RowLoad:
        """A row in an array, so that its elements can be read one by one."""
        assert t.is_row(value)
        inner = value.x if isinstance(value, t.RowCast) and value.x.dtype == value.dtype else value
        if isinstance(inner, t.RowLoad):
            return replace(
                inner, lead=tuple(self.keep(k, line) for k in inner.lead), start=self.keep(inner.start, line)
            )
        array = self.local(value.dtype, (value.length,), line)
        self.put(line, self.place_of(array, (), line), value)
        row = self.whole(array, line).x
        assert isinstance(row, t.RowLoad)
        return row

    def element(self, row: t.RowLoad, k: Scalar) -> t.Element:
        """Element k of a row, for k below its length."""
        return t.Element(
            ScalarType(row.dtype), row.line, row.array, (*row.lead, simple("+", row.start, k)), row.checked
        )

    def same(self, line: int, left: Scalar, right: Scalar) -> None:
        """Refuse lengths that differ."""
        if self.equal(left, right):
            return
        a, b = self.scope.of(left), self.scope.of(right)
        said = [str(found[0]) if found and found[0] == found[1] else "unknown length" for found in (a, b)]
        self.no(line, f"{said[0]} rows or columns meet {said[1]}", "take parts of one size")

    # --- local arrays ---

    def elements(self, x: loop_tree.LocalArray) -> tuple[str, tuple[Scalar, ...]]:
        """(element type, elements in variables) of a fresh array: of np.array([…]) what holds them all."""
        values = tuple(self.keep(self.scalar(one), x.line) for one in x.elements)
        return x.dtype or np.result_type(*(value.type.dtype for value in values)).str[1:], values

    def fill(self, array: BodyArray, x: loop_tree.LocalArray, elements: tuple[Scalar, ...]) -> None:
        """Set the elements that a fresh array has."""
        shape = tuple(int(one.value) for one in x.shape if isinstance(one, loop_tree.Number)) if elements else (0,)
        for value, at in zip(elements, np.ndindex(shape), strict=True):
            self.stored(x.line, ScalarType(array.dtype), value)
            place = tuple(Const(INT, k) for k in at)
            self.put(x.line, t.ElementPlace(array.dtype, x.line, array.name, place, (False,) * len(at)),
                     cast(ScalarType(array.dtype), value))  # fmt: skip
        if x.fill == "zeros":
            self.before.append(t.ZeroFill(x.line, array.name))
        elif x.fill == "eye":
            self.before.append(t.ZeroFill(x.line, array.name))
            if not self.equal(*array.sizes):
                self.no(x.line, "np.eye of two sizes", "write np.zeros((n, m)) and set its diagonal")
            with self.rows(x.line, array.sizes[0]) as k:
                one = cast(ScalarType(array.dtype), Const(INT, 1))
                self.put(x.line, t.ElementPlace(array.dtype, x.line, array.name, (k, k), (False, False)), one)
        elif x.fill == "full":
            assert x.value is not None
            value = self.keep(self.scalar(x.value), x.line)
            self.stored(x.line, ScalarType(array.dtype), value)
            splat = t.Splat(array.dtype, array.sizes[-1], cast(ScalarType(array.dtype), value))
            if len(array.sizes) == 1:
                self.put(x.line, self.place_of(array, (), x.line), splat)
                return
            if len(array.sizes) > 2:
                self.no(x.line, "np.full with more than two axes", "write np.empty, and a for loop")
            with self.rows(x.line, array.sizes[0]) as k:
                self.put(x.line, self.place_of(array, (k,), x.line), splat)

    def made(self, x: loop_tree.LocalArray) -> Row | MatrixView:
        """A fresh array inside an expression."""
        dtype, elements = self.elements(x)
        array = self.local(dtype, tuple(self.integer(size) for size in x.shape), x.line)
        self.fill(array, x, elements)
        return self.whole(array, x.line).x if len(array.sizes) == 1 else self.view_of(array, (), x.line)

    def allocated(self, name: str, dtype: str, sizes: tuple[Scalar, ...], line: int) -> BodyArray:
        """A local array of these sizes: made once if they are known before the loop starts, else made here."""
        found = [self.scope.of(size) for size in sizes]
        before = self.locals.get(name)
        if all(interval and interval[0] == interval[1] for interval in found) and not (before and before.allocated):
            fixed = tuple(
                Const(INT, interval[0]) if interval and self.inside_body(size) else size
                for size, interval in zip(sizes, found, strict=True)
            )
            array = BodyArray(name, dtype, (None,) * len(sizes), "local", fixed)
            if before is None or before == array:
                self.locals[name] = array
                return array
        if before is not None and (before.dtype != dtype or len(before.sizes) != len(sizes)):
            self.no(line, f"{name} is made twice with different types or axes", "use two names")
        if before is not None and not before.allocated:
            self.no(line, f"{name} is made twice with different sizes or types", "use two names")
        once = self.counts.get(name, 1) == 1
        held: list[Scalar] = []
        for axis, size in enumerate(sizes):
            interval = found[axis]
            kept: Scalar
            if interval and interval[0] == interval[1]:
                kept = Const(INT, interval[0])
            elif once:
                kept = size if self.steady(size) else self.keep(size, line)
            else:
                kept = t.Var(INT, f"{name}.size{axis}")
                self.put(line, t.VarPlace(INT, f"{name}.size{axis}"), size)
            held.append(kept)
        array = BodyArray(name, dtype, (None,) * len(sizes), "local", tuple(held), allocated=True)
        if before is not None and before != array:
            self.no(line, f"{name} is made twice with different sizes or types", "use two names")
        self.locals[name] = array
        self.before.append(t.Allocate(line, name, array.sizes))
        return array

    def inside_body(self, x: Scalar) -> bool:
        """Whether a size is computed in the body, so that it has no value before the first iteration."""
        match x:
            case t.Var(name=name):
                return name not in self.numbers
            case t.Op(args=args):
                return any(self.inside_body(arg) for arg in args)
            case t.Cast(x=inner):
                return self.inside_body(inner)
        return not isinstance(x, Const | t.AxisSize)

    def steady(self, x: Scalar) -> bool:
        match x:
            case Const() | t.AxisSize() | t.RaggedSize():
                return True
            case t.Var(name=name):
                return self.counts.get(name, 0) <= 1
            case t.Op(args=args):
                return all(self.steady(arg) for arg in args)
            case t.Cast(x=inner):
                return self.steady(inner)
        return False
