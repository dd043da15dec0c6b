"""Build the timeline of a step from the choice in each idle interval: what runs, what is copied, the bytes required.

A *step* here is one RUN or RECOMPUTE. Nothing has a clock yet: a storage that comes back does so right before
the step that needs it, and one that leaves is gone right after its last use. So `required` is the least memory that
these choices can work with. `lower` spends what the budget leaves above it on early copies and late eviction.

A dropped storage is recomputed when it is first needed, with everything that it is made from and that is not resident.
It then stays until its own next use, so that a chain of dropped storages runs once. The loop itself is compiled
(`kernels.memory_planner.timeline`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.cached import cached_property
from stretto.kernels.memory_planner.timeline import (
    COUNTS,
    FREES,
    FULL,
    MISSED,
    NEVER,
    RECOMPUTED,
    START,
    STEPS,
    SWAP_INS,
    SWAP_OUTS,
    TOUCHED,
    TimelineSpace,
    TimelineSteps,
    timeline,
)

from .idle_intervals import Gaps, Ints

__all__ = ["NEVER", "CannotRepeat", "Choices", "Timeline", "build_timeline", "nothing_kept"]

Choices = np.ndarray[tuple[int], np.dtype[np.int8]]

_TRIES = 20  # passes, each of which finds storages that must be kept longer


@dataclass(frozen=True, eq=False)
class Timeline:
    """The timeline of one step.

    Attributes
    ----------
    kind, node, position : array [steps]
        RUN or RECOMPUTE, the node, and the position that a step serves.
    required : array [steps + 1]
        Bytes that must be resident in a step; the end of the program is one more step, without a node.
    free_step, free : array
        Storages that are freed, and the step right before which.
    swap_out, swap_out_ready, swap_out_free, swap_out_by : array
    Copies to the host: the storage, the step after which the copy may begin, the one after which the storage is
        not needed, and the one before which it must be gone.
    swap_in, swap_in_since, swap_in_need : array
        Copies from the host: the storage, the step before which the copy cannot begin, and the one before which it must
        end.
    touched, touched_at, recomputed, recomputed_at : array
        Intervals whose storages are read to recompute others, and intervals whose storages are recomputed and then
        stay; with the position of each.
    hosted : array
        Persistent storages that are stored on the host between steps.
    start : int
        Bytes before the first step.
    """

    kind: Ints
    node: Ints
    position: Ints
    required: Ints
    free_step: Ints
    free: Ints
    swap_out: Ints
    swap_out_ready: Ints
    swap_out_free: Ints
    swap_out_by: Ints
    swap_in: Ints
    swap_in_since: Ints
    swap_in_need: Ints
    touched: Ints
    touched_at: Ints
    recomputed: Ints
    recomputed_at: Ints
    hosted: Ints
    start: int

    def __len__(self) -> int:
        return len(self.node)

    @property
    def peak(self) -> int:
        """The most bytes that must be resident."""
        return max(self.start, int(self.required.max()))

    @cached_property
    def on_host(self) -> frozenset[int]:
        """Persistent storages that are stored on the host between steps."""
        return frozenset(self.hosted.tolist())


class CannotRepeat(Exception):
    """A storage was dropped that can neither be recomputed nor kept: a bug in the planner."""


def build_timeline(
    intervals: Gaps, choice: Sequence[int] | Choices, kept_until: Ints | None = None, reuse_window: int = NEVER
) -> Timeline:
    """The timeline under these choices.

    Parameters
    ----------
    intervals : Gaps
        Idle intervals of the step.
    choice : sequence of int
        By interval: KEEP, SWAP or DROP.
    kept_until : array [storages], optional
        The position up to which a storage is kept after its last use, because others are recomputed from it; -1 if it
        is not. Entries that turn out to be missing are added.
    reuse_window : int
        A storage that comes from the host only to recompute others stays if it is needed itself within that number of
        positions. Otherwise it is freed and copied a second time.
    """
    kept_until = nothing_kept(intervals) if kept_until is None else kept_until
    chosen = np.ascontiguousarray(choice, np.int8)
    buffers = _Buffers.of(intervals)
    for _ in range(_TRIES):
        space, out, counts = buffers.timeline(chosen, kept_until, reuse_window)
        if not counts[MISSED]:
            return buffers.steps(out, counts)
        np.maximum(kept_until, space.missed, out=kept_until)
    missed = np.flatnonzero(space.missed >= 0).tolist()
    raise CannotRepeat(f"storages {missed[:8]} are needed after their last copy is gone; please report this model")


def nothing_kept(intervals: Gaps) -> Ints:
    """No storage is kept after its last use."""
    return np.full(len(intervals.sizes), -1, np.int64)


class _Buffers:
    """Arrays that all timelines of one step share; those for results grow where they are too short."""

    def __init__(self, intervals: Gaps) -> None:
        self.arrays = p = intervals.arrays
        nodes, storages = len(p.recomputable), len(p.size)
        reads = len(p.reads)
        lengths = [storages] * 6 + [nodes + 1] * 2 + [nodes + 2] * 2 + [2 * storages + len(intervals) + 1] * 2
        lengths += [reads + 2 * storages + nodes + 2, storages + 1, storages + 1]
        flags: list[Any] = [np.zeros(storages, np.uint8) for _ in range(2)]
        self.space = TimelineSpace(*flags, *(np.zeros(n, np.int64) for n in lengths))
        self.counts = np.zeros(COUNTS, np.int64)
        self._grow(4 * nodes + 64)

    @classmethod
    def of(cls, intervals: Gaps) -> _Buffers:
        found: _Buffers = intervals.__dict__.setdefault("_buffers", None) or cls(intervals)
        intervals.__dict__["_buffers"] = found
        return found

    def _grow(self, size: int) -> None:
        self.size = size
        self.out = TimelineSteps._make(
            [*(np.empty(size, np.int64) for _ in range(17)), np.zeros(len(self.arrays.size), np.uint8)]
        )

    def timeline(
        self, choice: Choices, kept_until: Ints, reuse_window: int
    ) -> tuple[TimelineSpace, TimelineSteps, Ints]:
        while True:
            timeline(self.arrays, choice, kept_until, reuse_window, self.space, self.out, self.counts)
            if not self.counts[FULL]:
                return self.space, self.out, self.counts
            self._grow(2 * self.size)

    def steps(self, out: TimelineSteps, counts: Ints) -> Timeline:
        """A copy of the timeline."""
        steps = int(counts[STEPS])
        lengths = [steps] * 3 + [steps + 1] + [counts[FREES]] * 2 + [counts[SWAP_OUTS]] * 4 + [counts[SWAP_INS]] * 3
        lengths += [counts[TOUCHED]] * 2 + [counts[RECOMPUTED]] * 2
        found: Any = zip(out._fields, out, [*lengths, 0], strict=True)
        arrays = {name: array[:n].copy() for name, array, n in found}
        del arrays["on_host"]
        return Timeline(**arrays, hosted=np.flatnonzero(out.on_host), start=int(counts[START]))
