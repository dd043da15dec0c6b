"""Checkpoints of a run with tables, on disk.

A cut is everything at one clock: the shard's rows with exactly the updates of earlier clocks, what rounding left in the
cache's buffers, shared tables, and of each worker its local arrays and numbers, where its batches stood, and whether it
had ended. It lies in one checkpoint folder (see `checkpoint`): whole or not at all, and checked when it is read.
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

from .job import Keeping, Watched

Arrays = dict[str, NDArray[Any]]


@dataclass(eq=False)
class Part:
    """A worker's part. unticked: it has ended, having added something since its last tick."""

    local: dict[str, Any] = field(default_factory=dict)
    cursors: list[list[int]] = field(default_factory=list)
    clock: int = 0
    ended: bool = False
    unticked: bool = False

    def copy(self) -> Part:
        """As it is now."""
        return deepcopy(self)


@dataclass(eq=False)
class Cut:
    """Everything at a clock, of all nodes together."""

    clock: int
    parts: dict[int, Part] = field(default_factory=dict)
    node: NodePart | None = None
    shared: dict[int, NDArray[Any]] = field(default_factory=dict)
    history: list[Watched] = field(default_factory=list)
    seconds: float = 0.0
    items: float = 0.0


class Shelf:
    """The folder that cuts are saved in and read from. at_end: all workers had ended in the one saved last."""

    def __init__(self, keeping: Keeping) -> None:
        self.keeping = keeping
        self.at_end = False
        self._checkpoints = keeping.checkpoints()

    def save(self, cut: Cut) -> float:
        """Write a cut; seconds that it took. A disk that refuses is reported; the run goes on."""
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
                f"what workers keep in w.local cannot be saved: {error}; keep arrays, numbers and text there"
            ) from error
        self.at_end = all(part.ended for part in cut.parts.values())
        return time.perf_counter() - began

    def begin(self) -> Cut:
        """Where the run begins: at the newest cut if it is to be resumed.

        If that is of a run that had ended, workers are called again where they stopped: with `w.clocks(20)` in place of
        `w.clocks(10)` there are ten clocks more, and with nothing more to do they return at once. A worker that added
        something after its last tick is not called: it would be added twice. Where workers had ended at different
        clocks, none is: rows hold later clocks than the first of them had seen.
        """
        cut = self._latest() if self.keeping.resume else Cut(0)
        clocks = {part.clock for part in cut.parts.values()}
        if cut.node is not None and len(clocks) == 1 and all(part.ended for part in cut.parts.values()):
            cut.clock = cut.node.clock = clocks.pop()
            for part in cut.parts.values():
                part.ended = part.unticked
        return cut

    def _latest(self) -> Cut:
        """The newest cut that is whole. Damaged ones are reported and passed over."""
        found = self._checkpoints.latest()
        meta = found.meta
        named = [(name.split("/", 1), array) for name, array in found.arrays.items()]
        kept: dict[str, Arrays] = {"shard": {}, "residual": {}, "shared": {}, "local": {}}
        for (kind, name), array in named:
            kept[kind][name] = np.array(array)  # large ones are mapped read-only
        cut = Cut(
            int(meta["clock"]),
            node=NodePart(int(meta["clock"]), kept["shard"], kept["residual"]),
            shared={int(table): array for table, array in kept["shared"].items()},
            history=[Watched(int(c), float(s), int(b), float(o)) for c, s, b, o in meta["history"]],
            seconds=float(meta["seconds"]),
            items=float(meta["items"]),
        )
        for worker, part in enumerate(meta["workers"]):
            local = dict(part["numbers"])
            for name, array in kept["local"].items():
                whose, inner = name.split("/", 1)
                if int(whose) == worker:
                    local[inner] = array
            unticked = bool(part.get("unticked", True))  # checkpoints of old do not say
            cut.parts[worker] = Part(local, part["cursors"], int(part["clock"]), bool(part["ended"]), unticked)
        return cut
