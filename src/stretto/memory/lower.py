"""From steps to instructions: when each copy begins and when the device waits for it.

The steps say how many bytes must be there in each; the budget leaves some more, and they are spent on time: a storage
that was copied to the host stays until the copy is made, and one that is wanted soon begins to come before it is
wanted. Copies begin in the order in which they are wanted, each as late as it can and still be in time, because until
then its room is better used by others. No sum of this ever passes the budget, so the plan fits if `must` fits.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .graph import Graph
from .program import FREE, GONE, IN, OUT, READY, Instruction, Link, Program
from .walk import Come, Leave, Steps

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program, when each of its steps began, and when it ended."""

    program: Program
    began: Floats
    seconds: float


def lower(
    graph: Graph, steps: Steps, budget: int, link: Link, rounds: int = 2, first: Sequence[int] | None = None
) -> Lowered:
    """The fastest of a few programs: when copies must begin depends on when the steps do, and the other way round.

    first: the step before which each copy from the host begins, if that is fixed and not to be worked out.
    """
    began = np.zeros(len(steps) + 1)
    np.cumsum([graph.nodes[n].seconds for n in steps.node], out=began[1:])
    best: Lowered | None = None
    for _ in range(rounds):
        one = _Lower(graph, steps, budget, link, began, first).go()
        if best is None or one.seconds < best.seconds:
            best = one
        if not steps.comes or first is not None:
            break
        began = one.began
    assert best is not None
    return best


def latest_starts(graph: Graph, comes: Sequence[Come], began: Floats, link: Link) -> list[float]:
    """When each copy must begin so that all are in time, one after the other on the link."""
    starts = [0.0] * len(comes)
    free = float("inf")
    for i in range(len(comes) - 1, -1, -1):
        come = comes[i]
        free = min(free, float(began[come.need])) - link.in_seconds(graph.storages[come.storage].nbytes)
        starts[i] = free
    return starts


class _Lower:
    def __init__(
        self, graph: Graph, steps: Steps, budget: int, link: Link, began: Floats, first: Sequence[int] | None
    ) -> None:
        self.graph, self.steps, self.link = graph, steps, link
        self.sizes = [one.nbytes for one in graph.storages]
        self.room = budget - np.array(steps.must, np.int64)  # what is left beside what must be there, by step
        self.expected, self.first = began, first
        self.now = self.out_free = self.in_free = 0.0
        self.leaving: dict[int, float] = {}  # when its copy to the host is made
        self.left: list[tuple[float, int]] = []  # a heap of those among them that are not wanted any more
        self.left_bytes = 0
        self.coming: dict[int, float] = {}
        self.landed: dict[int, float] = {}
        self.out: list[Instruction] = []

    def go(self) -> Lowered:
        steps, graph, out = self.steps, self.graph, self.out
        count = len(steps)
        begin: list[list[Leave]] = [[] for _ in range(count + 2)]
        end: list[list[Leave]] = [[] for _ in range(count + 2)]
        must_go: dict[int, list[int]] = {}
        for leave in steps.leaves:
            begin[leave.ready + 1].append(leave)
            end[leave.free + 1].append(leave)
            if leave.by <= count:
                must_go.setdefault(leave.by, []).append(leave.storage)
        comes = steps.comes
        starts = latest_starts(graph, comes, self.expected, self.link)
        self.waiting, self.blocked = 0, -1
        issued = bytearray(len(comes))
        first = 0  # the first copy that has not been waited for
        seconds = [graph.nodes[n].seconds for n in steps.node]
        began = np.zeros(count + 1)
        for k in range(count + 1):
            for s in steps.frees[k]:
                out.append((FREE, s))
            for leave in begin[k]:
                self._begin_out(leave.storage)
            for leave in end[k]:
                heapq.heappush(self.left, (self.leaving[leave.storage], leave.storage))
                self.left_bytes += self.sizes[leave.storage]
            while self.left and self.left[0][0] <= self.now:
                self._gone()
            for s in must_go.get(k, ()):
                self._gone_now(s)
            while self.left_bytes > self.room[k]:
                self._gone()
            wanted = first
            while wanted < len(comes) and comes[wanted].need == k:
                if not issued[wanted]:
                    self._gone_now(comes[wanted].storage)
                    self._begin_in(comes[wanted].storage)
                    issued[wanted] = 1
                wanted += 1
            for i in range(first, wanted):
                self._ready(comes[i].storage)
            first = wanted
            if k == count:
                break
            self._early(k, max(wanted, self.waiting), comes, starts, issued, self.now + seconds[k])
            began[k] = self.now
            out.append((steps.kind[k], steps.node[k]))
            self.now += seconds[k]
        while self.left:
            self._gone()
        began[count] = self.now
        program = Program(graph, tuple(out), steps.on_host)
        return Lowered(program, began, max(self.now, self.out_free))

    def _early(self, k: int, i: int, comes: list[Come], starts: list[float], issued: bytearray, horizon: float) -> None:
        """Begins copies that would be late if they began after step k, as far as there is room until they are
        wanted."""
        while i < len(comes) and k >= self.blocked:
            if starts[i] >= horizon if self.first is None else k < self.first[i]:
                break
            come = comes[i]
            size = self.sizes[come.storage]
            if come.since > k or come.storage in self.leaving:
                # It has not left yet: look again later.
                self.blocked = max(k + 1, min(come.since, come.need))
                break
            room = self.room[k : come.need]
            short = np.flatnonzero(room < size)
            if len(short):
                self.blocked = k + int(short[-1]) + 1
                break
            if size > self.room[k] - self.left_bytes:
                break
            room -= size
            self._begin_in(come.storage)
            issued[i] = 1
            i += 1
        self.waiting = i

    def _begin_out(self, s: int) -> None:
        self.out_free = max(self.out_free, self.now) + self.link.out_seconds(self.sizes[s])
        self.leaving[s] = self.landed[s] = self.out_free
        self.out.append((OUT, s))

    def _begin_in(self, s: int) -> None:
        begin = max(self.in_free, self.now, self.landed.get(s, 0.0))
        self.in_free = begin + self.link.in_seconds(self.sizes[s])
        self.coming[s] = self.in_free
        self.out.append((IN, s))

    def _ready(self, s: int) -> None:
        self.now = max(self.now, self.coming.pop(s))
        self.out.append((READY, s))

    def _gone(self) -> None:
        made, s = heapq.heappop(self.left)
        self.now = max(self.now, made)
        del self.leaving[s]
        self.left_bytes -= self.sizes[s]
        self.out.append((GONE, s))

    def _gone_now(self, s: int) -> None:
        """Waits for the copy of one storage (and of those before it) if it is still there."""
        while s in self.leaving:
            self._gone()
