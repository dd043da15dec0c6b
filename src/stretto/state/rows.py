"""Rows: what a model learns, cut into blocks along the leading axis.

Rows stand in the plan's order (row r at `cut.place[r]`), so that a block is one contiguous piece, and each row is
padded with zeros to whole lanes. Models keep these; what a user passes to a loop is a `State`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from stretto.data.partition import Cut


@dataclass(frozen=True, eq=False)
class Rows:
    """`array` [n, padded] or [n]: the user's row r is at cut.place[r]; the first `width` columns mean something."""

    name: str
    array: NDArray[Any]
    width: int
    cut: Cut

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)
