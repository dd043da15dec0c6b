"""A list of bounded length that keeps its shape: of more rows than the limit, every second is dropped.

>>> samples = Samples(4)
>>> for row in range(10):
...     samples.add(row)
>>> samples.rows()
[0, 4, 8, 9]
"""

from __future__ import annotations

from typing import Generic, TypeVar

Row = TypeVar("Row")


class Samples(Generic[Row]):
    """Rows added one after another, evenly thinned, with the newest.

    Parameters
    ----------
    limit : int
        Rows that are kept at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = max(2, limit)
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._every, self._count = 1, 0
        self._rows: list[Row] = []
        self._newest: list[Row] = []  # the last row, where it is one that is dropped

    def __len__(self) -> int:
        return self._count

    def add(self, row: Row) -> None:
        """Add a row."""
        place, self._count = self._count, self._count + 1
        if place % self._every:
            self._newest = [row]
            return
        self._rows.append(row)
        self._newest = []
        if len(self._rows) > self._limit - 1:
            self._every *= 2
            self._newest = [] if (len(self._rows) - 1) % 2 == 0 else [self._rows[-1]]
            self._rows = self._rows[::2]

    def rows(self) -> list[Row]:
        """The rows that are kept, in order."""
        return self._rows + self._newest
