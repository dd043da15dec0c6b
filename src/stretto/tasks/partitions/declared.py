"""Partitioned states as arguments of units: how declared data are read, and the handles of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stretto.errors import PlanError
from stretto.runtime.stages.data_store import block_reader, held
from stretto.state.partitioned import ColumnState, DeclaredData, PartitionedState
from stretto.state.partitions import PartRows, Ranges
from stretto.tables.worker import Worker
from stretto.tasks.arguments import AllBlocks, Argument, InBlocks, Source, argument_of
from stretto.tasks.files import files

from .part_handles import ColumnPartHandle, DataPartHandle, RowPartHandle, joined


def unit_argument(owner: str, given: Any, name: str) -> Argument:
    """Recognise an argument of `st.unit`."""
    if not isinstance(given, DeclaredData):
        return argument_of(owner, given, name)
    value = given.value
    if isinstance(value, str | Path):
        if given.opened is None:
            given.opened = files(value)
        value = given.opened
    if isinstance(value, AllBlocks):
        value = value.source
    if isinstance(value, InBlocks):
        return Argument("blocks", value, name, given.partition)
    if isinstance(value, Source):
        return Argument("source", value, name, given.partition)
    return Argument("data", given, name, given.partition)


def ranges_of_state(argument: Argument) -> Ranges | None:
    """The ranges of a partitioned state; None: it has none."""
    found = argument.value.partition if isinstance(argument.value, PartitionedState) else None
    return found if isinstance(found, Ranges) else None


def part_rows(argument: Argument, parts: int) -> PartRows | None:
    """The rows of the table of a state that each part holds; None: the state has no ranges."""
    ranges = ranges_of_state(argument)
    return None if ranges is None else PartRows(ranges.bounds(len(argument.value.stored.array), parts))


def is_partitioned(argument: Argument) -> bool:
    """Whether each part has rows or columns of its own."""
    return argument.declared is not None or ranges_of_state(argument) is not None


def default_parts(arguments: tuple[Argument, ...]) -> list[int]:
    """The numbers of ranges that arguments were declared with."""
    found = [argument.declared or ranges_of_state(argument) for argument in arguments]
    return [len(ranges.starts) for ranges in found if ranges is not None and ranges.starts is not None]


def refuse_in_loops(owner: str, arguments: tuple[Argument, ...]) -> None:
    """Loops of `@st.parallel` use arrays in place: those that are declared by columns or only read cannot be."""
    for argument in arguments:
        if argument.declared is not None or isinstance(argument.value, ColumnState):
            raise PlanError(
                f"{owner}: a loop uses arrays in place, and {argument.name!r} is declared by parts; give "
                "st.state(array) without partition=, or a function"
            )


class PartAccess:
    """Makes the handles of partitioned arguments; it is sent to nodes with the work of a stage."""

    def __init__(self, arguments: tuple[Argument, ...], parts: int) -> None:
        # By position: the axis and rows of states, and where the own rows of declared data begin.
        self._states = {
            at: ("columns" if isinstance(argument.value, ColumnState) else "rows", rows)
            for at, argument in enumerate(arguments)
            if argument.kind == "state" and (rows := part_rows(argument, parts)) is not None
        }
        self._bounds = {
            at: None if (bounds := argument.value.bounds(parts)) is None else PartRows(bounds)
            for at, argument in enumerate(arguments)
            if isinstance(argument.value, DeclaredData)
        }

    def state(self, at: int, table: Any, part: int) -> Any:
        """The handle of a state: partitioned, or the table itself."""
        if at not in self._states:
            return table
        axis, rows = self._states[at]
        return (ColumnPartHandle if axis == "columns" else RowPartHandle)(table, rows, part)

    def data(self, at: int, argument: Argument, w: Worker, owner: str, number: int, value: Any) -> DataPartHandle:
        """The handle of declared data. value: those of the part, or None if they are read in blocks."""
        assert argument.declared is not None
        axis = argument.declared.axis
        if argument.kind != "blocks":
            rows = self._bounds.get(at)
            own = None if rows is None else rows.own(w.number)
            return DataPartHandle(argument.name, [value], lambda: value, own, axis)
        blocks = block_reader(owner, number, w.workers).all_of(w.number)
        key = (number, w.number, w.workers, 1)  # beside the reader, and released with it
        return DataPartHandle(argument.name, blocks, lambda: held(owner, key, lambda: joined(blocks)), None, axis)
