"""The widths of the stages of a task: as given, or measured while they run.

A unit with workers="auto" is divided into sub-stages. Each makes some of its iterations with another width, so nothing
that is computed is thrown away; `width_search` decides. The best width is remembered by unit and batch size, and the
next turn of a loop begins with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .tree import Unit


class SubStage:
    """Some iterations of a unit at one width. `measured` is called with the seconds that they took."""

    def __init__(self, width: int, iterations: int, reason: str, first: bool) -> None:
        self.width, self.iterations, self.reason, self.first = width, iterations, reason, first
        self.seconds: float | None = None

    def measured(self, seconds: float) -> None:
        """The sub-stage has ended."""
        self.seconds = seconds


class StageWidths:
    """Divides units into sub-stages. memory: the best width by unit and batch size, as plain data."""

    def __init__(self, widest: int) -> None:
        self.widest = widest
        self.memory: dict[str, Any] = {}
        self._loops: dict[tuple[int, int], Any] = {}

    def sub_stages(self, unit: Unit, path: tuple[int, ...]) -> Iterator[SubStage]:
        """The sub-stages of one run of a unit."""
        if unit.workers != "auto":
            yield SubStage(0, unit.iterations, "as given" if unit.workers else "all workers", True)
            return
        raise NotImplementedError

    def loop(self, unit: Unit, width: int, make: Callable[[], Any]) -> Any:
        """The loop of a unit for a width: its analysis is kept."""
        key = id(unit), width
        if key not in self._loops:
            self._loops[key] = make()
        return self._loops[key]
