"""Report the stages of a task to the listeners of a session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stretto.observe.events import EpochDone, Listener, StageDone


class StageListener:
    """Called with every stage that has ended. The values of the first unit that has any are the objective.

    tell: where events go. on_stage: the user's own function.
    """

    def __init__(self, tell: Listener, on_stage: Callable[[Any], None] | None = None) -> None:
        self._tell, self._on_stage = tell, on_stage
        self._seconds = 0.0
        self._epochs, self._before = 0, 0.0
        self._objective = ""  # the unit
        self._iterations = 0  # since the last value

    def __call__(self, record: Any) -> None:
        """Report a `StageRecord`."""
        now = time.time()
        self._seconds += record.transition + record.seconds
        self._iterations += record.iterations
        self._tell(
            StageDone(
                now,
                self._seconds,
                record.unit,
                record.width,
                len(record.nodes),
                record.seconds,
                record.iterations,
                record.reason,
                record.value,
                record.moved,
                record.sent,
                record.staleness,
            )
        )
        if record.value is not None and (self._objective or record.unit) == record.unit:
            self._objective = record.unit
            self._epochs += 1
            seconds, self._before = self._seconds - self._before, self._seconds
            items, self._iterations = self._iterations, 0
            self._tell(EpochDone(now, self._epochs, self._epochs, seconds, items, record.value))
        if self._on_stage is not None:
            self._on_stage(record)
