"""`BlockedRows`: a learned array of a model, cut into blocks along its first axis.

Rows are stored in the plan's order (row r at `cut.place[r]`), so that a block is contiguous. Each row is padded with
zeros to whole lanes. Models use `BlockedRows`; users pass a `State` to a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from stretto.data.partition import BlockPartition


@dataclass(frozen=True, eq=False)
class BlockedRows:
    """A learned array in the plan's order."""

    name: str  # in the plan
    array: NDArray[Any]  # [n, padded] or [n]; the user's row r is at cut.place[r]
    width: int  # columns without the padding
    cut: BlockPartition  # order and blocks of the rows

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)
