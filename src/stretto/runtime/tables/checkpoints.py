"""Save and load checkpoints (cuts) of a job over tables.

A cut is the complete state at one clock: the shard's rows with exactly the updates of earlier clocks, rounding
residuals of the cache, shared tables, and of each worker its local arrays and numbers, the positions of its batches,
and whether it had ended. It is stored in one checkpoint folder (see `runtime.files.checkpoint`): written atomically,
and verified when it is read.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import CheckpointError
from stretto.store.node import NodePart

from .job import CheckpointSettings, TableEvaluation

Arrays = dict[str, NDArray[Any]]


@dataclass(eq=False)
class WorkerState:
    """A worker's part of a cut."""

    local: dict[str, Any] = field(default_factory=dict)  # arrays and numbers of the worker
    cursors: list[list[int]] = field(default_factory=list)  # positions of its batches
    clock: int = 0
    ended: bool = False
    unticked: bool = False  # it has ended, and added something after its last tick

    def copy(self) -> WorkerState:
        """A copy of the current values."""
        return deepcopy(self)


@dataclass(eq=False)
class TableCheckpoint:
    """The complete state at a clock, of all nodes together."""

    clock: int
    parts: dict[int, WorkerState] = field(default_factory=dict)
    node: NodePart | None = None
    shared: dict[int, NDArray[Any]] = field(default_factory=dict)
    history: list[TableEvaluation] = field(default_factory=list)
    seconds: float = 0.0
    items: float = 0.0


class CheckpointFolder:
    """Saves cuts into a folder and loads them. `at_end`: all workers had ended in the cut saved last."""

    def __init__(self, keeping: CheckpointSettings) -> None:
        self.keeping = keeping
        self.at_end = False
        self._checkpoints = keeping.checkpoints()

    def save(self, cut: TableCheckpoint) -> float:
        """Write a cut; return the seconds it took. A failing disk is reported, and the run goes on."""
        assert cut.node is not None
        arrays: Arrays = {f"shard/{name}": array for name, array in cut.node.shard.items()}
        arrays |= {f"residual/{name}": array for name, array in cut.node.residuals.items()}
        arrays |= {f"shared/{table}": array for table, array in cut.shared.items()}
        numbers: list[dict[str, Any]] = []
        for worker in range(len(cut.parts)):
            part = cut.parts[worker]
            plain = {}
            for name, value in part.local.items():
                if isinstance(value, np.ndarray):
                    arrays[f"local/{worker}/{name}"] = value
                else:
                    plain[name] = value
            numbers.append(
                {
                    "numbers": plain,
                    "cursors": part.cursors,
                    "clock": part.clock,
                    "ended": part.ended,
                    "unticked": part.unticked,
                }
            )
        meta = {
            "step": cut.clock,
            "clock": cut.clock,
            "workers": numbers,
            "seconds": cut.seconds,
            "items": cut.items,
            "history": [[look.clock, look.seconds, look.bytes, look.objective] for look in cut.history],
        }
        began = time.perf_counter()
        try:
            self._checkpoints.save(arrays, meta, cut.clock)
        except TypeError as error:
            raise CheckpointError(
                f"w.local cannot be saved in a checkpoint: {error}; keep only arrays, numbers and text in it"
            ) from error
        self.at_end = all(part.ended for part in cut.parts.values())
        return time.perf_counter() - began

    def begin(self) -> TableCheckpoint:
        """The cut that the run starts from: the newest one if it is to be resumed.

        If all workers had ended in that cut, they are called again where they stopped: with `w.clocks(20)` in place of
        `w.clocks(10)` there are ten more clocks, and without further work they return at once. A worker that added
        something after its last tick is not called: its change would be added twice. Where workers had ended at
        different clocks, none is called: the rows contain later clocks than the first of them had seen.
        """
        cut = self._latest() if self.keeping.resume else TableCheckpoint(0)
        clocks = {part.clock for part in cut.parts.values()}
        if cut.node is not None and len(clocks) == 1 and all(part.ended for part in cut.parts.values()):
            cut.clock = cut.node.clock = clocks.pop()
            for part in cut.parts.values():
                part.ended = part.unticked
        return cut

    def _latest(self) -> TableCheckpoint:
        """The newest valid cut. Damaged ones are reported and skipped."""
        found = self._checkpoints.latest()
        meta = found.meta
        named = [(name.split("/", 1), array) for name, array in found.arrays.items()]
        kept: dict[str, Arrays] = {"shard": {}, "residual": {}, "shared": {}, "local": {}}
        for (kind, name), array in named:
            kept[kind][name] = np.array(array)  # large ones are mapped read-only
        cut = TableCheckpoint(
            int(meta["clock"]),
            node=NodePart(int(meta["clock"]), kept["shard"], kept["residual"]),
            shared={int(table): array for table, array in kept["shared"].items()},
            history=[TableEvaluation(int(c), float(s), int(b), float(o)) for c, s, b, o in meta["history"]],
            seconds=float(meta["seconds"]),
            items=float(meta["items"]),
        )
        for worker, part in enumerate(meta["workers"]):
            local = dict(part["numbers"])
            for name, array in kept["local"].items():
                whose, inner = name.split("/", 1)
                if int(whose) == worker:
                    local[inner] = array
            unticked = bool(part.get("unticked", True))  # old checkpoints lack it
            cut.parts[worker] = WorkerState(local, part["cursors"], int(part["clock"]), bool(part["ended"]), unticked)
        return cut
