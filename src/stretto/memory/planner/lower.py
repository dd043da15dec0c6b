"""Turn a timeline into instructions: when each copy begins and when the device waits for it.

The timeline says how many bytes each step requires. The budget leaves some more, and they are spent on time: a storage
that is being copied to the host stays until the copy is done, and one that is needed soon is copied early. Copies begin
in the order in which they are needed, each as late as it can and still be in time, because until then others use its
memory better. Nothing here exceeds the budget, so the plan fits if `required` fits. The loop itself is compiled
(`kernels.memory_planner.lower`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretto.cached import cached_property
from stretto.kernels.memory_planner.lower import (
    CLOCKS,
    COUNTS,
    INSTRUCTIONS,
    NOW,
    OUT_FREE,
    LowerSpace,
    LowerSteps,
    lowered,
)

from .graph import Graph
from .idle_intervals import Ints
from .instructions import DeviceProgram
from .program import HostLink
from .timeline import Timeline

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class LoweredProgram:
    """A program as arrays of instructions, with its times."""

    graph: Graph
    steps: Timeline
    what: Ints  # by instruction: its kind
    which: Ints  # by instruction: its node or storage
    began: Floats  # when each step began, in seconds
    seconds: float  # when the program ended

    @cached_property
    def program(self) -> DeviceProgram:
        """The instructions as a `DeviceProgram`."""
        instructions = tuple(zip(self.what.tolist(), self.which.tolist(), strict=True))
        return DeviceProgram(self.graph, instructions, self.steps.on_host)


def lower(
    graph: Graph, steps: Timeline, budget: int, link: HostLink, rounds: int = 2, first: Sequence[int] | None = None
) -> LoweredProgram:
    """The fastest of a few programs: when copies must begin depends on when the steps do, and vice versa.

    Parameters
    ----------
    graph : Graph
        In the order in which it runs.
    steps : Timeline
        Its timeline.
    budget : int
        Bytes on the device.
    link : HostLink
        Speed of copies.
    rounds : int
        Programs to try.
    first : sequence of int, optional
        The step before which each copy from the host begins, where that is fixed.
    """
    one = _Lowering(graph, steps, budget, link, first)
    began = np.zeros(len(steps) + 1)
    np.cumsum(one.seconds[steps.node], out=began[1:])
    best: LoweredProgram | None = None
    for _ in range(rounds):
        found = one.go(began)
        if best is None or found.seconds < best.seconds:
            best = found
        if not len(steps.swap_in) or first is not None:
            break
        began = found.began
    assert best is not None
    return best


class _Lowering:
    """A timeline with a budget, as arrays."""

    def __init__(self, graph: Graph, steps: Timeline, budget: int, link: HostLink, first: Sequence[int] | None) -> None:
        self.graph, self.steps, self.budget, self.link = graph, steps, budget, link
        self.sizes = np.array([one.nbytes for one in graph.storages], np.int64)
        self.seconds = np.array([node.seconds for node in graph.nodes], np.float64)
        self.first = np.array([] if first is None else first, np.int64)
        count = len(steps)
        self.lists = (
            *_by_step(steps.free_step, steps.free, count),
            *_by_step(steps.swap_out_ready + 1, steps.swap_out, count),
            *_by_step(steps.swap_out_free + 1, steps.swap_out, count),
            *_by_step(np.minimum(steps.swap_out_by, count + 1), steps.swap_out, count),
        )

    def go(self, began: Floats) -> LoweredProgram:
        steps, count, copies = self.steps, len(self.steps), len(self.steps.swap_out)
        given = LowerSteps(
            steps.kind,
            steps.node,
            self.sizes,
            self.seconds,
            *self.lists,
            steps.swap_in,
            steps.swap_in_since,
            steps.swap_in_need,
            began,
            self.first,
        )
        most = count + len(steps.free) + 2 * copies + 2 * len(steps.swap_in)
        space = LowerSpace(
            free_bytes=self.budget - steps.required,
            copied_out_at=np.empty(len(self.sizes)),
            host_copy_at=np.empty(len(self.sizes)),
            copied_in_at=np.empty(len(self.sizes)),
            leaving_time=np.empty(copies + 1),
            leaving_storage=np.empty(copies + 1, np.int64),
            issued=np.empty(len(steps.swap_in), np.uint8),
            starts=np.empty(len(steps.swap_in)),
            what=np.empty(most, np.int64),
            which=np.empty(most, np.int64),
            began=np.empty(count + 1),
        )
        counts, clocks = np.empty(COUNTS, np.int64), np.empty(CLOCKS)
        lowered(given, space, counts, clocks, np.array([self.link.out, self.link.into, self.link.latency]))
        n = int(counts[INSTRUCTIONS])
        ended = float(max(clocks[NOW], clocks[OUT_FREE]))
        return LoweredProgram(self.graph, steps, space.what[:n], space.which[:n], space.began, ended)


def _by_step(at: Ints, which: Ints, count: int) -> tuple[Ints, Ints]:
    """Entries grouped by step, in their order: bounds [count + 3] and a list."""
    bounds = np.zeros(count + 3, np.int64)
    np.cumsum(np.bincount(at, minlength=count + 2), out=bounds[1:])
    return bounds, which[np.argsort(at, kind="stable")]
