"""The planner's compiled loops in plain Python: what tests compare them with."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stretto.memory.planner.decide import LAUNCH, MOST_NODES, Decider, Recomputation
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.idle_intervals import DROP, NEXT, SWAP, TAIL, Gaps
from stretto.memory.planner.instructions import EVICT, FREE, IN, OUT, READY, RECOMPUTE, RUN, Instruction
from stretto.memory.planner.program import HostLink
from stretto.memory.planner.timeline import NEVER, CannotRepeat

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(slots=True, eq=False)
class Leave:
    """A copy to the host: it may begin after step `ready`, the storage is not wanted after step `free` and must be gone
    before step `by`."""

    storage: int
    ready: int
    free: int
    by: int


@dataclass(slots=True, eq=False)
class Come:
    """A copy from the host that must be made before step `need` and cannot begin before step `since`."""

    storage: int
    since: int
    need: int


@dataclass(eq=False)
class Steps:
    """`kind`, `node`, `position` (that a step serves), `required` (bytes) by step; `frees[k]` right after step k - 1.
    The end of the program is one more step, without a node."""

    kind: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    required: list[int] = field(default_factory=list)
    frees: list[list[int]] = field(default_factory=list)
    leaves: list[Leave] = field(default_factory=list)
    comes: list[Come] = field(default_factory=list)
    on_host: frozenset[int] = frozenset()
    start: int = 0  # bytes before the first step
    touched: list[tuple[int, int]] = field(default_factory=list)  # (storage, position): read to make others again
    recomputed: list[tuple[int, int]] = field(default_factory=list)  # (storage, position): recomputed, and then stays

    def __len__(self) -> int:
        return len(self.node)


def build_timeline(
    intervals: Gaps, choice: Sequence[int], kept_until: dict[int, int] | None = None, reuse_window: int = NEVER
) -> Steps:
    """The steps under these choices (KEEP, SWAP or DROP, by gap). patience: what comes from the host only to make
    others again stays if it is wanted itself within so many positions; otherwise it goes and comes a second time.

    longer: storages that are kept after their last use, up to a position, because others are recomputed from them.
    What is missing there is found on the way and added to it.
    """
    kept_until = {} if kept_until is None else kept_until
    for _ in range(20):
        one = _Walk(intervals, choice, kept_until, reuse_window)
        steps = one.go()
        if not one.missed:
            return steps
        for s, position in one.missed.items():
            kept_until[s] = max(position, kept_until.get(s, -1))
    raise CannotRepeat(f"storages {sorted(one.missed)[:8]} are needed after their last copy is gone")


class _Walk:
    def __init__(self, intervals: Gaps, choice: Sequence[int], kept_until: dict[int, int], reuse_window: int) -> None:
        self.intervals, self.choice, self.kept_until, self.reuse_window = intervals, choice, kept_until, reuse_window
        self.graph = intervals.graph
        self.extended = intervals.extended.tolist()
        storages = self.graph.storages
        self.here = bytearray(len(storages))
        self.copied = bytearray(len(storages))
        self.made = [-1] * len(storages)  # the step after which it had its present value
        self.since = [0] * len(storages)  # the step before which it can come back at the earliest
        self.in_interval = list(intervals.initial)
        self.leaving: dict[int, Leave] = {}
        self.missed: dict[int, int] = {}
        self.steps = Steps()
        self.expiring: dict[int, list[int]] = {}
        for s, position in kept_until.items():
            self.expiring.setdefault(position, []).append(s)
        self.bytes = 0

    def go(self) -> Steps:
        intervals, graph, steps = self.intervals, self.graph, self.steps
        count = len(graph.nodes)
        self._begin()
        sizes, here, nodes, beyond, ends = (
            intervals.sizes,
            self.here,
            graph.nodes,
            self.extended,
            intervals.end.tolist(),
        )
        for n in range(count):
            node = nodes[n]
            missing = [s for s in intervals.needs[n] if not here[s]]
            comes = self._ensure(missing, n) if missing else ()
            k = self._step(RUN, n, n, comes)
            made = 0
            for s in node.makes:
                here[s] = 1
                self.made[s] = k
                made += sizes[s]
            self.bytes += made
            steps.required.append(self.bytes + node.workspace)
            for s in node.writes:
                self.copied[s] = 0
                self.made[s] = k
            for s, g in intervals.after[n]:
                self.in_interval[s] = g
                if g < 0:
                    if g == TAIL and self.kept_until.get(s, -1) <= n:
                        self._free(s)
                    continue
                if beyond[g]:
                    if self.choice[g] != DROP:
                        self.expiring.setdefault(ends[g], []).append(s)
                    elif self.kept_until.get(s, -1) > n:
                        continue
                if self.choice[g] == SWAP:
                    self._away(s, k)
                elif self.choice[g] == DROP:
                    self._free(s)
            for s in self.expiring.get(n, ()):
                g = self.in_interval[s]
                if here[s] and (g == TAIL or (g >= 0 and beyond[g])):
                    self._free(s)
        missing = [s for s in sorted(intervals.needed_at_end) if not here[s]]
        comes = self._ensure(missing, count) if missing else ()
        self._come(comes, len(steps))
        steps.required.append(self.bytes)
        return steps

    def _begin(self) -> None:
        intervals, steps = self.intervals, self.steps
        steps.frees.append([])
        homes = []
        for s, one in enumerate(self.graph.storages):
            g = intervals.initial[s]
            if one.persistent and g >= 0 and self.choice[g] == SWAP:
                homes.append(s)
                self.copied[s] = 1
            elif one.persistent or one.kind == "input":
                self.here[s] = 1
                self.bytes += intervals.sizes[s]
        steps.on_host, steps.start = frozenset(homes), self.bytes
        for s, one in enumerate(self.graph.storages):
            g = intervals.initial[s]
            if one.kind == "input" and self.here[s]:
                if g == TAIL and s not in self.kept_until:
                    self._free(s)
                elif g >= 0 and self.choice[g] == SWAP:
                    self._away(s, -1)

    def _step(self, kind: int, n: int, place: int, comes: Iterable[int]) -> int:
        steps = self.steps
        k = len(steps.node)
        self._come(comes, k)
        steps.kind.append(kind)
        steps.node.append(n)
        steps.position.append(place)
        steps.frees.append([])
        return k

    def _come(self, which: Iterable[int], k: int) -> None:
        for s in which:
            self.steps.comes.append(Come(s, self.since[s], k))
            self.leaving.pop(s, None)
            self.here[s] = 1
            self.bytes += self.intervals.sizes[s]

    def _free(self, s: int) -> None:
        self.here[s] = 0
        self.bytes -= self.intervals.sizes[s]
        self.steps.frees[-1].append(s)
        self.since[s] = len(self.steps.node)

    def _away(self, s: int, k: int) -> None:
        if self.copied[s]:
            self._free(s)
            return
        self.here[s] = 0
        self.bytes -= self.intervals.sizes[s]
        self.copied[s] = 1
        self.since[s] = k + 1
        leave = Leave(s, self.made[s], k, 1 << 60)
        self.leaving[s] = leave
        self.steps.leaves.append(leave)

    def _from_host(self, s: int) -> bool:
        g = self.in_interval[s]
        return bool(self.copied[s]) and (g >= 0 and self.choice[g] == SWAP)

    def _ensure(self, missing: list[int], position: int) -> list[int]:
        """Recomputes what must be; gives what must come from the host."""
        comes = [s for s in missing if self._from_host(s)]
        lost = [s for s in missing if not self._from_host(s)]
        if lost:
            self._recompute(lost, position)
            comes = [s for s in comes if not self.here[s]]
        return comes

    def _closure(self, lost: list[int], position: int) -> list[int]:
        """The nodes to run again, makers before readers; iterative, since chains can be long."""
        intervals, graph, here, until = self.intervals, self.graph, self.here, self.intervals.recompute_until
        order: list[int] = []
        seen: set[int] = set()
        stack: list[int] = []  # node n to visit, or ~n once all that it reads has been visited

        def want(s: int) -> None:
            n = graph.maker[s]
            if n >= 0 and graph.nodes[n].recomputable and until[n] >= position:
                stack.append(n)
            elif not self.copied[s]:
                self.missed[s] = max(position, self.missed.get(s, -1))
                here[s] = 1  # from here on as if it had been kept; this walk will not be used
                self.bytes += intervals.sizes[s]

        for s in lost:
            want(s)
            while stack:
                n = stack.pop()
                if n < 0:
                    order.append(~n)
                elif n not in seen:
                    seen.add(n)
                    stack.append(~n)
                    for r in intervals.reads[n]:
                        if not here[r] and not self._from_host(r):
                            want(r)
        return order

    def _recompute(self, lost: list[int], position: int) -> None:
        intervals, graph, here, sizes, steps = self.intervals, self.graph, self.here, self.intervals.sizes, self.steps
        order = self._closure(lost, position)
        readers: dict[int, int] = dict.fromkeys(lost, 1)  # how many still want it; the node at `position` counts
        for n in order:
            for r in intervals.reads[n]:
                readers[r] = readers.get(r, 0) + 1
        for n in order:
            node = graph.nodes[n]
            k = self._step(RECOMPUTE, n, position, [r for r in intervals.reads[n] if not here[r]])
            doubled = 0
            fresh = []
            for s in node.makes:
                if here[s]:
                    doubled += sizes[s]
                    continue
                fresh.append(s)
                here[s] = 1
                self.bytes += sizes[s]
                if s in self.leaving:  # made here while its copy might still be under way
                    self.leaving.pop(s).by = k
                if not self.copied[s]:
                    self.made[s] = k
            steps.required.append(self.bytes + node.workspace + doubled)
            for s in fresh:
                if self._stays(s, position, made=True):
                    steps.recomputed.append((s, position))
                elif not readers.get(s):
                    self._free(s)
            for r in intervals.reads[n]:
                readers[r] -= 1
                if self._stays(r, position, made=False):
                    steps.touched.append((r, position))
                elif not readers[r] and here[r]:
                    self._free(r)

    def _stays(self, s: int, position: int, *, made: bool) -> bool:
        """Whether something recomputed, or copied back for that, is kept: it has a use of its own to come."""
        g = self.in_interval[s]
        if g == TAIL or (g >= 0 and self.extended[g] and (self.choice[g] == DROP or self.intervals.end[g] < position)):
            return self.kept_until.get(s, -1) >= position
        if g < 0 or self.choice[g] != SWAP:
            return True
        if made or self.intervals.end[g] - position > self.reuse_window:
            return False
        return not (self.intervals.wraps[g] and position > self.intervals.start[g])


def lower(graph: Graph, steps: Steps, budget: int, link: HostLink, rounds: int = 2) -> tuple[list[Instruction], float]:
    """The instructions of the fastest of a few programs, and its seconds."""
    began = np.zeros(len(steps) + 1)
    np.cumsum([graph.nodes[n].seconds for n in steps.node], out=began[1:])
    found = []
    for _ in range(rounds):
        one = _Lower(graph, steps, budget, link, began)
        began, seconds = one.go()
        found.append((seconds, one.out))
        if not steps.comes:
            break
    seconds, out = min(found, key=lambda pair: pair[0])
    return out, seconds


def latest_starts(graph: Graph, comes: Sequence[Come], began: Floats, link: HostLink) -> list[float]:
    """When each copy must begin so that all are in time, one after the other on the link."""
    starts = [0.0] * len(comes)
    free = float("inf")
    for i in range(len(comes) - 1, -1, -1):
        swap_in = comes[i]
        free = min(free, float(began[swap_in.need])) - link.in_seconds(graph.storages[swap_in.storage].nbytes)
        starts[i] = free
    return starts


class _Lower:
    def __init__(self, graph: Graph, steps: Steps, budget: int, link: HostLink, began: Floats) -> None:
        self.graph, self.steps, self.link = graph, steps, link
        self.sizes = [one.nbytes for one in graph.storages]
        self.room = budget - np.array(steps.required, np.int64)  # what is left beside what must be there, by step
        self.expected = began
        self.now = self.out_free = self.in_free = 0.0
        self.leaving: dict[int, float] = {}  # when its copy to the host is made
        self.left: list[tuple[float, int]] = []  # a heap of those among them that are not wanted any more
        self.left_bytes = 0
        self.coming: dict[int, float] = {}
        self.landed: dict[int, float] = {}
        self.out: list[Instruction] = []

    def go(self) -> tuple[Floats, float]:
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
        return began, max(self.now, self.out_free)

    def _early(self, k: int, i: int, comes: list[Come], starts: list[float], issued: bytearray, horizon: float) -> None:
        """Begins copies that would be late if they began after step k, as far as space is free until they are
        wanted."""
        while i < len(comes) and k >= self.blocked:
            if starts[i] >= horizon:
                break
            swap_in = comes[i]
            size = self.sizes[swap_in.storage]
            if swap_in.since > k or swap_in.storage in self.leaving:
                # It has not left yet: look again later.
                self.blocked = max(k + 1, min(swap_in.since, swap_in.need))
                break
            room = self.room[k : swap_in.need]
            short = np.flatnonzero(room < size)
            if len(short):
                self.blocked = k + int(short[-1]) + 1
                break
            if size > self.room[k] - self.left_bytes:
                break
            room -= size
            self._begin_in(swap_in.storage)
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
        self.out.append((EVICT, s))

    def _gone_now(self, s: int) -> None:
        """Waits for the copy of one storage (and of those before it) if it is still there."""
        while s in self.leaving:
            self._gone()


def recompute_cost(decider: Decider, g: int) -> Recomputation | None:
    """What it takes to recompute the storage of a gap at its end; None if that is not possible or too much.

    Whatever the maker reads and is gone by then has to be recomputed before it, or be kept beyond its last use.
    The makers are visited latest first. After each of them one could stop and keep all that is still wanted
    (the input of a block of a network, say); the stop that costs the fewest seconds a byte is taken. Without
    `hold`, only what cannot be recomputed is kept.
    """
    intervals, graph, choice, beyond = (
        decider.intervals,
        decider.intervals.graph,
        decider.choice,
        decider.intervals.extended,
    )
    nodes, sizes, maker = graph.nodes, intervals.sizes, graph.maker
    s, b = int(intervals.storage[g]), int(intervals.end[g])
    size = sizes[s]
    seconds, temporary, held = 0.0, 0, 0
    wanted: dict[int, None] = {}  # storages without a use to come: those to keep if the visit stopped here
    beside: list[int] = []
    leaves: list[int] = []
    best, best_price = None, np.inf
    heap, seen = [-maker[s]], {maker[s]}
    while heap:
        n = -heapq.heappop(heap)
        seconds += max(nodes[n].seconds, LAUNCH)
        if len(seen) > MOST_NODES or seconds >= best_price * size:
            break
        for r in nodes[n].makes:
            if r in wanted:
                wanted.pop(r)
                held -= sizes[r]
                temporary += sizes[r]
        for r in intervals.reads[n]:
            at = intervals.interval_at(r, b)
            if at == NEXT or r in wanted:
                continue
            if at >= 0 and not (choice[at] == DROP and beyond[at]):
                (beside if choice[at] == DROP else leaves).append(at)
                continue
            if decider.kept_until[r] >= b:
                continue
            m = maker[r]
            wanted[r] = None
            held += sizes[r]
            if m >= 0 and m not in seen and nodes[m].recomputable and intervals.recompute_until[m] >= b:
                seen.add(m)
                heapq.heappush(heap, -m)
        if (decider.hold or not heap) and held < size and (price := seconds / (size - held)) < best_price:
            best = Recomputation(seconds, temporary, tuple(wanted), tuple(beside), tuple(leaves))
            best_price = price
    return best
