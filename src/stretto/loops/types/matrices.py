"""Type inference of matrices: expressions with two axes become loops over rows, before the statement that uses them.

    y = A[i] @ x                    for at.1 in range(len(A[i])): at.2[at.1] = A[i, at.1] @ x
    A[i] += np.outer(u, v)          for at.1 in range(len(u)): A[i, at.1] += u[at.1] * v

So the typed tree needs no matrices. A product of a matrix and a row is one `Dot` for each row; that of a row and a
matrix, and of two matrices, adds up multiples of rows from the first to the last, starting from zero; so do sums along
axis 0. Elementwise operations are those of rows, row by row. What must be complete before it is used (a product, a
transposed matrix) is stored in a generated local array.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stretto.loops.front import loop_tree
from stretto.loops.front.bind import ArrayInfo
from stretto.loops.types.body import BodyArray

from . import promote
from . import typed_tree as t
from .matrix_values import Matrix, MatrixView, RowWise, sized, turned
from .reductions import ALONG, OF_ALL, Reductions, kind_of
from .typed_nodes import cast, cast_row, row_op, simple
from .typed_tree import INT, Const, Row, Scalar, ScalarType

_ZERO = Const(INT, 0)


class Matrices(Reductions):
    """The typing of expressions with two axes."""

    # --- number of axes ---

    def dims(self, x: Any) -> int:
        """Number of axes: 0 for a number or a name without a value, 1 for a row, 2 for a matrix."""
        match x:
            case loop_tree.Name(name=name):
                return self.axes(name)
            case loop_tree.Item(base=base, index=index, field=field):
                numbers = sum(1 for part in index if not isinstance(part, loop_tree.Span))
                return max(0, self.axes(f"{base}.{field}" if field else base) - numbers)
            case loop_tree.LocalArray(shape=shape):
                return len(shape)
            case loop_tree.Unary(op=op, operand=operand):
                return 0 if op == "not" else self.dims(operand)
            case loop_tree.Binary(op="@", left=left, right=right):
                return max(0, self.dims(left) + self.dims(right) - 2)
            case loop_tree.Binary(left=left, right=right) | loop_tree.Compare(left=left, right=right):
                return max(self.dims(left), self.dims(right))
            case loop_tree.Call(function="outer"):
                return 2
            case loop_tree.Call(function=name, args=args) if name in ALONG:
                return max(0, self.dims(args[0]) - 1)
            case loop_tree.Call(function=name, args=(_,)) if name in OF_ALL:
                return 0
            case loop_tree.Call(function="sum" | "max" | "min", args=(arg,)):
                return max(0, self.dims(arg) - 1)
            case loop_tree.Call(function="user" | "uniform" | "integers" | "normal"):
                return 0
            case loop_tree.Call(args=args):
                return max((self.dims(arg) for arg in args), default=0)
            case loop_tree.Inlined(values=(value, *_)):
                self.run(x)
                return self.dims(value)
        return 0

    def run(self, x: loop_tree.Inlined) -> None:
        """Type the statements of an inlined call, once where it stands."""
        if id(x) not in self.ran:
            self.ran[id(x)] = x
            super().run(x)

    def axes(self, name: str) -> int:
        """Number of axes of a name: 0 for a number."""
        if name in self.placed:
            return 2 if isinstance(self.placed[name], Matrix) else int(t.is_row(self.placed[name]))
        if name in self.views:
            return 2 if isinstance(self.views[name], MatrixView) else 1
        if name in self.registers:
            return 1
        if name in self.locals:
            return len(self.locals[name].sizes)
        info = self.infos.get(name)
        return len(info.shape) if isinstance(info, ArrayInfo) else 0

    # --- expressions that are no matrices ---

    def expr(self, x: loop_tree.Expr) -> Scalar | Row:
        match x:
            case loop_tree.Name(name=name) if name in self.placed and not isinstance(self.placed[name], Matrix):
                return self.placed[name]  # type: ignore[no-any-return]
            case loop_tree.Binary(op="@"):
                return self.product(x)
            case loop_tree.Unary(op="T", operand=operand) if self.dims(operand) < 2:
                return self.expr(operand)
            case loop_tree.Call(function=name, args=(arg, axis)) if name in ALONG:
                return self.along(x, arg, axis)
            case loop_tree.Call(function=name, args=(arg,)) if name in OF_ALL and self.dims(arg) == 2:
                return self.of_all(x, arg)
            case loop_tree.Call(function="sum_all" | "max_all" | "min_all" as name, args=(arg,)):
                return self.expr(replace(x, function=name.removesuffix("_all")))
            case loop_tree.Call(function="sum", args=(arg,)) if self.dims(arg) == 2:  # Python's adds up the rows
                return self.along(loop_tree.Call(x.line, "sum_axis", x.args), arg, loop_tree.Number(x.line, 0))
            case loop_tree.Call(function="max" | "min" as name, args=(arg,)) if self.dims(arg) == 2:
                self.no(x.line, f"Python's {name} of a matrix compares its rows", f"write np.{name}")
            case loop_tree.Call(function="argmax" | "argmin" as name, args=(arg,)):
                return self.position(x.line, name, self.expr(arg))
            case loop_tree.Call(function="mean" | "var" | "std" as name, args=(arg,)):
                return self.moment(x.line, name, self.expr(arg))
            case loop_tree.Item() if self.dims(x) == 1 and self.is_column(x):
                return self.column(x)
            case loop_tree.Unpacked():
                return self.expr(self.unpacked(x))
            case loop_tree.LocalArray() if len(x.shape) == 1:
                row = self.made(x)
                assert isinstance(row, t.RowLoad)
                return t.RowCast(row.dtype, row.length, row)
        if self.dims(x) > 1:
            self.no(
                x.line,
                "a whole matrix stands where a number or a row is needed",
                "subscript it: A[k], or use @, np.sum or np.outer; one matrix operation to a line",
            )
        return super().expr(x)

    def unpacked(self, x: loop_tree.Unpacked) -> loop_tree.Item:
        """The element of a row that is unpacked."""
        if self.dims(x.row) != 1:
            self.no(
                x.line, f"{x.row.base} is unpacked, and this part of it is no row", "subscript it once less or more"
            )
        row = self.expr(x.row)
        assert t.is_row(row)
        if not self.equal(row.length, Const(INT, x.count)):
            found = self.scope.of(row.length)
            said = str(found[0]) if found and found[0] == found[1] else "an unknown number of"
            self.no(
                x.line, f"a row of {said} elements is unpacked into {x.count}", "write as many names as it has elements"
            )
        if any(isinstance(part, loop_tree.Span) for part in x.row.index):
            self.no(x.line, "a slice is unpacked", "give it a name first: w = W[i, 2:5]")
        return replace(x.row, index=(*x.row.index, loop_tree.Number(x.line, x.place)))

    def product(self, x: loop_tree.Binary) -> Scalar | Row:
        left, right = self.dims(x.left), self.dims(x.right)
        if left == 2 and right == 1:
            other = turned(x.left)
            if other is not None:
                return self.combined(x.line, self.array_row(x.line, self.expr(x.right)), self.matrix(other))
            return self.each_dot(x.line, self.matrix(x.left), self.array_row(x.line, self.expr(x.right)))
        if left == 1 and right == 2:
            other = turned(x.right)
            row = self.array_row(x.line, self.expr(x.left))
            if other is not None:
                return self.each_dot(x.line, self.matrix(other), row)
            return self.combined(x.line, row, self.matrix(x.right))
        if left == right == 2:
            self.no(x.line, "a product of matrices stands inside another expression", "give it a name: C = A @ B")
        return super().expr(x)

    def each_dot(self, line: int, matrix: Matrix, row: t.RowLoad) -> Row:
        """matrix @ row: one number for each row of the matrix."""
        kind = promote.join(ScalarType(matrix.dtype), ScalarType(row.dtype))
        self.same(line, matrix.columns, row.length)
        array = self.local(kind.dtype, (matrix.rows,), line)
        with self.rows(line, matrix.rows) as k:
            found = self.dot(line, sized(matrix.row(k), matrix.columns), row)
            self.put(line, t.ElementPlace(kind.dtype, line, array.name, (k,), (False,)), found)
        return self.whole(array, line)

    def combined(self, line: int, row: t.RowLoad, matrix: Matrix) -> Row:
        """row @ matrix: the rows of the matrix times the elements of the row, added up."""
        kind = promote.join(ScalarType(matrix.dtype), ScalarType(row.dtype))
        if kind.dtype == "b1":
            self.no(line, "@ of bools", "convert one of them")
        self.same(line, row.length, matrix.rows)
        array = self.local(kind.dtype, (matrix.columns,), line)
        self.put(line, self.place_of(array, (), line), t.Splat(kind.dtype, matrix.columns, cast(kind, _ZERO)))
        with self.rows(line, matrix.rows) as k:
            self.add_multiple(line, array, (), kind, self.element(row, k), matrix.row(k))
        return self.whole(array, line)

    def add_multiple(
        self, line: int, array: BodyArray, lead: tuple[Scalar, ...], kind: ScalarType, factor: Scalar, row: Row
    ) -> None:
        """array[lead...] += factor * row."""
        place = self.place_of(array, lead, line)
        splat = t.Splat(kind.dtype, row.length, cast(kind, factor))
        old = t.RowLoad(kind.dtype, place.length, line, array.name, lead, _ZERO, place.checked)
        row = cast_row(kind.dtype, row)
        self.put(line, place, row_op("+", old, row_op("*", splat, sized(row, place.length))))

    # --- columns ---

    def is_column(self, x: loop_tree.Item) -> bool:
        """Whether a slice stands on another axis than the last."""
        return any(isinstance(part, loop_tree.Span) for part in x.index[:-1]) and not isinstance(
            x.index[-1], loop_tree.Span
        )

    def column(self, x: loop_tree.Item) -> Row:
        """W[:, j], copied into a local array."""
        at, start, count = self.ends_of_column(x)
        first = loop_tree.Item(
            x.line, x.base, (*x.index[:at], loop_tree.Number(x.line, 0), *x.index[at + 1 :]), x.field
        )
        kind = kind_of(self.expr(first))
        array = self.local(kind.dtype, (count,), x.line)
        with self.rows(x.line, count) as k, self.binding(x.line, simple("+", start, k)) as place:
            index = (*x.index[:at], place, *x.index[at + 1 :])
            value = self.expr(loop_tree.Item(x.line, x.base, index, x.field))
            assert not t.is_row(value)
            self.put(x.line, t.ElementPlace(kind.dtype, x.line, array.name, (k,), (False,)), value)
        return self.whole(array, x.line)

    def ends_of_column(self, x: loop_tree.Item) -> tuple[int, Scalar, Scalar]:
        """The axis of the slice of a column, where it starts and its length."""
        at = next(k for k, part in enumerate(x.index) if isinstance(part, loop_tree.Span))
        span = x.index[at]
        assert isinstance(span, loop_tree.Span)
        name = f"{x.base}.{x.field}" if x.field else x.base
        if name in self.views:
            self.no(x.line, f"a column of {x.base}, which is part of an array", "subscript the array itself")
        start = _ZERO if span.start is None else self.keep(self.integer(span.start), x.line)
        stop = self.extent(name, at, x.line) if span.stop is None else self.integer(span.stop)
        return at, start, self.keep(simple("-", stop, start), x.line)

    # --- matrices ---

    def matrix(self, x: loop_tree.Expr) -> Matrix:
        """The typed form of an expression with two axes."""
        match x:
            case loop_tree.Name(name=name):
                if name in self.placed:
                    return self.placed[name]  # type: ignore[no-any-return]
                return self.named_matrix(name, x.line)
            case loop_tree.Item():
                return self.part_of_matrix(x)
            case loop_tree.LocalArray():
                made = self.made(x)
                assert isinstance(made, MatrixView)
                return made
            case loop_tree.Inlined(values=(value, *_)):
                self.run(x)
                return self.matrix(value)
            case loop_tree.Unary(op="T", operand=operand):
                return self.transposed(x.line, self.matrix(operand))
            case loop_tree.Unary(op="own" | "moved", operand=operand):
                return self.matrix(operand)
            case loop_tree.Binary(op="@"):
                return self.matrix_product(x)
            case loop_tree.Call(function="outer", args=(left, right)):
                return self.outer(x.line, left, right)
        return self.row_wise(x)

    def named_matrix(self, name: str, line: int) -> MatrixView:
        view = self.views.get(name)
        if isinstance(view, MatrixView):
            return view
        array = self.array(name, line)
        assert array is not None
        if array.role == "local":
            self.need(name, line)
        return self.view_of(array, (), line)

    def view_of(self, array: BodyArray, lead: tuple[Scalar, ...], line: int) -> MatrixView:
        """array[lead...], which leaves two axes."""
        axis = len(lead)
        checked = tuple(not self.scope.inside(k, self.size(array.name, a)) for a, k in enumerate(lead))
        rows, columns = (self.extent(array.name, a, line) for a in (axis, axis + 1))
        return MatrixView(array.dtype, rows, columns, line, array.name, lead, _ZERO, _ZERO, (*checked, False, False))

    def part_of_matrix(self, x: loop_tree.Item) -> MatrixView:
        """A[i], A[i:j, 2:5], M[1:3]."""
        view = self.views.get(x.base)
        index = list(x.index)
        if isinstance(view, MatrixView):
            whole = view
        else:
            array = self.array(x.base, x.line, x.field)
            assert array is not None
            if array.role == "local":
                self.need(x.base, x.line)
            lead: list[Scalar] = []
            while len(lead) < len(array.shape) - 2:
                part = index.pop(0)
                if isinstance(part, loop_tree.Span):
                    self.no(x.line, f"a slice of a leading axis of {x.base}", "write a for loop over that axis")
                lead.append(self.integer(part))
            whole = self.view_of(array, tuple(lead), x.line)
        if any(not isinstance(part, loop_tree.Span) for part in index):
            self.no(x.line, f"{x.base} has too many subscripts for a matrix", "name the matrix first: M = A[i]")
        spans = [part for part in index if isinstance(part, loop_tree.Span)]
        (start, rows, row_ok) = self.ends(spans[0] if spans else None, whole.rows, x.line)
        (first, columns, column_ok) = self.ends(spans[1] if len(spans) > 1 else None, whole.columns, x.line)
        *checks, row_check, span_check = whole.checked
        return replace(
            whole,
            line=x.line,
            rows=rows,
            columns=columns,
            start=simple("+", whole.start, start),
            first=simple("+", whole.first, first),
            checked=(*checks, row_check or not row_ok, span_check or not column_ok),
        )

    def ends(self, span: loop_tree.Span | None, size: Scalar, line: int) -> tuple[Scalar, Scalar, bool]:
        """First element and length of a slice, and whether it is proven to be inside."""
        if span is None or (span.start is None and span.stop is None):
            return _ZERO, size, True
        start = _ZERO if span.start is None else self.keep(self.integer(span.start), line)
        stop = size if span.stop is None else self.keep(self.integer(span.stop), line)
        whole, first, last = self.scope.of(size), self.scope.of(start), self.scope.of(stop)
        inside = bool(whole and first and last and first[0] >= 0 and last[1] <= whole[0] and first[1] <= last[0])
        length = simple("-", stop, start)
        if isinstance(length, Const) and whole and not inside:
            self.no(line, f"a slice is not inside an axis of {whole[0]} elements",
                    "a slice does not wrap around, and does not end beyond the array")  # fmt: skip
        return start, length, inside

    def transposed(self, line: int, matrix: Matrix) -> MatrixView:
        """A copy with rows and columns exchanged."""
        source = matrix if isinstance(matrix, MatrixView) else self.complete(line, matrix)
        array = self.local(source.dtype, (source.columns, source.rows), line)
        with self.rows(line, source.rows) as k, self.rows(line, source.columns) as m:
            row = source.row(k)
            assert isinstance(row, t.RowLoad)
            place = t.ElementPlace(source.dtype, line, array.name, (m, k), (False, False))
            self.put(line, place, self.element(row, m))
        return self.view_of(array, (), line)

    def matrix_product(self, x: loop_tree.Binary) -> MatrixView:
        """A @ B. Of the transposed of B: products of rows. Otherwise multiples of the rows of B, added up."""
        line, left, right = x.line, turned(x.left), turned(x.right)
        if self.dims(x.left) != 2 or self.dims(x.right) != 2:
            self.no(line, "@ of a matrix and something with other axes", "give both sides a name first")
        if right is not None and left is None:
            a, b = self.matrix(x.left), self.matrix(right)
            kind = promote.join(ScalarType(a.dtype), ScalarType(b.dtype))
            self.same(line, a.columns, b.columns)
            array = self.local(kind.dtype, (a.rows, b.rows), line)
            with self.rows(line, a.rows) as k, self.rows(line, b.rows) as m:
                element = t.ElementPlace(kind.dtype, line, array.name, (k, m), (False, False))
                self.put(line, element, self.dot(line, a.row(k), b.row(m)))
            return self.view_of(array, (), line)
        a = self.matrix(x.left if left is None else left)
        b = self.matrix(x.right)
        a = a if isinstance(a, MatrixView) else self.complete(line, a)
        kind = promote.join(ScalarType(a.dtype), ScalarType(b.dtype))
        if kind.dtype == "b1":
            self.no(line, "@ of bools", "convert one of them")
        height, inner = (a.rows, a.columns) if left is None else (a.columns, a.rows)
        self.same(line, inner, b.rows)
        array = self.local(kind.dtype, (height, b.columns), line)
        with self.rows(line, height) as k:
            place = self.place_of(array, (k,), line)
            self.put(line, place, t.Splat(kind.dtype, b.columns, cast(kind, _ZERO)))
            with self.rows(line, inner) as m:
                row = a.row(k if left is None else m)
                assert isinstance(row, t.RowLoad)
                factor = self.element(row, m if left is None else k)
                self.add_multiple(line, array, (k,), kind, factor, b.row(m))
        return self.view_of(array, (), line)

    def outer(self, line: int, left: loop_tree.Expr, right: loop_tree.Expr) -> RowWise:
        if self.dims(left) != 1 or self.dims(right) != 1:
            self.no(line, "np.outer takes two rows", "for a number and a row write *")
        u, v = self.array_row(line, self.expr(left)), self.array_row(line, self.expr(right))

        def row(k: Scalar) -> Row:
            found = self.combine(line, "*", self.element(u, k), v)
            assert t.is_row(found)
            return found

        return RowWise(row(_ZERO).dtype, u.length, v.length, row)

    def row_wise(self, x: Any) -> RowWise:
        """An elementwise expression: its operands are typed once, and the expression for every row."""
        bound: dict[str, Any] = {}
        sizes: list[Matrix] = []
        line = x.line

        def held(part: Any) -> Any:
            axes = self.dims(part)
            if axes == 2:
                value: Any = self.matrix(part)
                sizes.append(value)
            else:
                found = self.expr(part)
                value = self.array_row(line, found) if t.is_row(found) else self.keep(found, line)
                if isinstance(value, Const):
                    return part
            name = self.temporary()
            bound[name] = value
            return loop_tree.Name(line, name)

        match x:
            case loop_tree.Unary(operand=a):
                x = replace(x, operand=held(a))
            case loop_tree.Binary(left=a, right=b) | loop_tree.Compare(left=a, right=b):
                x = replace(x, left=held(a), right=b if isinstance(b, loop_tree.Number) else held(b))
            case loop_tree.Call(args=args):
                x = replace(x, args=tuple(held(arg) for arg in args))
            case _:
                self.no(line, "a whole matrix stands where a number or a row is needed", "subscript it: A[k]")
        first = sizes[0]
        for other in sizes[1:]:
            self.same(line, first.rows, other.rows)
            self.same(line, first.columns, other.columns)
        for value in bound.values():
            if isinstance(value, t.RowLoad):
                self.same(line, first.columns, value.length)
        bound = {n: sized(v, first.columns) if isinstance(v, t.RowLoad) else v for n, v in bound.items()}

        def row(k: Scalar) -> Row:
            outer = self.placed
            self.placed = {
                **outer,
                **{n: sized(v.row(k), first.columns) if isinstance(v, Matrix) else v for n, v in bound.items()},
            }
            found = self.expr(x)
            self.placed = outer
            assert t.is_row(found)
            return sized(found, first.columns)

        return RowWise(row(_ZERO).dtype, first.rows, first.columns, row)

    def complete(self, line: int, matrix: Matrix) -> MatrixView:
        """A matrix stored in a local array."""
        array = self.local(matrix.dtype, (matrix.rows, matrix.columns), line)
        with self.rows(line, matrix.rows) as k:
            self.put(line, self.place_of(array, (k,), line), matrix.row(k))
        return self.view_of(array, (), line)

    # --- names and subscripts ---

    def item(self, x: loop_tree.Item) -> Scalar | Row:
        """M[k], M[k, m] and M[k, 2:5] of a name for part of an array; others as usual."""
        view = self.views.get(x.base)
        if not isinstance(view, MatrixView):
            return super().item(x)
        if not x.index or isinstance(x.index[0], loop_tree.Span) or len(x.index) > 2:
            self.no(x.line, f"{x.base} is a matrix and takes two subscripts", "write M[k], M[k, m] or M[k, 2:5]")
        k = self.integer(x.index[0])
        found, rows = self.scope.of(k), self.scope.of(view.rows)
        inside = bool(found and rows and found[0] >= 0 and found[1] < rows[0])
        size = self.size(view.array, len(view.lead))
        full = view.start == _ZERO and (
            view.rows == self.extent(view.array, len(view.lead), x.line) or rows == (size, size)
        )
        if not inside and not full:
            self.no(x.line, f"{x.base}[k] may lie outside the part that {x.base} names", "subscript the array itself")
        *lead, row_check, span_check = view.checked
        row = view.row(k)
        assert isinstance(row, t.RowLoad)
        row = replace(row, line=x.line, checked=(*lead, row_check or not inside, span_check))
        if len(x.index) == 1:
            return row
        return self.part(loop_tree.Item(x.line, x.base, x.index[1:]), row)

    def extent(self, name: str, axis: int, line: int) -> Scalar:
        view = self.views.get(name)
        if isinstance(view, MatrixView):
            if axis > 1:
                self.no(line, f"{name} has 2 axes; there is no axis {axis}")
            return view.columns if axis else view.rows
        return super().extent(name, axis, line)
