"""Arrays that no node owns: what each visit touches of them, and the waves in which visits may run.

    touched = Touched.of_lists(size, ptr, elements)     # elements[ptr[v] : ptr[v + 1]] of the flat array are visit v's
    served("A", touched, written=True)                  # fetched by element before visits run, changes sent back after
    per_slot("delta")                                   # [slots, …] what a visit of a wave adds, merged by the driver

The current values of a served array are in one place, the driver. Before a node makes some visits it gets, in one
message, the elements that they touch and that it does not have as they are now; after them it sends back the elements
that they changed. Visits of different nodes that touch the same element, one of them writing, never run at the same
time: `Waves` has the order that keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.schedule.orders.order import Ints, Order

from .arrays import Array


@dataclass(frozen=True, eq=False)
class Touched:
    """The elements of an array that each visit reads or writes, as numbers into the flat array.

    size: elements of the array. ptr: [V + 1] where each visit's begin in `elements`; None: a visit may touch any.
    """

    size: int
    ptr: Ints | None = None
    elements: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of_lists(cls, size: int, ptr: Ints, elements: NDArray[Any]) -> Self:
        """From lists of elements, in whatever integers are small enough."""
        kind = np.int32 if size < 2**31 else np.int64
        return cls(size, np.asarray(ptr, np.int64), np.ascontiguousarray(elements, kind))

    def by(self, visits: Ints) -> NDArray[Any]:
        """What some visits touch: sorted, each once.

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
    """The places from ptr[v] to ptr[v + 1] of some visits, one visit after another."""
    first, count = ptr[:-1][visits], np.diff(ptr)[visits]
    ends = np.cumsum(count)
    found: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - count), count)
    return found


@dataclass(frozen=True, eq=False)
class Waves:
    """The visits of a step that is run wave by wave: a `Step` makes those in `Step.visits`.

    order, weight : of all visits
    sets : the visits of each wave; between two waves the driver may change the arrays that are `merged`
    """

    order: Order
    weight: Ints
    sets: tuple[Ints, ...]


def served(name: str, touched: Touched, *, written: bool = False, merged: bool = False, **known: Any) -> Array:
    """Touched by visits at any element. merged: the driver changes it between waves."""
    return Array(name, "served", "served", written=written, touched=touched, merged=merged, **known)


def numbering(name: str) -> Array:
    """[n] the numbers, in the plan, of the visits that a run makes: the kernel counts those of the run from 0."""
    return Array(name, "numbering")


def per_slot(name: str, *, written: bool = True) -> Array:
    """[slots, …] one element for each visit of a wave, zeros when it begins; written: the driver gets it afterwards."""
    return Array(name, "per slot", "owned", written=written)


def flat_view(name: str, of: str) -> Array:
    """[slots, n] the memory of a "per slot" array, each element of it flat."""
    return Array(name, "flat view", "owned", of=of)
