"""Served arrays, which the driver stores: elements that each visit accesses, and waves in which visits may run.

    touched = Touched.of_lists(size, ptr, elements)     # elements[ptr[v] : ptr[v + 1]] of the flat array are visit v's
    served("A", touched, written=True)                  # fetched by element before visits run, changes sent back after
    per_slot("delta")                                   # [slots, …] what a visit of a wave adds, merged by the driver

The driver stores the current values of a served array. Before a node runs some visits, it receives in one message the
elements that they access and of which its copies are outdated. After them it sends back the changed elements. Visits of
different nodes that access the same element, one of them writing, never run at the same time: `Waves` orders them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.ranges import join_ranges
from stretto.schedule.orders.order import Ints, Order

from .arrays import Array


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


def served(name: str, touched: Touched, *, written: bool = False, merged: bool = False, **known: Any) -> Array:
    """An array that visits access at any element. merged: the driver changes it between waves."""
    return Array(name, "served", "served", written=written, touched=touched, merged=merged, **known)


def numbering(name: str) -> Array:
    """An array [n]: the numbers in the plan of the visits that a call runs; the kernel counts these from 0."""
    return Array(name, "numbering")


def per_slot(name: str, *, written: bool = True) -> Array:
    """An array [slots, …]: one element for each visit of a wave, initially 0. written: sent to the driver later."""
    return Array(name, "per slot", "owned", written=written)


def flat_view(name: str, of: str) -> Array:
    """A view [slots, n] of a "per slot" array, each element flattened."""
    return Array(name, "flat view", "owned", of=of)
