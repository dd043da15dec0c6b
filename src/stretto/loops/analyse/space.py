"""The iteration space of a loop: its dimensions, and the fields of its records.

for (i, j), r in ratings              dimensions i and j, field r
for i, (y, features) in samples       dimension i, field y, ragged field features
for i in range(1, n - 1):             dimensions i and j of a grid, no fields
    for j in range(1, m - 1):
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.data.records.records import Column, RaggedColumn, Records
from stretto.errors import PlanError
from stretto.loops.front import loop_tree
from stretto.loops.front.bind import ArrayInfo, BufferInfo, DataInfo, Info, NumberInfo
from stretto.loops.types.body import RaggedField
from stretto.loops.types.promote import DTYPES, floating, short
from stretto.loops.types.typed_tree import BOOL, FLOAT, INT, ScalarType

from .facts import Dim


@dataclass(frozen=True, eq=False)
class Space:
    """The iteration space of a loop."""

    kind: str  # 'sparse', 'ragged', 'dense' (every element of an array, with its value) or 'grid' (ranges alone)
    dims: tuple[Dim, ...]  # its dimensions
    source: str = ""  # name of the data; '' for a grid
    records: Records | None = None  # the data; None for a grid
    fields: tuple[tuple[str, Column], ...] = ()  # (name, column), in the order of the records
    ragged: tuple[tuple[str, RaggedColumn], ...] = ()  # (name, column) of ragged fields

    def __len__(self) -> int:
        """Number of iterations."""
        if self.records is not None:
            return len(self.records)
        return int(np.prod([dim.extent for dim in self.dims], dtype=np.int64))

    @property
    def field_kinds(self) -> tuple[tuple[str, ScalarType], ...]:
        return tuple((name, kind_of_column(column.values.dtype)) for name, column in self.fields)

    @property
    def ragged_kinds(self) -> tuple[RaggedField, ...]:
        return tuple(
            RaggedField(name, tuple(kind_of_column(part.dtype) for part in column.parts))
            for name, column in self.ragged
        )

    @property
    def unique(self) -> frozenset[str]:
        """Fields that no two records share."""
        return frozenset(name for name, column in self.fields if column.unique)


def kind_of_column(dtype: np.dtype[Any]) -> ScalarType:
    """The kind of a field. Iterating over data gives plain Python numbers, so fields are weak."""
    code = short(dtype)
    return BOOL if code == "b1" else FLOAT if floating(code) else INT


def space_of(loop: loop_tree.LoopNest, infos: Mapping[str, Info], known: Mapping[str, int | float | bool]) -> Space:
    """The space of a loop; `known` holds the numbers that setup statements have computed."""
    first = loop.levels[0]
    if isinstance(first.over, loop_tree.IteratedName):
        info = infos.get(first.over.name)
        if not isinstance(info, DataInfo):
            what = "not among the arguments" if info is None else "not Data"
            hint = (
                f"give st.dense({first.over.name}) for every element, or write for i in range(len(...)) and subscript"
            )
            raise PlanError(f"line {first.line}: the loop runs over {first.over.name}, which is {what}; {hint}")
        return _of_records(first, info)
    dims: list[Dim] = []
    for level in loop.levels:
        assert isinstance(level.over, loop_tree.Range)
        if not isinstance(level.pattern, str):
            raise PlanError(f"line {level.line}: range gives one number; write `for i in range(...)`")
        step = _number(level.over.step, infos, known)
        if step == 0:
            raise PlanError(f"line {level.line}: the step of a range cannot be 0")
        outer = {dim.name: dim for dim in dims}
        start, stop = (_values(end, infos, known, outer) for end in (level.over.start, level.over.stop))
        dims.append(Dim(level.pattern, *((start[0], stop[1]) if step > 0 else (start[1], stop[0])), step))
    return Space("grid", tuple(dims))


def inside(loop: loop_tree.LoopNest, infos: Mapping[str, Info], known: Mapping[str, Any], point: Sequence[int]) -> bool:
    """Whether a point of the space is an iteration: the space is a box around ranges that depend on outer indices."""
    here = dict(known)
    for level, value in zip(loop.levels, point, strict=True):
        assert isinstance(level.over, loop_tree.Range)
        ends = (level.over.start, level.over.stop, level.over.step)
        if value not in range(*(_number(end, infos, here) for end in ends)):
            return False
        here[str(level.pattern)] = value
    return True


def _values(
    expr: loop_tree.Expr, infos: Mapping[str, Info], known: Mapping[str, Any], outer: Mapping[str, Dim]
) -> tuple[int, int]:
    """The least and the largest value of a bound, over the box of the outer indices."""
    match expr:
        case loop_tree.Name(name=name) if name in outer:
            dim = outer[name]
            ends = (dim.start, dim.start + max(0, dim.extent - 1) * dim.step)
            return min(ends), max(ends)
        case loop_tree.Unary(op="-", operand=operand):
            low, high = _values(operand, infos, known, outer)
            return -high, -low
        case loop_tree.Binary(op=op, left=left, right=right) if op in ("+", "-", "*", "//"):
            (a, b), (c, d) = (_values(part, infos, known, outer) for part in (left, right))
            if op == "//" and c <= 0 <= d:
                raise PlanError(f"line {expr.line}: a bound of the loop is divided by 0")
            values = [_OPERATORS[op](x, y) for x in (a, b) for y in (c, d)]
            return min(values), max(values)
        case loop_tree.Call(function=function, args=args) if function in ("min", "max") and args:
            each = [_values(arg, infos, known, outer) for arg in args]
            best = min if function == "min" else max
            return best(low for low, _ in each), best(high for _, high in each)
    value = _number(expr, infos, known)
    return value, value


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod
}  # fmt: skip


def _of_records(level: loop_tree.Level, info: DataInfo) -> Space:
    records = info.records
    pattern = level.pattern
    if isinstance(pattern, str) or len(pattern) != 2:
        raise PlanError(f"line {level.line}: {info.name} gives pairs; write `for {_expected(records)} in {info.name}`")
    index, value = pattern
    names = (index,) if isinstance(index, str) else index
    if len(names) != len(records.shape) or not all(isinstance(name, str) for name in names):
        raise PlanError(
            f"line {level.line}: {info.name} has {len(records.shape)} indices; "
            f"write `for {_expected(records)} in {info.name}`"
        )
    dims = tuple(Dim(str(name), 0, extent) for name, extent in zip(names, records.shape, strict=True))
    columns = records.value if isinstance(records.value, tuple) else (records.value,)
    given = value if isinstance(value, tuple) and isinstance(records.value, tuple) else (value,)
    if len(given) != len(columns) or not all(isinstance(name, str) for name in given):
        raise PlanError(
            f"line {level.line}: a record of {info.name} holds {len(columns)} values; "
            f"write `for {_expected(records)} in {info.name}`"
        )
    named = list(zip(map(str, given), columns, strict=True))
    for name, column in named:
        for part in column.parts if isinstance(column, RaggedColumn) else (column.values,):
            if not part.dtype.isnative or short(part.dtype) not in DTYPES:
                raise PlanError(
                    f"line {level.line}: {name} of {info.name} holds {part.dtype}, which a loop cannot compute with; "
                    f"make the data from one of {', '.join(DTYPES)}"
                )
    return Space(
        records.kind,
        dims,
        info.name,
        records,
        tuple((name, column) for name, column in named if isinstance(column, Column)),
        tuple((name, column) for name, column in named if isinstance(column, RaggedColumn)),
    )


def _expected(records: Records) -> str:
    index = "i" if len(records.shape) == 1 else f"({', '.join('ijklmn'[: len(records.shape)])})"
    if isinstance(records.value, tuple):
        return f"{index}, ({', '.join('abcdefgh'[: len(records.value)])})"
    return f"{index}, {'entries' if isinstance(records.value, RaggedColumn) else 'x'}"


def _number(expr: loop_tree.Expr, infos: Mapping[str, Info], known: Mapping[str, int | float | bool]) -> int:
    """The value of a bound of a range, computed on the driver."""
    value: int | float | bool | None
    match expr:
        case loop_tree.Number(value=int(number)):
            return number
        case loop_tree.Name(name=name) if name in known:
            value = known[name]
        case loop_tree.Name(name=name):
            info = infos.get(name)
            value = info.value if isinstance(info, NumberInfo) else None
        case loop_tree.Shape(base=base, axis=axis):
            info = infos.get(base)
            if isinstance(info, ArrayInfo | BufferInfo):
                return info.shape[axis]
            if isinstance(info, DataInfo):
                return info.records.shape[axis]
            value = None
        case loop_tree.Unary(op="-", operand=operand):
            return -_number(operand, infos, known)
        case loop_tree.Binary(op=op, left=left, right=right) if op in ("+", "-", "*", "//", "%"):
            a, b = _number(left, infos, known), _number(right, infos, known)
            if op in ("//", "%") and b == 0:
                raise PlanError(f"line {expr.line}: a bound of the loop is divided by 0")
            return _OPERATORS[op](a, b)
        case loop_tree.Call(function=function, args=args) if function in ("min", "max") and args:
            return (min if function == "min" else max)(_number(arg, infos, known) for arg in args)
        case _:
            value = None
    if not isinstance(value, int | np.integer):
        raise PlanError(
            f"line {expr.line}: the bounds of a parallel loop must be whole numbers known before it starts: literals, "
            "integer arguments, shapes, and sums or products of them"
        )
    return int(value)
