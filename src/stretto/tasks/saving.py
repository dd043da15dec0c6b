"""Checkpoints of a task: states, progress through the tree, what parts keep, and the widths that were found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import whole
from stretto.errors import PlanError
from stretto.runtime.files.run_checkpoints import RunCheckpoints, Saving
from stretto.schedule.stages.width_memory import WidthMemory
from stretto.state.state import State

from .plan import TaskPlan
from .widths import StageWidths

Local = dict[tuple[int, ...], tuple[dict[str, Any], ...]]


class TaskCheckpoints:
    """Writes and reads the checkpoints of one task. resume: whether the run begins with the newest."""

    def __init__(self, checkpoints: RunCheckpoints, resume: bool) -> None:
        self._checkpoints, self.resume = checkpoints, resume
        self._step = 0

    @classmethod
    def of(cls, plan: TaskPlan, seed: int, checkpoint: Any, every: Any, resume: bool) -> TaskCheckpoints | None:
        """From the arguments of `st.run`; None without a folder."""
        if checkpoint is None:
            if resume or every is not None:
                raise PlanError("run: resume= and checkpoint_every= need checkpoint=, the folder to save in")
            return None
        stages = None if every is None else whole("checkpoint_every", every, 1)
        if isinstance(checkpoint, Saving):
            saving = checkpoint
        elif isinstance(checkpoint, str | Path):
            saving = Saving(Path(checkpoint), every_epochs=stages)
        else:
            raise PlanError(f"run: checkpoint={checkpoint!r}; give a folder, or st.Saving(folder)")
        settings = {**plan.settings, "seed": seed}
        return cls(RunCheckpoints(saving, f"{plan.fingerprint}-{seed}", settings), resume)

    def due(self, stages: int) -> bool:
        """Whether a checkpoint is due after this many stages."""
        return self._checkpoints.due(stages)

    def save(
        self,
        position: dict[str, Any],
        states: Mapping[int, State],
        made: Mapping[tuple[int, ...], int],
        local: Local,
        widths: StageWidths,
    ) -> None:
        """Write a checkpoint."""
        arrays: dict[str, NDArray[Any]] = {f"state/{number}": state.array for number, state in states.items()}
        numbers: list[Any] = []
        for place, (path, parts) in enumerate(local.items()):
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
            "made": [[list(path), count] for path, count in made.items()],
            "local": numbers,
            "widths": widths.memory.to_dict(),
        }
        json.dumps(meta)  # a value that cannot be saved is named here and not by the file
        self._checkpoints.save(arrays, meta, self._step)

    def restore(
        self, states: Mapping[int, State], widths: StageWidths
    ) -> tuple[Any, dict[tuple[int, ...], int], Local]:
        """Read the newest checkpoint into the states; (position, iterations made, what parts kept)."""
        found = self._checkpoints.latest()
        meta, arrays = found.meta, found.arrays
        self._step = int(meta["step"])
        for number, state in states.items():
            state.array[...] = arrays[f"state/{number}"]
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
        return meta["position"], {tuple(path): count for path, count in meta["made"]}, local
