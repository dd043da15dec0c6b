"""Partitions of a state: which rows, or columns, each part of a unit holds.

    Ranges("rows").bounds(10, 3)                      [0, 3, 6, 10]: even ranges, as data are cut
    Ranges("rows", (0, 4, 8)).bounds(10, 3)           [0, 4, 8, 10]
    Ranges("rows", (0, 4, 8)).bounds(10, 2)           [0, 4, 10]: a part may hold several ranges

A node of a stage holds what its parts hold, so a part finds its own rows on its own node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import shown, whole
from stretto.errors import PlanError

AXES = ("rows", "columns")


@dataclass(frozen=True)
class Ranges:
    """Contiguous ranges of rows or columns."""

    axis: str  # "rows" or "columns"
    starts: tuple[int, ...] | None = None  # first row of each range; None: even ranges, one for each part

    def bounds(self, size: int, parts: int) -> NDArray[np.int64]:
        """[parts + 1] where the rows of each part begin; the last is `size`."""
        numbers = np.arange(parts + 1)
        if self.starts is None:
            return numbers * size // parts
        edges = np.array([*self.starts, size], np.int64)
        return edges[numbers * len(self.starts) // parts]

    def words(self) -> str:
        """The partition in words."""
        if self.starts is None:
            return f"partitioned by {self.axis}"
        return f"partitioned by {self.axis} into {len(self.starts)} ranges"


@dataclass(frozen=True, eq=False)
class PartRows:
    """The rows of a table that each part holds. bounds [parts + 1]: where they begin."""

    bounds: NDArray[np.int64]

    def own(self, part: int) -> NDArray[np.int64]:
        """[n] the rows of a part."""
        return np.arange(self.bounds[part], self.bounds[part + 1])

    def holders(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n] the part that holds each row."""
        return np.searchsorted(self.bounds, rows, side="right") - 1


def ranges_of(given: Any, size: dict[str, int] | None = None) -> Ranges:
    """Read `partition=`: "rows", "columns", first rows, or (start, stop) pairs, which must cover all rows.

    Parameters
    ----------
    given : str or sequence
        What the user gave.
    size : dict or None
        Rows of the state, under "rows", where they are known.
    """
    if isinstance(given, str):
        if given not in AXES:
            raise PlanError(f"state: partition={given!r}; choose 'rows', 'columns', ranges of rows or a function")
        return Ranges(given)
    if not isinstance(given, Iterable):
        raise PlanError(f"state: partition={shown(given)}; choose 'rows', 'columns', ranges of rows or a function")
    listed: Sequence[Any] = list(given)
    rows = None if size is None else size.get("rows")
    if listed and all(isinstance(pair, tuple | list | range) for pair in listed):
        return Ranges("rows", _paired(listed, rows))
    starts = tuple(whole("partition", start, 0, "state") for start in listed)
    if not starts or starts[0] != 0 or list(starts) != sorted(starts):
        raise PlanError(f"state: partition={listed}; give the first row of each range, in order, beginning with 0")
    if rows is not None and starts[-1] > rows:
        raise PlanError(f"state: partition={listed} begins a range at row {starts[-1]}, and the state has {rows} rows")
    return Ranges("rows", starts)


def _paired(pairs: Sequence[Any], rows: int | None) -> tuple[int, ...]:
    """The first rows of (start, stop) pairs."""
    found = []
    for pair in pairs:
        start, stop = (pair.start, pair.stop) if isinstance(pair, range) else tuple(pair) if len(pair) == 2 else (1, 0)
        found.append((whole("partition", start, 0, "state"), whole("partition", stop, 0, "state")))
    ends = [0, *(stop for _, stop in found)]
    fits = all(start == end and start <= stop for (start, stop), end in zip(found, ends, strict=False))
    if not fits or (rows is not None and ends[-1] != rows):
        until = "" if rows is None else f" to {rows}"
        raise PlanError(
            f"state: partition={list(pairs)}; give (start, stop) of each range so that they cover all rows in order, "
            f"from 0{until}, without gaps"
        )
    return tuple(start for start, _ in found)
