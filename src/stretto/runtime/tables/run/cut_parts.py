"""The parts of a cut, by worker and node: the state that a run restarts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stretto.runtime.tables.job import TableEvaluation

Arrays = dict[str, Any]


@dataclass(eq=False)
class CutParts:
    """The parts of a cut."""

    clock: int
    workers: dict[int, Any] = field(default_factory=dict)  # by worker; a missing one starts from the beginning
    residuals: dict[int, Arrays] = field(default_factory=dict)  # by node: rounding residuals of its cache
    shards: dict[int, Arrays] = field(default_factory=dict)  # by node: the arrays of its shard
    seconds: float = 0.0  # when the last shard's part arrived
    nbytes: int = 0  # sent between nodes by then
    history: list[TableEvaluation] = field(default_factory=list)  # evaluations made when it was complete

    def size(self) -> int:
        """Bytes of the largest shard's part."""
        return max((sum(array.nbytes for array in part.values()) for part in self.shards.values()), default=0)
