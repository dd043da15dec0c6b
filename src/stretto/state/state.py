"""State: what is learned. Rows of numbers, cut into blocks along their leading axis.

A state keeps its rows in the plan's order (row r stands at `cut.place[r]`), so that a block is one contiguous piece,
and pads each row with zeros to whole lanes. `in_order` gives the rows back as the user numbered them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
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

    def block(self, b: int) -> NDArray[Any]:
        """The rows of block b, without a copy."""
        return self.array[self.cut.bounds[b] : self.cut.bounds[b + 1]]

    def in_order(self) -> NDArray[Any]:
        """A copy in the user's numbering, without padding: [n, width], or [n] for a scalar state."""
        rows = self.array[self.cut.place]
        return rows if rows.ndim == 1 else np.ascontiguousarray(rows[:, : self.width])

    def put(self, values: NDArray[Any]) -> None:
        """Overwrite from an array in the user's numbering, [n, width] or [n]."""
        if self.array.ndim == 1:
            self.array[self.cut.place] = values
        else:
            self.array[self.cut.place, : self.width] = values
