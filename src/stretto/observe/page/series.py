"""A table of epochs whose size is bounded: a run of any length keeps the shape of its curves.

When there are more rows than the limit, every second one is dropped, and from then on only every second epoch is kept.
The newest row is always present.

>>> series = Series(limit=4)
>>> for epoch in range(1, 11):
...     series.add(epoch, seconds=1.0, items=5, objective=1.0 / epoch, metrics={})
>>> series.columns()["epoch"]
[4.0, 8.0, 10.0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping

FIXED = ("epoch", "seconds", "items", "objective")


class Series:
    """Epochs with the seconds and items up to each, and their metrics.

    Parameters
    ----------
    limit : int, default 2048
        Rows that are kept at most.
    """

    def __init__(self, limit: int = 2048) -> None:
        self.limit = max(2, limit)
        self._every = 1
        self._rows: list[dict[str, float]] = []
        self._newest: dict[str, float] = {}  # not yet in `_rows`, if its epoch is one that is dropped

    def __len__(self) -> int:
        return len(self._rows) + bool(self._newest)

    @property
    def last(self) -> Mapping[str, float]:
        """The newest row; empty if there is none."""
        return self._newest or (self._rows[-1] if self._rows else {})

    def add(self, epoch: int, *, seconds: float, items: float, objective: float, metrics: Mapping[str, float]) -> None:
        """Add an epoch. One that is repeated, as after a crash, replaces those from it on."""
        self.rewind(epoch - 1)
        last = self.last
        row = {
            "epoch": float(epoch),
            "seconds": last.get("seconds", 0.0) + seconds,
            "items": last.get("items", 0.0) + items,
            "objective": objective,
            "speed": items / seconds if seconds > 0 else math.nan,
        }
        for name, value in metrics.items():
            row.setdefault(name, value)
        if epoch % self._every:
            self._newest = row
            return
        self._newest = {}
        self._rows.append(row)
        while len(self._rows) >= self.limit:
            self._every *= 2
            kept = [one for one in self._rows if one["epoch"] % self._every == 0]
            self._newest = {} if kept and kept[-1] is self._rows[-1] else self._rows[-1]
            self._rows = kept

    def rewind(self, epoch: int) -> None:
        """Remove the epochs after `epoch`."""
        if self._newest and self._newest["epoch"] > epoch:
            self._newest = {}
        while self._rows and self._rows[-1]["epoch"] > epoch:
            self._rows.pop()

    def columns(self) -> dict[str, list[float | None]]:
        """Columns by name, None where a value is absent or not finite."""
        rows = [*self._rows, self._newest] if self._newest else self._rows
        names = dict.fromkeys(FIXED)
        for row in rows:
            names.update(dict.fromkeys(row))
        return {name: [_finite(row.get(name)) for row in rows] for name in names}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
