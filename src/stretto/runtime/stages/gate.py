"""`StageGate`: stages wait here until the scheduler gives them workers.

    gate = StageGate(scheduler)
    assignment = gate.enter(request)            # waits
    …                                           # the stage runs
    gate.leave(request)

The scheduler decides (`schedule.stages.stage_scheduler`). The gate knows what time it is, and wakes the threads that
wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any

from stretto.errors import RunError


class StageCancelled(RunError):
    """The task of a stage was cancelled while the stage waited."""


class StageGate:
    """Shared by all tasks that run at the same time."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._changed = threading.Condition()
        self._assigned: dict[tuple[str, str], Any] = {}
        self._cancelled: set[str] = set()
        self._began = time.monotonic()

    def enter(self, request: Any) -> Any:
        """Submit a stage and wait for its assignment."""
        with self._changed:
            if request.task in self._cancelled:
                raise StageCancelled(f"{request.name} was cancelled")
            self._scheduler.submit(self._now(), request)
            self._schedule()
            while request.key not in self._assigned:
                if request.task in self._cancelled:
                    raise StageCancelled(f"{request.name} was cancelled")
                due = self._scheduler.due_at
                self._changed.wait(None if due is None else max(0.0, due - self._now()))
                self._schedule()
            return self._assigned.pop(request.key)

    def leave(self, request: Any) -> None:
        """A stage has ended: its workers are free."""
        with self._changed:
            self._scheduler.finished(self._now(), request.task, request.stage)
            self._schedule()
            self._changed.notify_all()

    def cancel(self, task: str) -> None:
        """Drop the stages of a task that wait; one that runs ends by itself."""
        with self._changed:
            self._cancelled.add(task)
            self._scheduler.cancel(self._now(), task)
            self._changed.notify_all()

    def holds(self, data: str, nodes: Collection[int]) -> None:
        """Nodes hold parts of a data set: stages that use it go there if they can."""
        with self._changed:
            for number, slots in self._scheduler.nodes.items():
                if number in nodes:
                    self._scheduler.node_data(self._now(), number, slots.data | {data})

    def joined(self, node: Any) -> None:
        """A node has joined; node: its NodeSlots."""
        with self._changed:
            self._scheduler.node_joined(self._now(), node)
            self._schedule()

    def leaves(self, number: int) -> None:
        """A node takes no new stages; returns when those that run on it have ended."""
        with self._changed:
            self._scheduler.node_left(self._now(), number, drain=True)
            while number in self._scheduler.nodes:
                self._changed.wait()

    def _schedule(self) -> None:
        for assignment in self._scheduler.schedule(self._now()):
            self._assigned[assignment.key] = assignment
            self._changed.notify_all()

    def _now(self) -> float:
        return time.monotonic() - self._began
