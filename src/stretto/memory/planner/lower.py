"""From steps to instructions: when each copy begins and when the device waits for it.

The steps say how many bytes must be there in each; the budget leaves some more, and they are spent on time: a storage
that was copied to the host stays until the copy is made, and one that is wanted soon begins to come before it is
wanted. Copies begin in the order in which they are wanted, each as late as it can and still be in time, because until
then its memory is better used by others. No sum of this ever passes the budget, so the plan fits if `must` fits. The
loop itself is compiled (`kernels.memory_planner.lower`).
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
from .program import Link, Program
from .timeline import Steps

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program as arrays of instructions, when each of its steps began, and when it ended."""

    graph: Graph
    steps: Steps
    what: Ints
    which: Ints
    began: Floats
    seconds: float

    @cached_property
    def program(self) -> Program:
        """The program."""
        instructions = tuple(zip(self.what.tolist(), self.which.tolist(), strict=True))
        return Program(self.graph, instructions, self.steps.on_host)


def lower(
    graph: Graph, steps: Steps, budget: int, link: Link, rounds: int = 2, first: Sequence[int] | None = None
) -> Lowered:
    """The fastest of a few programs: when copies must begin depends on when the steps do, and the other way round.

    first: the step before which each copy from the host begins, if that is fixed and not to be worked out.
    """
    one = _Lower(graph, steps, budget, link, first)
    began = np.zeros(len(steps) + 1)
    np.cumsum(one.seconds[steps.node], out=began[1:])
    best: Lowered | None = None
    for _ in range(rounds):
        found = one.go(began)
        if best is None or found.seconds < best.seconds:
            best = found
        if not len(steps.come) or first is not None:
            break
        began = found.began
    assert best is not None
    return best


class _Lower:
    """One walk with a budget, as arrays."""

    def __init__(self, graph: Graph, steps: Steps, budget: int, link: Link, first: Sequence[int] | None) -> None:
        self.graph, self.steps, self.budget, self.link = graph, steps, budget, link
        self.sizes = np.array([one.nbytes for one in graph.storages], np.int64)
        self.seconds = np.array([node.seconds for node in graph.nodes], np.float64)
        self.first = np.array([] if first is None else first, np.int64)
        count = len(steps)
        self.lists = (
            *_by_step(steps.free_step, steps.free, count),
            *_by_step(steps.leave_ready + 1, steps.leave, count),
            *_by_step(steps.leave_free + 1, steps.leave, count),
            *_by_step(np.minimum(steps.leave_by, count + 1), steps.leave, count),
        )

    def go(self, began: Floats) -> Lowered:
        steps, count, copies = self.steps, len(self.steps), len(self.steps.leave)
        given = LowerSteps(
            steps.kind,
            steps.node,
            self.sizes,
            self.seconds,
            *self.lists,
            steps.come,
            steps.come_since,
            steps.come_need,
            began,
            self.first,
        )
        most = count + len(steps.free) + 2 * copies + 2 * len(steps.come)
        space = LowerSpace(
            room=self.budget - steps.must,
            leaving=np.empty(len(self.sizes)),
            landed=np.empty(len(self.sizes)),
            coming=np.empty(len(self.sizes)),
            left_time=np.empty(copies + 1),
            left=np.empty(copies + 1, np.int64),
            issued=np.empty(len(steps.come), np.uint8),
            starts=np.empty(len(steps.come)),
            what=np.empty(most, np.int64),
            which=np.empty(most, np.int64),
            began=np.empty(count + 1),
        )
        counts, clocks = np.empty(COUNTS, np.int64), np.empty(CLOCKS)
        lowered(given, space, counts, clocks, np.array([self.link.out, self.link.into, self.link.latency]))
        n = int(counts[INSTRUCTIONS])
        ended = float(max(clocks[NOW], clocks[OUT_FREE]))
        return Lowered(self.graph, steps, space.what[:n], space.which[:n], space.began, ended)


def _by_step(at: Ints, which: Ints, count: int) -> tuple[Ints, Ints]:
    """What belongs to each step, as bounds [count + 3] and a list; in the order that it has."""
    bounds = np.zeros(count + 3, np.int64)
    np.cumsum(np.bincount(at, minlength=count + 2), out=bounds[1:])
    return bounds, which[np.argsort(at, kind="stable")]
