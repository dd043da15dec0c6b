"""Seconds between stages, and when Ctrl-C was pressed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

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


def unique_name(what: str) -> str:
    """A name that no other process and no earlier call has."""
    return f"{what}-{uuid.uuid4().hex[:12]}"
