"""The parts of a cut, by worker and node: what a run restarts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stretto.runtime.tables.job import Watched

Arrays = dict[str, Any]


@dataclass(eq=False)
class CutParts:
    """The parts of a cut.

    workers : worker → its part; one that is missing in a cut at the start begins anew
    residuals : node → what rounding left in its cache
    shards : node → the arrays of its shard
    seconds : when the last shard's part arrived. nbytes : sent between nodes by then
    history : the evaluations that had been made when it was complete
    """

    clock: int
    workers: dict[int, Any] = field(default_factory=dict)
    residuals: dict[int, Arrays] = field(default_factory=dict)
    shards: dict[int, Arrays] = field(default_factory=dict)
    seconds: float = 0.0
    nbytes: int = 0
    history: list[Watched] = field(default_factory=list)

    def size(self) -> int:
        """Bytes of the largest shard's part."""
        return max((sum(array.nbytes for array in part.values()) for part in self.shards.values()), default=0)
