"""Type inference of sums, means, extremes and their positions: of rows, of whole matrices and along an axis."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from stretto.loops.front import loop_tree

from . import promote
from . import typed_tree as t
from .generated import Generated
from .matrix_values import Matrix, limit, sized
from .promote import floating
from .typed_nodes import cast, cast_row, row_op, simple
from .typed_tree import INT, Const, Row, Scalar, ScalarType

ALONG = ("sum_axis", "mean_axis", "max_axis", "min_axis")
OF_ALL = ("sum_all", "max_all", "min_all", "mean", "var", "std", "argmax", "argmin")
_ZERO = Const(INT, 0)


class Reductions(Generated):
    """The typing of reductions."""

    @abstractmethod
    def dims(self, x: Any) -> int:
        """Number of axes of an expression."""

    @abstractmethod
    def matrix(self, x: loop_tree.Expr) -> Matrix:
        """The typed form of an expression with two axes."""

    def along(self, x: loop_tree.Call, arg: loop_tree.Expr, given: loop_tree.Expr) -> Scalar | Row:
        """np.sum(A, axis=0) and its kind."""
        name = x.function.partition("_")[0]
        axes = self.dims(arg)
        axis = given.value if isinstance(given, loop_tree.Number) and type(given.value) is int else 2
        if not -axes <= axis < max(1, axes) or axes == 0:
            self.no(x.line, f"axis={axis} of something with {axes} axes", "write axis=0 or axis=1 of a matrix")
        if axes == 1:
            return self.expr(loop_tree.Call(x.line, name, (arg,)))
        matrix = self.matrix(arg)
        if axis in (1, -1):
            with self.binding(x.line, matrix.row(_ZERO)) as part:  # its type
                kind = kind_of(self.expr(loop_tree.Call(x.line, name, (part,))))
            array = self.local(kind.dtype, (matrix.rows,), x.line)
            with self.rows(x.line, matrix.rows) as k, self.binding(x.line, matrix.row(k)) as part:
                value = self.expr(loop_tree.Call(x.line, name, (part,)))
                assert not t.is_row(value)
                self.put(x.line, t.ElementPlace(kind.dtype, x.line, array.name, (k,), (False,)), cast(kind, value))
            return self.whole(array, x.line)
        if name in ("max", "min"):
            return self.extremes(x.line, name, matrix)
        kind = ScalarType(
            promote.summed(matrix.dtype) if name == "sum" else promote.lifted(ScalarType(matrix.dtype)).dtype
        )
        array = self.local(kind.dtype, (matrix.columns,), x.line)
        place = self.place_of(array, (), x.line)
        self.put(x.line, place, t.Splat(kind.dtype, matrix.columns, cast(kind, _ZERO)))
        with self.rows(x.line, matrix.rows) as k:
            old = self.whole(array, x.line)
            row = sized(cast_row(kind.dtype, matrix.row(k)), place.length)
            self.put(x.line, place, row_op("+", old.x, row))
        total = self.whole(array, x.line)
        return total if name == "sum" else self.combine(x.line, "/", total, self.counted(kind, matrix.rows))

    def extremes(self, line: int, name: str, matrix: Matrix) -> Row:
        """The largest or smallest element of each column; NaN if there is one."""
        array = self.local(matrix.dtype, (matrix.columns,), line)
        place = self.place_of(array, (), line)
        first = cast(ScalarType(matrix.dtype), limit(matrix.dtype, name))
        self.put(line, place, t.Splat(matrix.dtype, matrix.columns, first))
        with self.rows(line, matrix.rows) as k:
            old = self.whole(array, line)
            row = sized(matrix.row(k), place.length)
            self.put(line, place, row_op(name, old.x, row))
        return self.whole(array, line)

    def of_all(self, x: loop_tree.Call, arg: loop_tree.Expr) -> Scalar:
        """np.sum(A) and its kind, of every element of a matrix: of each row, and these from the first to the last."""
        name, line = x.function.removesuffix("_all"), x.line
        if name in ("argmax", "argmin", "var", "std"):
            self.no(line, f"np.{name} of a matrix", "work on one row at a time: A[k]")
        matrix = self.matrix(arg)
        if name == "mean":
            kind = promote.lifted(ScalarType(matrix.dtype))
            total = self.of_all(loop_tree.Call(line, "sum_all", (arg,)), arg)
            count = simple("*", matrix.rows, matrix.columns)
            return self.number_of(self.combine(line, "/", cast(kind, total), self.counted(kind, count)))
        dtype = promote.summed(matrix.dtype) if name == "sum" else matrix.dtype
        kind = ScalarType(dtype)
        held = self.variable(line, kind, _ZERO if name == "sum" else limit(dtype, name))
        with self.rows(line, matrix.rows) as k:
            row = matrix.row(k)
            part = t.Sum(kind, cast_row(dtype, row)) if name == "sum" else t.Extreme(kind, name, row)
            op = "+" if name == "sum" else f"{name}imum" if floating(dtype) else name
            self.put(line, t.VarPlace(kind, held.name), t.Op(kind, op, (held, part)))
        return held

    def position(self, line: int, name: str, value: Scalar | Row) -> Scalar:
        """np.argmax(row): where the first of the largest elements is, or the first NaN; -1 of an empty row."""
        row = self.array_row(line, value)
        kind, compare = ScalarType(row.dtype), ">" if name == "argmax" else "<"
        where = self.variable(line, INT, Const(INT, -1))
        best = self.variable(line, kind, _ZERO)
        with self.rows(line, row.length) as k:
            found = self.variable(line, kind, self.element(row, k))
            t_bool = ScalarType("b1")
            better = t.Test(t_bool, compare, found, best)
            if floating(kind):
                numbers = t.Test(t_bool, "==", best, best), t.Test(t_bool, "!=", found, found)
                better = t.Logic(t_bool, "or", (better, t.Logic(t_bool, "and", numbers)))  # type: ignore[assignment]
            first = t.Test(t_bool, "==", where, Const(INT, -1))
            test = t.Logic(t_bool, "or", (first, better))
            stores = t.Store(line, (t.VarPlace(INT, where.name), t.VarPlace(kind, best.name)), (k, found))
            self.before.append(t.Branch(line, test, (stores,), ()))
        self.scope.ranges[where.name] = None
        return where

    def moment(self, line: int, name: str, value: Scalar | Row) -> Scalar | Row:
        """np.mean, np.var and np.std of a row, as sums divided by its length."""
        if not t.is_row(value):
            self.no(line, f"np.{name} takes a row or a matrix", "leave it out: a number is its own mean")
        kind = promote.lifted(ScalarType(value.dtype))
        count = self.counted(kind, value.length)
        mean = self.combine(line, "/", t.Sum(kind, cast_row(kind.dtype, value)), count)
        if name == "mean":
            return mean
        apart = self.array_row(line, self.combine(line, "-", value, self.keep(self.number_of(mean), line)))
        squares = self.combine(line, "*", apart, apart)
        assert t.is_row(squares)
        found = self.combine(line, "/", t.Sum(kind, squares), count)
        return self.function_of(line, "sqrt", found) if name == "std" else found

    def counted(self, kind: ScalarType, count: Scalar) -> Scalar:
        return cast(kind, count)

    def number_of(self, x: Scalar | Row) -> Scalar:
        assert not t.is_row(x)
        return x


def kind_of(value: Scalar | Row) -> ScalarType:
    """The kind of a number, or of the elements of a row."""
    return ScalarType(value.dtype) if t.is_row(value) else value.type
