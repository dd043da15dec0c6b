"""`WidthMemory`: the best widths of earlier searches, per stage and batch size.

    memory = WidthMemory()
    search = memory.search("gradient", batch=10_000, widest=64, total=500)
    ...                                                   # the stage runs
    memory.remember("gradient", 10_000, search)
    saved = memory.to_dict()                              # for a checkpoint

The best width moves with the batch size, so each has its own. A stage with another batch size starts its search at the
best width of the nearest one. So does a stage of which nothing is known, where stages that are `like` it have run with
other batch sizes: phases of one algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stretto.errors import CheckpointError

from .width_search import WidthSearch


@dataclass(frozen=True)
class KnownWidth:
    """The result of a search."""

    width: int  # the best
    seconds: float  # median of an iteration at it
    widest: int  # that was available


class WidthMemory:
    """The best widths by stage and batch size. Two memories with the same content are equal."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, KnownWidth]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WidthMemory) and self._known == other._known

    __hash__ = None  # type: ignore[assignment]  # it changes

    def search(
        self, stage: str, batch: int, widest: int, *, total: int | None = None, like: str | None = None, **options: Any
    ) -> WidthSearch:
        """A search for a stage, with what is known of it.

        Parameters
        ----------
        stage : str
            Its name.
        batch : int
            Its batch size.
        widest : int
            Workers that are available.
        total : int or None, default None
            Its iterations; None: not known.
        like : str or None, default None
            How the names of stages begin that are like this one; None: there are none.
        **options
            Further parameters of `WidthSearch`.
        """
        known = self.recall(stage, batch)
        if known is not None and _holds(known, widest):
            return WidthSearch(widest, total=total, known=known.width, **options)
        near = self._nearest(stage, batch, like if batch else None)
        if near is not None:
            options["start"] = min(near.width, widest)
        return WidthSearch(widest, total=total, **options)

    def remember(self, stage: str, batch: int, search: WidthSearch) -> bool:
        """Keep the result of a search; whether it has one: it is over, and it has compared widths."""
        if not search.settled or len(search.times.widths) < 2:
            return False
        seconds = search.times.median(search.best)
        self._known.setdefault(stage, {})[batch] = KnownWidth(search.best, seconds, search.widest)
        return True

    def recall(self, stage: str, batch: int) -> KnownWidth | None:
        """What is known of a stage with this batch size."""
        return self._known.get(stage, {}).get(batch)

    def _nearest(self, stage: str, batch: int, like: str | None) -> KnownWidth | None:
        """What is known of the stage with the batch size whose ratio to this one is nearest to 1."""
        known = dict(self._known.get(stage, {}))
        if not known and like is not None:
            for name, batches in sorted(self._known.items()):
                if name.startswith(like):
                    known.update((size, found) for size, found in batches.items() if size)
        return min(
            known.items(), key=lambda item: (abs(math.log(max(1, item[0]) / max(1, batch))), item[0]), default=(0, None)
        )[1]

    def to_dict(self) -> dict[str, Any]:
        """The content, as lists and numbers."""
        return {
            "widths": [
                [stage, batch, known.width, known.seconds, known.widest]
                for stage, batches in sorted(self._known.items())
                for batch, known in sorted(batches.items())
            ]
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> WidthMemory:
        """A memory from `to_dict`."""
        made = cls()
        try:
            for stage, batch, width, seconds, widest in saved["widths"]:
                made._known.setdefault(str(stage), {})[int(batch)] = KnownWidth(int(width), float(seconds), int(widest))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the saved widths of stages cannot be read ({error}); leave them out, and they are searched anew"
            ) from None
        return made


def _holds(known: KnownWidth, widest: int) -> bool:
    """Whether the result of a search also answers for this number of workers."""
    return known.width <= widest and (known.width < known.widest or known.widest == widest)
