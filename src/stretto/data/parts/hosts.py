"""Processes that read parts: this process, or the hosts of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class PartExecutor(Protocol):
    """Processes that parts are distributed to."""

    @property
    def apart(self) -> int:
        """Number of hosts that items are distributed to; 0: this process does everything."""
        ...

    def shares(self, count: int, readers: NDArray[np.int64] | None = None) -> list[Sequence[int]]:
        """0 to count − 1, distributed to the hosts; readers [count]: the only host that can read each."""
        ...

    def apply(self, function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """function(item, crew) of every item, the k-th on host k."""
        ...


class LocalPartExecutor:
    """This process reads everything."""

    apart = 0

    def shares(self, count: int, readers: NDArray[np.int64] | None = None) -> list[Sequence[int]]:
        """One share."""
        return [range(count)]

    def apply(self, function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """One after the other."""
        return [function(item, None) for item in items]
