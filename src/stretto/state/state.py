"""State: what is learned. Rows of numbers, cut into blocks along their leading axis.

A state keeps its rows in the plan's order (row r stands at `cut.place[r]`), so that a block is one contiguous piece,
and pads each row with zeros to whole lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from stretto.data.partition import Cut


@dataclass(frozen=True, eq=False)
class State:
    """`array` [n, padded] or [n]: the user's row r is at cut.place[r]; the first `width` columns mean something."""

    name: str
    array: NDArray[Any]
    width: int
    cut: Cut

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)
