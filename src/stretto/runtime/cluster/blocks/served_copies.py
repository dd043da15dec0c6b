"""A node's copies of served arrays: which elements its visits changed, and what they wrote to arrays per slot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.plan.arrays import StepSpec
from stretto.runtime.cluster.net.elements import ElementRuns, bits, nonzero, pack
from stretto.schedule.orders.order import Ints


class ServedCopies:
    """Finds changed elements after visits.

    Parameters
    ----------
    args : dict of str to array
        The node's arrays, in their full shape; of a served array only the received elements are valid.
    """

    def __init__(self, spec: StepSpec, args: dict[str, Any]) -> None:
        self._spec, self._args = spec, args
        self._written = [k for k in spec.of("served") if spec.arrays[k].written]
        self._slots = [k for k in spec.of("per slot") if spec.arrays[k].written]
        self._lists: dict[tuple[str, bytes], NDArray[Any]] = {}  # elements that the visits of a phase touch
        self._before: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}

    def begin(self, visits: Ints) -> None:
        """Record the values before visits, when what they touch has been received."""
        for k in self._written:
            key = k, visits.tobytes()
            if key not in self._lists:
                self._lists[key] = self._spec.touched(k).by(visits)
            at = self._lists[key]
            self._before[k] = at, self._args[k].reshape(-1)[at]

    def end(self, phase: Ints, mine: Ints) -> tuple[dict[str, ElementRuns], Ints, dict[str, ElementRuns]]:
        """After visits phase[mine]: the elements that they changed, the visits, what they wrote to their slots."""
        served = {}
        for k, (at, before) in self._before.items():
            after = self._args[k].reshape(-1)[at]
            changed = bits(after) != bits(before)
            served[k] = pack(at[changed], after[changed])
        slots = {}
        for k in self._slots:
            array = self._args[k]
            slots[k] = nonzero(array[mine])
            array[mine] = 0
        self._before.clear()
        return served, np.ascontiguousarray(phase[mine]), slots
