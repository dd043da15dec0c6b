"""Run records for tests of the pages, written by the listener itself from events that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stretto.observe.events import CheckpointSaved, EpochDone, Event, PassDone, PlanMade, RunEnded, RunStarted, Warned
from stretto.observe.page.tail import RecordTail
from stretto.observe.record import RunRecord

BLOCKS = np.array([[row, column] for row in range(4) for column in range(4)])


def visits(workers: int = 2, length: int = 1_000_000) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[16, 4] visit, worker, start and end: workers take turns, the last one is idle for half of the time."""
    rows = []
    for number in range(len(BLOCKS)):
        worker, turn = number % workers, number // workers
        wide = length // 2 if worker == workers - 1 else length
        rows.append((number, worker, 5_000_000 + turn * length, 5_000_000 + turn * length + wide))
    return np.array(rows, dtype=np.int64)


def events(epochs: int = 6, *, config: dict[str, Any] | None = None, status: str | None = "done") -> Iterator[Event]:
    """The events of a run; without an end if `status` is None."""
    yield RunStarted(1000.0, config or {"estimator": "Made", "seed": 3})
    yield PlanMade("f00d", "plan f00d: made\n  grade identical", "exact", BLOCKS)
    for epoch in range(1, epochs + 1):
        yield PassDone(1000.0 + 2 * epoch, epoch, "sgd", 0.5, 100, visits())
        yield EpochDone(1000.0 + 2 * epoch, epoch, epochs, 0.5, 100, 8.0 / epoch, {"test_rmse": 1.0 + 1.0 / epoch})
    yield CheckpointSaved(1000.0 + 2 * epochs, "checkpoints/6", epochs, 12_345, 0.1)
    yield Warned("the disk is slow")
    if status is not None:
        yield RunEnded(1001.0 + 2 * epochs, status)  # type: ignore[arg-type]


def record(folder: Path, *more: Event, **of: Any) -> Path:
    """Write the record of a made-up run."""
    kept = RunRecord(folder)
    for event in (*events(**of), *more):
        kept(event)
    kept.close()
    return folder


def state_of(folder: Path) -> dict[str, Any]:
    """What the page takes of a record."""
    tail = RecordTail(folder)
    tail.poll()
    return tail.state(folder.name)
