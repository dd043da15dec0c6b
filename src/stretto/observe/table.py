"""The epoch table: one row per epoch, for plots, CSV files and resumed runs.

Columns: `epoch`, `seconds` (spent in epochs since the run began, saving and evaluating excluded, across interruptions),
`items` (visited since the run began), `objective`, then every metric that was ever reported, NaN where it was not.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_COUNTS = ("epoch", "items")
Columns = dict[str, NDArray[np.float64]]


class EpochTable:
    """A table with one row per epoch; `rewind` removes epochs that a resumed run repeats.

    >>> table = EpochTable()
    >>> table.add(1, seconds=0.5, items=100, objective=3.0, metrics={"test_rmse": 0.9})
    >>> table.add(2, seconds=0.5, items=100, objective=2.0)
    >>> table.columns()["seconds"]
    array([0.5, 1. ])
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last(self) -> Mapping[str, float]:
        return self._rows[-1] if self._rows else {}

    def add(
        self, epoch: int, *, seconds: float, items: int, objective: float, metrics: Mapping[str, float] | None = None
    ) -> None:
        self.rewind(epoch - 1)
        row = {
            "epoch": float(epoch),
            "seconds": self.last.get("seconds", 0.0) + float(seconds),
            "items": self.last.get("items", 0.0) + float(items),
            "objective": float(objective),
        }
        for name, value in (metrics or {}).items():
            row.setdefault(name, float(value))  # a metric cannot replace a built-in column
        self._rows.append(row)

    def rewind(self, epoch: int) -> None:
        """Remove every epoch after `epoch`."""
        while self._rows and self._rows[-1]["epoch"] > epoch:
            self._rows.pop()

    def columns(self) -> Columns:
        names = dict.fromkeys(["epoch", "seconds", "items", "objective"])
        for row in self._rows:
            names.update(dict.fromkeys(row))
        return {name: np.array([row.get(name, math.nan) for row in self._rows], dtype=np.float64) for name in names}

    def csv(self) -> str:
        """The table as CSV text with a header; whole counts as integers, an absent metric as an empty cell."""
        columns = self.columns()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(_cells(name, column.tolist()) for name, column in columns.items()), strict=True))
        return out.getvalue()


def _cells(name: str, values: list[float]) -> list[str]:
    if name in _COUNTS:
        return ["" if math.isnan(value) else str(int(value)) for value in values]
    return ["" if math.isnan(value) else repr(value) for value in values]
