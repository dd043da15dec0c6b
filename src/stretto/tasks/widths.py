"""The widths of the stages of a task: as given, or measured while they run.

A unit with workers="auto" is divided into sub-stages. Each makes some of its iterations with another width, so nothing
that is computed is thrown away; `width_search` decides. The best width is remembered by unit and batch size, and the
next turn of a loop begins with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stretto.schedule.stages.width_memory import WidthMemory
from stretto.schedule.stages.width_search import WidthSearch

from .tree import Unit

_PORTION = 10  # iterations of a sub-stage at most
_START = 0.01  # seconds, of which starting the workers of a sub-stage is a small part
_SHORT = 2  # at least: in a short stage each iteration at a bad width counts more


@dataclass(eq=False)
class SubStageRun:
    """Some iterations of a unit at one width; 0: as the unit says. `seconds` is set when they have run."""

    width: int
    iterations: int
    reason: str
    first: bool  # of the sub-stages of one run of the unit
    seconds: float = 0.0


class StageWidths:
    """Divides units into sub-stages. memory: the best widths by unit and batch size."""

    def __init__(self, widest: Callable[[], int], node: int | None = None, virtual: bool = False) -> None:
        self._widest = widest  # workers of all nodes, of which some may join or leave
        self._node = node  # workers of a node
        self._start = 0.0 if virtual else _START  # in virtual time starting workers takes none
        self.memory = WidthMemory()
        self._loops: dict[tuple[int, int], Any] = {}

    def sub_stages(self, unit: Unit, name: str, done: int = 0) -> Iterator[SubStageRun]:
        """The sub-stages of one run of a unit. name: under which its width is remembered. done: iterations before."""
        left = unit.iterations - done
        if unit.workers != "auto":
            yield SubStageRun(0, left, "as given" if unit.workers else "all workers", not done)
            return
        widest = self._widest() if unit.is_loop else min(self._widest(), unit.parts)
        search = self.memory.search(
            name,
            unit.batch or 0,
            widest,
            total=left,
            iterations=min(_PORTION, max(_SHORT, left // 5)),
            portion=min(_PORTION, max(_SHORT, left // 50)),
            node=self._node,
            least_seconds=self._start,
            like=f"{unit.name} at ",
        )
        yield from _searched(search, not done)
        self.memory.remember(name, unit.batch or 0, search)

    def loop(self, unit: Unit, width: int, make: Callable[[], Any]) -> Any:
        """The loop of a unit for a width: its analysis is kept."""
        key = id(unit), width
        if key not in self._loops:
            self._loops[key] = make()
        return self._loops[key]


def _searched(search: WidthSearch, first: bool) -> Iterator[SubStageRun]:
    while search.left:
        part = search.next()
        sub = SubStageRun(part.width, part.iterations, search.reason, first)
        yield sub
        search.measured(part.width, sub.seconds, part.iterations)
        first = False
