"""Evaluate expressions of the typed tree: numbers, rows and subscripts.

Every node gives a number of exactly its declared kind, or a row of its declared dtype and length; that is asserted, so
that a tree typed wrongly stops here. A subscript that was proven to be in range and is not is an AssertionError too,
where compiled code would touch memory that is not its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import BodyArray
from stretto.testing import arithmetic
from stretto.testing.arithmetic import Number, convert, has_kind, strong

Index = tuple[int, ...]


class Subscripted(Protocol):
    """A node with the subscripts of an element: an Element, its place, a Fold or a Buffered."""

    @property
    def index(self) -> tuple[t.Scalar, ...]: ...
    @property
    def checked(self) -> tuple[bool, ...]: ...
    @property
    def line(self) -> int: ...


class Environment:
    """The values that an iteration sees: arrays by name; and for one iteration variables, local rows, ragged fields.

    Local arrays are allocated on first use and kept. Before each iteration they are filled with NaN or a conspicuous
    integer, so that an element read before it is written is noticed.
    """

    def __init__(self, declared: tuple[BodyArray, ...], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.declared = {array.name: array for array in declared}
        self.arrays = dict(arrays)
        self.locals: dict[str, NDArray[Any]] = {}
        self.begin({}, {})
        for array in declared:
            if array.role != "local":
                given = self.arrays[array.name]
                assert given.dtype == array.dtype, (array, given.dtype)
                assert given.ndim == len(array.shape), (array, given.shape)

    def begin(self, values: dict[str, Number], ragged: Mapping[str, tuple[NDArray[Any], ...]]) -> None:
        """Start an iteration with these variables and ragged fields."""
        self.values = values
        self.rows: dict[str, NDArray[Any]] = {}
        self.ragged = ragged
        for array in self.locals.values():
            _spoil(array)

    # --- numbers ----------------------------------------------------------------------------------------------------

    def value(self, node: t.Scalar | t.Row) -> Any:
        """A number or a row."""
        return self.row(node) if t.is_row(node) else self.scalar(node)

    def whole(self, node: t.Scalar) -> int:
        """An integer of any kind, as Python's."""
        value = self.scalar(node)
        assert strong(value).dtype.kind in "iu", (node, value)
        return int(value)

    def scalar(self, node: t.Scalar) -> Any:
        """A number of the node's kind: a plain Python number if that is weak, otherwise a NumPy scalar."""
        value = self._evaluate(node)
        assert has_kind(value, node.type), f"{node} gave {value!r}"
        return value

    def _evaluate(self, node: t.Scalar) -> Any:
        match node:
            case t.Const():
                return convert(node.value, node.type)
            case t.Var():
                return self.values[node.name]
            case t.AxisSize():
                return convert(self.array(node.array).shape[node.axis], node.type)
            case t.RaggedSize():
                return convert(len(self.ragged[node.ragged][0]), node.type)
            case t.Element():
                return self.array(node.array)[self.index(node.array, node)]
            case t.Cast():
                return convert(self.scalar(node.x), node.type)
            case t.Op():
                args = [self.scalar(arg) for arg in node.args]
                assert all(has_kind(arg, node.type) for arg in args), (node, args)
                return _kept(arithmetic.apply(node.op, *map(strong, args)), node.type)
            case t.Test():
                x, y = self.scalar(node.x), self.scalar(node.y)
                assert type(x) is type(y), (node, x, y)
                return _kept(arithmetic.apply(node.op, strong(x), strong(y)), node.type)
            case t.Logic():
                return convert(self._logic(node), node.type)
            case t.Select():
                return self.scalar(node.yes if self.scalar(node.test) else node.no)
            case t.Dot():
                return _kept(arithmetic.dot(self.row(node.x), self.row(node.y)), node.type)
            case t.Sum():
                return _kept(arithmetic.total(self.row(node.x)), node.type)
            case t.Extreme():
                return _kept(arithmetic.extreme(node.op, self.row(node.x)), node.type)
            case t.UserCall():
                # A plain float or bool is already what the compiled function takes; an int must not depend on its size.
                args = [np.int64(arg) if type(arg) is int else arg for arg in map(self.scalar, node.args)]
                return convert(node.target(*args), node.type)
            case t.RandomNumber():
                from stretto import keyed

                return convert(getattr(keyed, node.which)(*map(self.whole, node.args)), node.type)
            case _:
                assert_never(node)

    def _logic(self, node: t.Logic) -> bool:
        match node.op:
            case "and":
                return all(self.scalar(arg) for arg in node.args)
            case "or":
                return any(self.scalar(arg) for arg in node.args)
            case _:
                assert node.op == "not", node
                return not self.scalar(node.args[0])

    # --- rows -------------------------------------------------------------------------------------------------------

    def row(self, node: t.Row) -> NDArray[Any]:
        """A row of the node's dtype and length; nothing ever writes into it."""
        row = self._elements(node)
        assert row.dtype == node.dtype, f"{node} gave {row.dtype}"
        assert row.shape == (self.whole(node.length),), f"{node} gave {row.shape}"
        return row

    def _elements(self, node: t.Row) -> NDArray[Any]:
        match node:
            case t.RowLoad():
                return self.array(node.array)[self.span(node)].copy()
            case t.RowLocal():
                return self.rows[node.name]
            case t.Splat():
                x = strong(self.scalar(node.x))
                assert x.dtype == node.dtype, (node, x)
                return np.full(self.whole(node.length), x)
            case t.RowOp():
                args = [self.row(arg) for arg in node.args]
                assert len({len(arg) for arg in args}) == 1, node
                pairwise = {"max": arithmetic.larger, "min": arithmetic.smaller}.get(node.op)
                return pairwise(*args) if pairwise else arithmetic.apply(node.op, *args)  # type: ignore[no-any-return]
            case t.RowFma():
                return arithmetic.fma32(*(self.row(arg) for arg in (node.x, node.y, node.z)))  # type: ignore[no-any-return]
            case t.RowCast():
                return arithmetic.cast(self.row(node.x), node.dtype)
            case t.RowSelect():
                mask, yes, no = (self.row(arg) for arg in (node.mask, node.yes, node.no))
                assert mask.dtype == bool, node
                assert yes.dtype == no.dtype, node
                return np.where(mask, yes, no)
            case _:
                assert_never(node)

    # --- arrays and subscripts --------------------------------------------------------------------------------------

    def array(self, name: str) -> NDArray[Any]:
        """The array of that name; a local one is made now if it was not needed before."""
        if name in self.arrays:
            return self.arrays[name]
        if name not in self.locals:
            declared = self.declared[name]
            made = np.empty([self.whole(size) for size in declared.sizes], declared.dtype)
            _spoil(made)
            self.locals[name] = made
        return self.locals[name]

    def allocate(self, step: t.Allocate) -> None:
        """Make a local array with the sizes of this moment."""
        sizes = [self.whole(size) for size in step.sizes]
        for size in sizes:
            if not 0 <= size < t.MOST_ELEMENTS:
                raise RunError(f"line {step.line}: a local array of {size} elements; its size is from 0 to 2**31")
        made = np.empty(sizes, self.declared[step.array].dtype)
        _spoil(made)
        self.locals[step.array] = made

    def index(self, array: str, node: Subscripted) -> Index:
        """The subscripts of an element, or of a whole row where there is one less than axes."""
        index = tuple(self.whole(k) for k in node.index)
        for axis, (k, checked) in enumerate(zip(index, node.checked, strict=True)):
            self._within(array, axis, k, k + 1, checked, node.line)
        return index

    def span(self, node: t.RowLoad | t.RowPlace) -> tuple[int | slice, ...]:
        """The subscripts of array[lead..., start : start + length]."""
        lead = tuple(self.whole(k) for k in node.lead)
        start, length = self.whole(node.start), self.whole(node.length)
        for axis, k in enumerate(lead):
            self._within(node.array, axis, k, k + 1, node.checked[axis], node.line)
        self._within(node.array, len(lead), start, start + length, node.checked[-1], node.line)
        return (*lead, slice(start, start + length))

    def _within(self, array: str, axis: int, start: int, stop: int, checked: bool, line: int) -> None:
        extent = self.array(array).shape[axis]
        if 0 <= start <= stop <= extent:
            return
        asked = str(start) if stop == start + 1 else f"{start}:{stop}"
        problem = f"line {line}: {array} was asked for {asked} along axis {axis}, which has {extent} elements"
        assert checked, f"{problem}; this was proven not to happen"
        raise RunError(f"{problem}; subscripts run from 0 and do not wrap around: test them, or make the array larger")


def _kept(value: np.generic, kind: t.ScalarType) -> Number:
    """A result as `kind`, which it must have already but for being weak."""
    assert value.dtype == kind.dtype, (value, kind)
    return convert(value, kind)


def _spoil(array: NDArray[Any]) -> None:
    """Fill an array with values that no program computes: NaN, or bytes that make a large odd number."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    elif array.dtype.kind == "b":
        array[...] = True
    else:
        array.view(np.uint8)[...] = 0x5B
