"""Served arrays, which the driver stores: elements that each visit accesses, and waves in which visits may run.

    touched = Touched.of_lists(size, ptr, elements)     # elements[ptr[v] : ptr[v + 1]] of the flat array are visit v's
    served("A", touched, written=True)                  # fetched by element before visits run, changes sent back after
    per_slot("delta")                                   # [slots, …] what a visit of a wave adds, merged by the driver

The driver stores the current values of a served array. Before a node runs some visits, it receives in one message the
elements that they access and of which its copies are outdated. After them it sends back the changed elements. Visits of
different nodes that access the same element, one of them writing, never run at the same time: `Waves` orders them.
"""

from __future__ import annotations

from typing import Any

from .arrays import Array
from .touched import Touched


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
