"""Seconds between stages, when safe points are due, and when Ctrl-C was pressed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from stretto.comm import units
from stretto.runtime.files.checkpoint import interval_seconds
from stretto.runtime.interrupts import heeding_ctrl_c


class StageClock:
    """Measures what lies between the end of a stage and the start of the next."""

    def __init__(self) -> None:
        self._ended: float | None = None

    def between(self) -> float:
        """Seconds since the stage before has ended; 0 before the first."""
        return 0.0 if self._ended is None else time.perf_counter() - self._ended

    def ended(self) -> None:
        """A stage has ended now."""
        self._ended = time.perf_counter()


class SafePointTimer:
    """When the next safe point is due: √(2·T_save·T_fail/N) after the last, from how long the last one took."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._took = 0.05  # estimated seconds before the first
        self._began = self._last = time.monotonic()

    def left(self) -> float:
        """Seconds until the next is due."""
        return interval_seconds(self._took, nodes=self._nodes) - (time.monotonic() - self._last)

    def begin(self) -> None:
        """A safe point begins now."""
        self._began = time.monotonic()

    def end(self) -> None:
        """It has ended."""
        self._last = time.monotonic()
        self._took = self._last - self._began


class _Asked:
    """Remembers that Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        """Ctrl-C was pressed."""
        self.asked = True


@contextmanager
def stopping() -> Iterator[_Asked]:
    """Ctrl-C sets `asked`: the task stops after the stage that runs."""
    asked = _Asked()
    with heeding_ctrl_c(asked) as ctrl_c:
        yield asked
        ctrl_c.heard()


def seconds_of(text: str) -> float:
    """Seconds of a text such as "30s" or "2min"."""
    return units.seconds(text)


def unique_name(what: str) -> str:
    """A name that no other process and no earlier call has."""
    return f"{what}-{uuid.uuid4().hex[:12]}"
