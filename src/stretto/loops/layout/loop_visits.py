"""`LoopVisits`: the visits of a loop, and the arrays that compiled code reads for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.data.records.records import index_of
from stretto.errors import PlanError
from stretto.loops.analyse.assumptions import Assumptions
from stretto.loops.analyse.space import Space
from stretto.loops.emit.visit_form import VisitForm
from stretto.ranges import join_ranges
from stretto.schedule.orders.order import Ints, Order


@dataclass(frozen=True, eq=False)
class LoopVisits:
    """V visits over a grid of blocks."""

    order: Order  # of the visits
    weight: Ints  # [V] iterations of each visit
    form: VisitForm  # how compiled code iterates over a visit
    rows: BlockPartition  # the blocks of rows
    cols: BlockPartition  # the blocks of columns
    arrays: dict[tuple[str, str], NDArray[Any]] = field(repr=False)  # by (what, name): arguments of compiled code
    waves: tuple[Ints, ...] = ()  # visits that run together in each wave, for loops with waves
    relied: Assumptions = field(
        default_factory=Assumptions
    )  # of an inspected loop: the values that the visits depend on
    found: str = ""  # of an inspected loop: the result of the inspection, in words
    example: bool = False  # of a scheduled loop: these visits are one round as an example

    def __len__(self) -> int:
        return len(self.order)

    def check_known(self) -> None:
        """Refuse a loop whose iterations are not known before it runs."""
        if self.example:
            raise PlanError(
                "which iterations a schedule chooses shows as the loop runs; call it, and ask loop.recorded(...) for "
                "the plan of what was done"
            )


def even(n: int, blocks: int) -> BlockPartition:
    """n indices cut into `blocks` ranges of equal length."""
    return BlockPartition(np.arange(n, dtype=np.int32), np.linspace(0, n, blocks + 1).astype(np.int64))


def fields_of(space: Space, which: NDArray[Any] | None) -> dict[tuple[str, str], NDArray[Any]]:
    """The fields of the records, in the order of the visits."""
    return {
        ("field", name): np.ascontiguousarray(column.values if which is None else column.values[which])
        for name, column in space.fields
    }


def ragged_arrays(space: Space, which: NDArray[Any] | None = None) -> dict[tuple[str, str], NDArray[Any]]:
    """The ragged fields of the records, in the order of the visits."""
    found: dict[tuple[str, str], NDArray[Any]] = {}
    for name, column in space.ragged:
        ptr, parts = column.ptr, column.parts
        if which is not None:
            places, ptr = join_ranges(column.ptr[which], np.diff(column.ptr)[which])
            parts = tuple(part[places] for part in column.parts)
        found["ptr", name] = ptr
        for k, part in enumerate(parts):
            found[f"part{k}", name] = part
    return found


def entries(
    space: Space, indices: Sequence[NDArray[Any]], weight: Ints, which: NDArray[Any] | None
) -> dict[tuple[str, str], NDArray[Any]]:
    """Records laid out by visit, each with its indices. which: their order; None keeps it."""
    arrays: dict[tuple[str, str], NDArray[Any]] = {("ptr", ""): np.concatenate([[0], np.cumsum(weight)])}
    for d, index in enumerate(indices):
        arrays[f"base{d}", ""] = np.zeros(len(weight), np.int64)
        arrays[f"index{d}", ""] = np.ascontiguousarray(index if which is None else index[which])
    return {**arrays, **fields_of(space, which), **ragged_arrays(space, which)}


def indices_of(space: Space) -> tuple[NDArray[Any], ...]:
    """The index of every iteration along each dimension, in the order of the loop."""
    if space.records is not None:
        return index_of(space.records)
    cells = np.unravel_index(np.arange(len(space)), [dim.extent for dim in space.dims])
    return tuple(dim.start + dim.step * cell for dim, cell in zip(space.dims, cells, strict=True))
