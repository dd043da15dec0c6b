"""Who reads parts: one process, or the hosts of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class PartHosts(Protocol):
    """What is asked of a crew."""

    @property
    def apart(self) -> int:
        """Hosts that items are dealt out to; 0: all is done here."""
        ...

    def shares(self, count: int, readers: NDArray[np.int64] | None = None) -> list[Sequence[int]]:
        """0 to count − 1, dealt out to the hosts; readers [count]: the only host for each."""
        ...

    def apply(self, function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """function(item, crew) of every item, the k-th on host k."""
        ...


class Alone:
    """All of it is read here."""

    apart = 0

    def shares(self, count: int, readers: NDArray[np.int64] | None = None) -> list[Sequence[int]]:
        """One share."""
        return [range(count)]

    def apply(self, function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """One after the other."""
        return [function(item, None) for item in items]
