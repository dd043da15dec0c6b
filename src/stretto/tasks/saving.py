"""Checkpoints of a task: states, progress through the tree, what parts keep, and the widths that were found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.checks import whole
from stretto.errors import PlanError
from stretto.runtime.files.run_checkpoints import RunCheckpoints, Saving
from stretto.runtime.stages.stage_clock import seconds_of
from stretto.schedule.stages.width_memory import WidthMemory
from stretto.state.state import State

from .plan import TaskPlan
from .widths import StageWidths

Local = dict[tuple[int, ...], tuple[dict[str, Any], ...]]


class SavedProgress(Protocol):
    """What is saved of a task besides its states and its place in the tree."""

    made: dict[tuple[int, ...], int]  # by path: iterations so far
    local: Local  # by path: what the parts kept
    in_unit: dict[tuple[int, ...], int]  # by path: iterations of a unit that has not ended
    iterations: int
    tuning: dict[str, Any]  # by loop: what its adaptive controller knows


class TaskCheckpoints:
    """Writes and reads the checkpoints of one task.

    resume: whether the run begins with the newest. iterations: between two checkpoints; None where stages or seconds
    count.
    """

    def __init__(self, checkpoints: RunCheckpoints, resume: bool, iterations: int | None = None) -> None:
        self._checkpoints, self.resume, self.iterations = checkpoints, resume, iterations
        self._step = 0

    @classmethod
    def of(cls, plan: TaskPlan, seed: int, checkpoint: Any, every: Any, resume: bool) -> TaskCheckpoints | None:
        """From the arguments of `st.run`; None without a folder."""
        if checkpoint is None:
            if resume or every is not None:
                raise PlanError("run: resume= and checkpoint_every= need checkpoint=, the folder to save in")
            return None
        interval = _interval(every)
        if isinstance(checkpoint, Saving):
            saving = checkpoint
        elif isinstance(checkpoint, str | Path):
            saving = Saving(Path(checkpoint), every_epochs=interval.stages, every_seconds=interval.seconds)
        else:
            raise PlanError(f"run: checkpoint={checkpoint!r}; give a folder, or st.Saving(folder)")
        settings = {**plan.settings, "seed": seed}
        return cls(RunCheckpoints(saving, f"{plan.fingerprint}-{seed}", settings), resume, interval.iterations)

    def due(self, stages: int, iterations: int) -> bool:
        """Whether a checkpoint is due, this many stages and iterations after the last."""
        if self.iterations is not None:
            return iterations >= self.iterations
        every = self._checkpoints.saving.every_epochs
        if every is not None:
            return stages >= every
        left = self._checkpoints.seconds_left()
        return left is not None and left <= 0

    def seconds_left(self) -> float | None:
        """Seconds until the next checkpoint is due; None where only stages or iterations count."""
        return None if self.iterations is not None else self._checkpoints.seconds_left()

    def save(
        self,
        position: dict[str, Any],
        states: Mapping[int, State],
        progress: SavedProgress,
        widths: StageWidths,
    ) -> None:
        """Write a checkpoint."""
        # By order: numbers of states differ from session to session.
        arrays: dict[str, NDArray[Any]] = {f"state/{k}": state.array for k, state in enumerate(states.values())}
        numbers: list[Any] = []
        for place, (path, parts) in enumerate(progress.local.items()):
            plain = []
            for part, kept in enumerate(parts):
                plain.append({name: value for name, value in kept.items() if not isinstance(value, np.ndarray)})
                for name, value in kept.items():
                    if isinstance(value, np.ndarray):
                        arrays[f"local/{place}/{part}/{name}"] = value
            numbers.append([list(path), plain])
        self._step += 1
        meta = {
            "step": self._step,
            "epoch": self._step,
            "position": position,
            "made": [[list(path), count] for path, count in progress.made.items()],
            "in_unit": [[list(path), count] for path, count in progress.in_unit.items()],
            "iterations": progress.iterations,
            "local": numbers,
            "widths": widths.memory.to_dict(),
            "tuning": progress.tuning,
        }
        json.dumps(meta)  # a value that cannot be saved is named here and not by the file
        self._checkpoints.save(arrays, meta, self._step)

    def restore(self, states: Mapping[int, State], progress: SavedProgress, widths: StageWidths) -> Any:
        """Read the newest checkpoint into the states and the progress; returns the place in the tree."""
        found = self._checkpoints.latest()
        meta, arrays = found.meta, found.arrays
        self._step = int(meta["step"])
        for k, state in enumerate(states.values()):
            state.array[...] = arrays[f"state/{k}"]
        widths.memory = WidthMemory.from_dict(meta["widths"])
        local: Local = {}
        for place, (path, plain) in enumerate(meta["local"]):
            parts = [dict(kept) for kept in plain]
            for name, value in arrays.items():
                kind, _, rest = name.partition("/")
                if kind == "local" and rest.startswith(f"{place}/"):
                    part, _, called = rest.partition("/")[2].partition("/")
                    parts[int(part)][called] = np.array(value)
            local[tuple(path)] = tuple(parts)
        progress.made.update({tuple(path): count for path, count in meta["made"]})
        progress.in_unit.update({tuple(path): count for path, count in meta["in_unit"]})
        progress.local.update(local)
        progress.iterations = int(meta["iterations"])
        progress.tuning = dict(meta["tuning"])
        return meta["position"]


class _Interval(NamedTuple):
    """Between two checkpoints: one of the three, or none of them where the interval is chosen."""

    stages: int | None = None
    iterations: int | None = None
    seconds: float | None = None


def _interval(every: Any) -> _Interval:
    """Read checkpoint_every: 5 (stages), "100 iterations", "30s"."""
    if every is None:
        return _Interval()
    if not isinstance(every, str):
        return _Interval(stages=whole("checkpoint_every", every, 1))
    count, _, unit = every.strip().partition(" ")
    if unit.strip() in ("iterations", "iteration", "stages", "stage") and count.isdecimal() and int(count) >= 1:
        return _Interval(**{unit.strip().rstrip("s") + "s": int(count)})
    try:
        seconds = seconds_of(every)
    except (PlanError, ValueError) as error:
        raise PlanError(
            f"run: checkpoint_every={every!r}; give a number of stages, or text such as '100 iterations' or '30s'"
        ) from error
    return _Interval(seconds=seconds)
