"""`Touched`: elements of a served array that each visit accesses; `Waves`: the order in which such visits run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.ranges import join_ranges
from stretto.schedule.orders.order import Ints, Order


@dataclass(frozen=True, eq=False)
class Touched:
    """The elements of an array that each visit reads or writes."""

    size: int  # number of elements of the array
    ptr: Ints | None = None  # [V + 1] where the list of each visit begins in `elements`; None: a visit may access any
    elements: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.int64))  # indices into the flat array

    @classmethod
    def of_lists(cls, size: int, ptr: Ints, elements: NDArray[Any]) -> Self:
        """From lists of elements, stored in the smallest integer type that holds them."""
        kind = np.int32 if size < 2**31 else np.int64
        return cls(size, np.asarray(ptr, np.int64), np.ascontiguousarray(elements, kind))

    def by(self, visits: Ints) -> NDArray[Any]:
        """The elements that some visits access: sorted, without duplicates.

        >>> Touched.of_lists(9, [0, 2, 4], [3, 4, 4, 8]).by(np.array([0, 1])).tolist()
        [3, 4, 8]
        """
        if self.ptr is None:
            return np.arange(self.size if len(visits) else 0)
        return np.unique(self.elements[_joined(self.ptr, visits)])

    def part(self, visits: Ints) -> Touched:
        """The lists of some visits; those of the others are empty."""
        if self.ptr is None:
            return self
        count = np.zeros(len(self.ptr) - 1, np.int64)
        count[visits] = np.diff(self.ptr)[visits]
        ptr = np.concatenate([[0], np.cumsum(count)])
        return Touched(self.size, ptr, self.elements[_joined(self.ptr, np.sort(visits))])


def _joined(ptr: Ints, visits: Ints) -> Ints:
    """Concatenated indices ptr[v] to ptr[v + 1] of some visits."""
    return join_ranges(ptr[:-1][visits], np.diff(ptr)[visits])[0]


@dataclass(frozen=True, eq=False)
class Waves:
    """The visits of a step that runs wave by wave: a `Step` runs those in `Step.visits`."""

    order: Order  # of all visits
    weight: Ints  # [V] of all visits
    sets: tuple[Ints, ...]  # visits of each wave; between two waves the driver may change the `merged` arrays
