"""Resolution of names and subscripts in a body to arrays, rows and elements.

Every subscript becomes one integer for each axis, proven to be in range or marked for a check at run time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from stretto.loops.analyse.space import Space
from stretto.loops.front import loop_tree
from stretto.loops.front.bind import (
    AccumulatorInfo,
    ArrayInfo,
    BufferInfo,
    DataInfo,
    Info,
    NumberInfo,
    StructInfo,
    kind_of,
)
from stretto.loops.front.refusals import refuse
from stretto.loops.types.body import BodyArray

from . import promote
from . import typed_tree as t
from .named_copies import NamedCopy
from .promote import whole
from .scope import Scope
from .typed_nodes import cast, simple
from .typed_tree import BOOL, INT, Const, Row, Scalar, ScalarType


class NameResolver(ABC):
    """The state of one pass over a body: its names, and the elements of its subscripts."""

    def __init__(
        self, function: loop_tree.Function, infos: Mapping[str, Info], space: Space, known: Mapping[str, Any]
    ) -> None:
        self.function, self.infos, self.space, self.known = function, infos, space, known
        self.kinds: dict[str, ScalarType] = {}  # of local scalars, from the previous pass
        self.found: dict[str, ScalarType] = {}  # of local scalars, in this pass
        self.locals: dict[str, BodyArray] = {}  # local arrays
        self.registers: dict[str, tuple[str, int]] = {}  # local rows: dtype and length
        self.views: dict[str, Any] = {}  # names for parts of arrays: rows, and a `MatrixView`
        self.placed: dict[str, Any] = {}  # names that stand for a typed value: a number, a row or a matrix
        self.ran: dict[int, loop_tree.Inlined] = {}  # inlined calls whose statements were typed, by identity
        self.moved: set[str] = set()  # views that may now be of another part of an array
        self.defined: set[str] = set()
        self.numbers: dict[str, ScalarType] = {}  # arguments that are used
        self.arrays: dict[str, BodyArray] = {}  # arguments that are used
        self.before: list[t.Step] = []  # receives what an expression needs to run before its statement
        self.copied: dict[str, NamedCopy] = {}  # rows and matrices that are copies and would be views in NumPy
        self.quiet = ""  # the inlined function inside an expression, which must not change what the expression reads
        self.temporaries = 0  # number of generated variables and arrays so far
        self.fields = dict(space.field_kinds)
        self.ragged = {item.name: item for item in space.ragged_kinds}
        self.indices = {dim.name for dim in space.dims}
        self.scope = Scope(self.size)
        for dim in space.dims:
            ends = (dim.start, dim.start + (dim.extent - 1) * dim.step)
            self.scope.ranges[dim.name] = (min(ends), max(ends)) if dim.extent else (0, -1)
        for name, column in space.fields:
            if whole(promote.short(column.values.dtype)) and len(column.values):
                self.scope.ranges[name] = int(column.values.min()), int(column.values.max())

    # --- helpers ---

    def temporary(self) -> str:
        """A name for a variable or array that the body does not have."""
        self.temporaries += 1
        return f"at.{self.temporaries}"

    def unheard(self, name: str, line: int) -> None:
        """Refuse that a function inside an expression changes what is not its own: the order would matter."""
        if copy := self.copied.get(name):
            self.no(line, f"{copy.what} is changed, and it is a copy here", copy.remedy)
        if self.quiet and not ("." in name and (name in self.locals or name in self.registers)):
            self.no(line, f"{self.quiet} changes {name} in the middle of an expression",
                    f"call it on a line of its own: t = {self.quiet}(…)")  # fmt: skip

    def keep(self, x: Scalar, line: int) -> Scalar:
        """A value as a variable or constant, computed once before the statement."""
        if isinstance(x, Const | t.Var):
            return x
        name = self.temporary()
        if whole(x.type):
            self.scope.ranges[name] = self.scope.of(x)
        self.before.append(t.Store(line, (t.VarPlace(x.type, name),), (x,)))
        return t.Var(x.type, name)

    def no(self, line: int, problem: str, remedy: str = "") -> NoReturn:
        raise refuse(self.function, line, problem, remedy)

    def size(self, array: str, axis: int) -> int | None:
        """Elements along an axis; None if unknown."""
        if array in self.locals:
            found = self.scope.of(self.locals[array].sizes[axis])
            return found[0] if found and found[0] == found[1] else None
        info = self.infos.get(array)
        return info.shape[axis] if isinstance(info, ArrayInfo | BufferInfo | AccumulatorInfo) else None

    def array(self, name: str, line: int, field: str = "") -> BodyArray | None:
        """The array of a name (or of a struct's field), noted as used; None if the name is not an array."""
        info = self.infos.get(name)
        if isinstance(info, StructInfo):
            if not field:
                self.no(line, f"{name} is an array of structs", f'name a field of one: {name}[i]["{info.fields[0]}"]')
            if field not in info.fields:
                self.no(line, f"{name} has no field {field!r}", f"its fields are {', '.join(info.fields)}")
            return self.array(f"{name}.{field}", line)
        if name in self.locals:
            return self.locals[name]
        if not isinstance(info, ArrayInfo):
            return None
        if name not in self.arrays:
            shape = tuple(None if axis == 0 else size for axis, size in enumerate(info.shape))
            self.arrays[name] = BodyArray(name, info.dtype, shape, info.role)
        return self.arrays[name]

    def equal(self, left: Scalar, right: Scalar) -> bool:
        """Whether two lengths are known to be the same."""
        if left == right:
            return True
        a, b = self.scope.of(left), self.scope.of(right)
        return a is not None and b is not None and a[0] == a[1] == b[0] == b[1]

    def extent(self, name: str, axis: int, line: int) -> Scalar:
        """array.shape[axis]: a constant except for the first axis."""
        info = self.infos.get(name)
        if isinstance(info, ArrayInfo) and info.role == "captured" and axis < len(info.shape):
            return Const(INT, info.shape[axis])
        array = self.array(name, line)
        if array is None:
            info = self.infos.get(name)
            if isinstance(info, AccumulatorInfo | BufferInfo):
                return Const(INT, info.shape[axis])
            if name in self.ragged and axis == 0:
                return t.RaggedSize(INT, name)
            if name in self.views:
                return self.views[name].length  # type: ignore[no-any-return]
            if name in self.registers:
                return Const(INT, self.registers[name][1])
            self.no(line, f"the size of {name} is not known here", "take the shape of an array or the length of a row")
        if axis >= len(array.shape):
            self.no(line, f"{name} has {len(array.shape)} axes; there is no axis {axis}")
        if array.role == "local":
            return array.sizes[axis]
        size = array.shape[axis]
        return Const(INT, size) if size is not None else t.AxisSize(INT, name, axis)

    # --- expressions ---

    # --- kinds of expressions ---

    @abstractmethod
    def expr(self, x: loop_tree.Expr) -> Scalar | Row:
        """The typed form of an expression."""

    def scalar(self, x: loop_tree.Expr) -> Scalar:
        """The typed form of a scalar expression; refuse rows."""
        found = self.expr(x)
        if t.is_row(found):
            self.no(x.line, "a whole row stands where one number is needed", "subscript it, or use @, sum, min or max")
        return found

    def aside(self, make: Callable[[], Scalar]) -> tuple[tuple[t.Step, ...], Scalar]:
        """The steps that an expression needs before it, without writing them, and its typed form."""
        outer, self.before = self.before, []
        defined, views = set(self.defined), dict(self.views)
        made = make()
        steps, self.before = tuple(self.before), outer
        if steps:  # they may not run
            self.defined, self.views = defined, views
        return steps, made

    def chained(self, line: int, kind: ScalarType, op: str, parts: list[tuple[tuple[t.Step, ...], Scalar]]) -> Scalar:
        """`and` or `or` of values with the steps that each needs: they run only if the value is reached."""
        self.before += parts[0][0]
        if not any(steps for steps, _ in parts[1:]):
            return t.Logic(kind, op, tuple(value for _, value in parts))
        name = self.temporary()
        place, held = t.VarPlace(kind, name), t.Var(kind, name)
        more = t.Logic(BOOL, "not", (held,)) if op == "or" else held
        self.before.append(t.Store(line, (place,), (cast(kind, parts[0][1]),)))
        tests = self.before
        for steps, value in parts[1:]:
            inner = [*steps, t.Store(line, (place,), (cast(kind, value),))]
            tests.append(t.Branch(line, more, tuple(inner), ()))
        return held

    def truth(self, x: loop_tree.Expr) -> Scalar:
        """A condition."""
        if isinstance(x, loop_tree.BoolOp):
            return self.chained(x.line, BOOL, x.op, [self.aside(partial(self.truth, value)) for value in x.values])
        found = self.scalar(x)
        if found.type.dtype == "b1":
            return found
        return t.Test(BOOL, "!=", found, cast(found.type, Const(INT, 0)))

    def integer(self, x: loop_tree.Expr) -> Scalar:
        """A subscript or bound: a 64-bit integer."""
        found = self.scalar(x)
        if not whole(found.type) and found.type.dtype != "b1":
            self.no(x.line, "a float stands where a whole number is needed", "write int(...) around it")
        return cast(INT, found)

    # --- names and subscripts ---

    def name(self, x: loop_tree.Name) -> Scalar | Row:
        name = x.name
        if name in self.indices:
            return t.Var(INT, name)
        if name in self.fields:
            return t.Var(self.fields[name], name)
        if name in self.views:
            return self.views[name]  # type: ignore[no-any-return]
        if name in self.registers:
            self.need(name, x.line)
            dtype, length = self.registers[name]
            return t.RowLocal(dtype, Const(INT, length), name)
        if name in self.found or name in self.kinds:
            self.need(name, x.line)
            return t.Var(self.kinds.get(name) or self.found[name], name)
        if name in self.known:
            return self.number(name, self.known[name], kind_of(self.known[name]))
        array = self.array(name, x.line)
        if array is not None:
            if len(array.shape) != 1:
                self.no(x.line, f"{name} has {len(array.shape)} axes; a row has one", f"subscript it: {name}[i]")
            if array.role == "local":
                self.need(name, x.line)
            return self.whole_row(array, (), (), x.line)
        info = self.infos.get(name)
        if isinstance(info, NumberInfo):
            return self.number(name, info.value, info.kind)
        if isinstance(info, AccumulatorInfo):
            self.no(
                x.line,
                f"the accumulator {name} is read in the loop, where it has no value yet",
                "fold into it with += and read it after the loop",
            )
        if isinstance(info, BufferInfo):
            other = "pass the array itself as one more argument and read that"
            remedy = other if "." in info.target else f"read the array behind it, {info.target}"
            self.no(x.line, f"the buffer {name} is read in the loop", remedy)
        if isinstance(info, DataInfo):
            self.no(x.line, f"{name} is data and has no value", "read the indices and values that the loop names")
        if name in self.ragged:
            self.no(x.line, f"{name} is a ragged field", f"walk through it: for k, x in {name}")
        if name in self.moved:
            self.no(x.line, f"{name} may stand for one row here or for another, depending on the way taken",
                    "assign it just before it is used, in the same block")  # fmt: skip
        self.no(
            x.line,
            f"{name} is read before it is written in an iteration",
            "give it a value first; to carry a number from one iteration to the next use st.accumulator",
        )

    def need(self, name: str, line: int) -> None:
        """Refuse a local that is undefined on some path."""
        if name not in self.defined:
            if name in self.moved:
                self.no(line, f"{name} may stand for one row here or for another, depending on the way taken",
                        f"give it values of its own wherever it is assigned: {name} = w.copy()")  # fmt: skip
            self.no(line, f"{name} may have no value here", "assign it before the if or the inner loop")

    def number(self, name: str, value: Any, kind: ScalarType) -> Scalar:
        self.numbers[name] = kind
        if whole(kind):
            self.scope.ranges[name] = int(value), int(value)
        return t.Var(kind, name)

    def whole_row(self, array: BodyArray, lead: tuple[Scalar, ...], checked: tuple[bool, ...], line: int) -> Row:
        """array[lead...], every element of the last axis."""
        axis = len(array.shape) - 1
        size = self.size(array.name, axis)
        length = Const(INT, size) if size is not None else array.sizes[axis]
        return t.RowLoad(array.dtype, length, line, array.name, lead, Const(INT, 0), (*checked, False))

    def item(self, x: loop_tree.Item) -> Scalar | Row:
        """A subscripted name that is read."""
        if x.base in self.views or x.base in self.registers:
            row = self.expr(loop_tree.Name(x.line, x.base))
            assert t.is_row(row)
            if not isinstance(row, t.RowLoad):
                self.no(x.line, f"{x.base} cannot be subscripted here", "give it a name of its own: x = np.empty(n)")
            return self.part(x, row)
        array = self.array(x.base, x.line, x.field)
        if array is None:
            self.name(loop_tree.Name(x.line, x.base))  # raises the specific error, if there is one
            self.no(x.line, f"{x.base} is a number and cannot be subscripted")
        if array.role == "local":
            self.need(x.base, x.line)
        index, span = self.subscripts(x, array)
        if span is None and len(index) == len(array.shape):
            checked = tuple(not self.scope.inside(k, self.size(array.name, a)) for a, k in enumerate(index))
            return t.Element(ScalarType(array.dtype), x.line, array.name, index, checked)
        return self.row_at(x, array, index, span)

    def row_at(
        self, x: loop_tree.Item, array: BodyArray, index: tuple[Scalar, ...], span: loop_tree.Span | None
    ) -> t.RowLoad:
        """The row of a subscript: all axes but the last have numbers, the last is whole or a span."""
        if len(index) != len(array.shape) - 1:
            have, need = len(index), len(array.shape) - 1
            self.no(
                x.line,
                f"{x.base} has {len(array.shape)} axes and {have} subscripts, which leaves a matrix",
                f"give {need} or {need + 1} subscripts",
            )
        checked = tuple(not self.scope.inside(k, self.size(array.name, a)) for a, k in enumerate(index))
        row = self.whole_row(array, index, checked, x.line)
        assert isinstance(row, t.RowLoad)
        return row if span is None else self.cut(row, span)

    def cut(self, row: t.RowLoad, span: loop_tree.Span) -> t.RowLoad:
        """row[start:stop]. Negative bounds do not wrap, and a stop beyond the end is an error, not a shorter row."""
        start = Const(INT, 0) if span.start is None else self.integer(span.start)
        stop = row.length if span.stop is None else self.integer(span.stop)
        length = simple("-", stop, start)
        whole_length = self.scope.of(row.length)
        first, last = self.scope.of(start), self.scope.of(stop)
        proven = bool(
            whole_length and first and last and first[0] >= 0 and last[1] <= whole_length[0] and first[1] <= last[0]
        )
        if whole_length and isinstance(length, Const) and not proven:
            said = f"{text_of(start)}:{text_of(stop)}"
            self.no(span.line, f"the slice {said} is not inside a row of {whole_length[0]} elements",
                    "a slice does not wrap around, and does not end beyond the row")  # fmt: skip
        place = simple("+", row.start, start)
        checked = (*row.checked[:-1], row.checked[-1] or not proven)
        return t.RowLoad(row.dtype, length, span.line, row.array, row.lead, place, checked)

    def part(self, x: loop_tree.Item, row: t.RowLoad) -> Scalar | Row:
        """w[k] or w[a:b] of a name for part of an array."""
        if not x.index:
            return row
        if len(x.index) != 1:
            self.no(x.line, f"{x.base} is a row and takes one subscript")
        index = x.index[0]
        if isinstance(index, loop_tree.Span):
            return self.cut(row, index)
        k = self.integer(index)
        axis = len(row.lead)
        found, length = self.scope.of(k), self.scope.of(row.length)
        inside = bool(found and length and found[0] >= 0 and found[1] < length[0] and not row.checked[-1])
        place = simple("+", row.start, k)
        if not inside and not (isinstance(row.start, Const) and row.start.value == 0):
            # In range of the array is not in range of the span: w[k] must not access elements outside the span.
            self.no(
                x.line, f"{x.base}[{'k'}] may lie outside the slice that {x.base} names", "subscript the array itself"
            )
        checked = (*row.checked[:-1], not (inside or self.scope.inside(place, self.size(row.array, axis))))
        return t.Element(ScalarType(row.dtype), x.line, row.array, (*row.lead, place), checked)

    def subscripts(self, x: loop_tree.Item, array: BodyArray) -> tuple[tuple[Scalar, ...], loop_tree.Span | None]:
        """The integers of a subscript, and the span of the last axis, if any."""
        if len(x.index) > len(array.shape):
            self.no(x.line, f"{x.base} has {len(array.shape)} axes and is given {len(x.index)} subscripts")
        index: list[Scalar] = []
        span = None
        for axis, part in enumerate(x.index):
            if isinstance(part, loop_tree.Span):
                if axis != len(array.shape) - 1:
                    whole_axis = part.start is None and part.stop is None
                    what = "a whole column" if whole_axis else "a slice of a leading axis"
                    self.no(
                        x.line, f"{what} is not a row: {x.base}", "keep the array transposed, so that its rows are used"
                    )
                span = part
            else:
                index.append(self.integer(part))
        return tuple(index), span

    # --- operations ---


def text_of(x: Scalar) -> str:
    """A constant as source text."""
    return str(x.value) if isinstance(x, Const) else "…"
