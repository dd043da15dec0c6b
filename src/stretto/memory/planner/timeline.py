"""From what is done in each gap to the steps of the compute stream, and the bytes that must be there in each.

A *step* here is one RUN or AGAIN. Nothing has a clock yet: a storage that comes back does so right before the step that
wants it, one that leaves is gone right after its last use. So `must` is the least memory that these choices can work
with; `lower` spends what the budget leaves above it on copying early and leaving late.

What was dropped is recomputed when it is first wanted, with all that it is made from and that is not there, and then
stays until its own next use, so that a chain of dropped storages is run through once. The loop itself is compiled
(`kernels.memory_planner.timeline`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.cached import cached_property
from stretto.kernels.memory_planner.timeline import (
    COMES,
    COUNTS,
    FREES,
    FULL,
    LEAVES,
    MISSED,
    NEVER,
    REMADE,
    START,
    STEPS,
    TOUCHED,
    WalkSpace,
    WalkSteps,
    walked,
)

from .idle_intervals import Gaps, Ints

__all__ = ["NEVER", "CannotRepeat", "Choices", "Steps", "nothing_longer", "walk"]

Choices = np.ndarray[tuple[int], np.dtype[np.int8]]

_TRIES = 20  # walks, of which each finds storages that must be kept longer


@dataclass(frozen=True, eq=False)
class Steps:
    """What a walk found.

    Attributes
    ----------
    kind, node, place : array [steps]
        RUN or AGAIN, the node, and the position that a step serves.
    must : array [steps + 1]
        Bytes that must be there in a step; the end of the program is one more step, without a node.
    free_step, free : array
        Storages that are freed, and the step right before which.
    leave, leave_ready, leave_free, leave_by : array
        Copies to the host: the storage, the step after which it may begin, the one after which the storage is not
        wanted, and the one before which it must be gone.
    come, come_since, come_need : array
        Copies from the host: the storage, the step before which it cannot begin, and the one before which it must end.
    touched, touched_at, remade, remade_at : array
        Gaps whose storages are read to recompute others, and gaps whose storages are recomputed and then stay; with the
        position where.
    start : int
        Bytes before the first step.
    """

    kind: Ints
    node: Ints
    place: Ints
    must: Ints
    free_step: Ints
    free: Ints
    leave: Ints
    leave_ready: Ints
    leave_free: Ints
    leave_by: Ints
    come: Ints
    come_since: Ints
    come_need: Ints
    touched: Ints
    touched_at: Ints
    remade: Ints
    remade_at: Ints
    hosted: Ints
    start: int

    def __len__(self) -> int:
        return len(self.node)

    @property
    def peak(self) -> int:
        """Bytes that must be there at most."""
        return max(self.start, int(self.must.max()))

    @cached_property
    def on_host(self) -> frozenset[int]:
        """Persistent storages whose home is the host."""
        return frozenset(self.hosted.tolist())


class CannotRepeat(Exception):
    """A storage was dropped that can neither be recomputed nor be kept: a fault of the planner."""


def walk(gaps: Gaps, choice: Sequence[int] | Choices, longer: Ints | None = None, patience: int = NEVER) -> Steps:
    """The steps under these choices (KEEP, SWAP or DROP, by gap). patience: what comes from the host only to recompute
    others stays if it is wanted itself within that number of positions; otherwise it goes and comes a second time.

    longer: by storage, the position up to which it is kept after its last use, because others are recomputed from it;
    -1 if it is not. What is missing there is found on the way and added to it.
    """
    longer = nothing_longer(gaps) if longer is None else longer
    chosen = np.ascontiguousarray(choice, np.int8)
    buffers = _Buffers.of(gaps)
    for _ in range(_TRIES):
        space, out, counts = buffers.walked(chosen, longer, patience)
        if not counts[MISSED]:
            return buffers.steps(out, counts)
        np.maximum(longer, space.missed, out=longer)
    missed = np.flatnonzero(space.missed >= 0).tolist()
    raise CannotRepeat(f"storages {missed[:8]} are wanted after they are gone for good")


def nothing_longer(gaps: Gaps) -> Ints:
    """No storage is kept after its last use."""
    return np.full(len(gaps.sizes), -1, np.int64)


class _Buffers:
    """Arrays that walks of one step share; those for results grow where they are too short."""

    def __init__(self, gaps: Gaps) -> None:
        self.arrays = p = gaps.arrays
        nodes, storages = len(p.again), len(p.size)
        reads = len(p.reads)
        lengths = [storages] * 6 + [nodes + 1] * 2 + [nodes + 2] * 2 + [2 * storages + len(gaps) + 1] * 2
        lengths += [reads + 2 * storages + nodes + 2, storages + 1, storages + 1]
        flags: list[Any] = [np.zeros(storages, np.uint8) for _ in range(2)]
        self.space = WalkSpace(*flags, *(np.zeros(n, np.int64) for n in lengths))
        self.counts = np.zeros(COUNTS, np.int64)
        self._grow(4 * nodes + 64)

    @classmethod
    def of(cls, gaps: Gaps) -> _Buffers:
        found: _Buffers = gaps.__dict__.setdefault("_buffers", None) or cls(gaps)
        gaps.__dict__["_buffers"] = found
        return found

    def _grow(self, size: int) -> None:
        self.size = size
        self.out = WalkSteps._make(
            [*(np.empty(size, np.int64) for _ in range(17)), np.zeros(len(self.arrays.size), np.uint8)]
        )

    def walked(self, choice: Choices, longer: Ints, patience: int) -> tuple[WalkSpace, WalkSteps, Ints]:
        while True:
            walked(self.arrays, choice, longer, patience, self.space, self.out, self.counts)
            if not self.counts[FULL]:
                return self.space, self.out, self.counts
            self._grow(2 * self.size)

    def steps(self, out: WalkSteps, counts: Ints) -> Steps:
        """A copy of what was found."""
        steps = int(counts[STEPS])
        lengths = [steps] * 3 + [steps + 1] + [counts[FREES]] * 2 + [counts[LEAVES]] * 4 + [counts[COMES]] * 3
        lengths += [counts[TOUCHED]] * 2 + [counts[REMADE]] * 2
        found: Any = zip(out._fields, out, [*lengths, 0], strict=True)
        arrays = {name: array[:n].copy() for name, array, n in found}
        del arrays["on_host"]
        return Steps(**arrays, hosted=np.flatnonzero(out.on_host), start=int(counts[START]))
