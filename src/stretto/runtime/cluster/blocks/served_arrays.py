"""The driver's record of served arrays: which node has the current value of which element.

The driver's array is the current one. `has` says, for every node and element, whether the node's copy is equal. A
message to a node carries the elements that the visits of a phase touch and the node does not have.

    served = ServedArrays(spec, nodes)
    served.compare(args, names)             # elements that the driver or the user changed: no node has them
    values = served.values(phase, args)     # kept for as long as the phase may have to be repeated
    served.missing(plan, values, args)      # {node: Serve}, recorded as sent
    served.changed(node, name, elements)    # a node has made visits: the others do not have what it wrote
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.plan.arrays import StepSpec
from stretto.runtime.cluster.net.elements import ElementRuns, bits, pack

from .phases import Phase

# By node and array: the elements that a phase touches, and their values when it began, if those are kept.
Values = tuple[dict[str, tuple[NDArray[Any], NDArray[Any] | None]], ...]


@dataclass(frozen=True, eq=False)
class ServeElements:
    """Elements of served arrays for one node."""

    plan: int
    elements: dict[str, ElementRuns]


class ServedArrays:
    """See the module's docstring. `sent` and `returned` count bytes of elements, for measurements."""

    def __init__(self, spec: StepSpec, nodes: int) -> None:
        self.names, self.nodes = spec.of("served"), nodes
        self.sent = self.returned = 0
        self._has: dict[str, NDArray[np.bool_]] = {}  # [nodes, elements]
        self._last: dict[str, NDArray[Any]] = {}  # the values that nodes have, where they have the element

    def compare(self, args: Mapping[str, Any], names: Iterable[str]) -> None:
        """Find the elements that the driver has changed since the nodes received them."""
        for k in names:
            flat = args[k].reshape(-1)
            last = self._last.get(k)
            if last is None or last.shape != flat.shape:
                self._has[k] = np.zeros((self.nodes, flat.size), bool)
                self._last[k] = flat.copy()
                continue
            changed = np.flatnonzero(bits(flat) != bits(last))
            if len(changed):
                self._has[k][:, changed] = False
                last[changed] = flat[changed]

    def values(self, phase: Phase, args: Mapping[str, Any], *, keep: bool) -> Values:
        """The elements that the visits of a phase touch. `keep`: with a copy of their current values."""
        return tuple(
            {k: (at, args[k].reshape(-1)[at] if keep else None) for k, at in node.items()} for node in phase.touched
        )

    def missing(self, plan: int, values: Values, args: Mapping[str, Any]) -> dict[int, ServeElements]:
        """Messages with the current values of the elements that the nodes do not have."""
        found = {}
        for node, touched in enumerate(values):
            elements = {}
            for k, (at, _) in touched.items():
                has = self._has[k][node]
                new = at[~has[at]]
                if len(new):
                    elements[k] = pack(new, args[k].reshape(-1)[new])
                    has[new] = True
                    self.sent += elements[k].nbytes
            if elements:
                found[node] = ServeElements(plan, elements)
        return found

    def changed(self, node: int, k: str, elements: ElementRuns, array: NDArray[Any]) -> None:
        """Copy what the visits of a node wrote into the driver's array."""
        self.returned += elements.nbytes
        at = elements.write(array.reshape(-1))
        self._last[k][at] = elements.values
        self._has[k][:, at] = False
        self._has[k][node, at] = True

    def forget(self) -> None:
        """The nodes have lost everything."""
        for has in self._has.values():
            has[...] = False


def everything(plan: int, values: Values) -> dict[int, ServeElements]:
    """Messages with all elements that a phase touches, as they were when it began: for repeating it."""
    return {
        node: ServeElements(plan, {k: pack(at, value) for k, (at, value) in touched.items() if value is not None})
        for node, touched in enumerate(values)
        if any(len(at) for at, _ in touched.values())
    }
