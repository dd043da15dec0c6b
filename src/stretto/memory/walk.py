"""From what is done in each gap to the steps of the compute stream, and the bytes that must be there in each.

A *step* here is one RUN or AGAIN. Nothing has a clock yet: a storage that comes back does so right before the step that
wants it, one that leaves is gone right after its last use. So `must` is the least memory that these choices can work
with; `lower` spends what the budget leaves above it on copying early and leaving late.

What was dropped is made again when it is first wanted, with all that it is made from and that is not there, and then
stays until its own next use, so that a chain of dropped storages is run through once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .gaps import DROP, SWAP, TAIL, Gaps
from .program import AGAIN, RUN

NEVER = 1 << 60  # a number of positions that no step has


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
    """`kind`, `node`, `place` (the position that a step serves), `must` by step; `frees[k]` right after step k - 1.
    The end of the program is one more step, without a node."""

    kind: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    must: list[int] = field(default_factory=list)
    frees: list[list[int]] = field(default_factory=list)
    leaves: list[Leave] = field(default_factory=list)
    comes: list[Come] = field(default_factory=list)
    on_host: frozenset[int] = frozenset()
    start: int = 0  # bytes before the first step
    touched: list[tuple[int, int]] = field(default_factory=list)  # (storage, position): read to make others again
    remade: list[tuple[int, int]] = field(default_factory=list)  # (storage, position): made again, and then stays

    def __len__(self) -> int:
        return len(self.node)


class CannotRepeat(Exception):
    """A storage was dropped that can neither be made again nor be kept: a fault of the planner."""


def walk(gaps: Gaps, choice: Sequence[int], longer: dict[int, int] | None = None, patience: int = NEVER) -> Steps:
    """The steps under these choices (KEEP, SWAP or DROP, by gap). patience: what comes from the host only to make
    others again stays if it is wanted itself within so many positions; otherwise it goes and comes a second time.

    longer: storages that are kept after their last use, up to a position, because others are made again from them.
    What is missing there is found on the way and added to it.
    """
    longer = {} if longer is None else longer
    for _ in range(20):
        one = _Walk(gaps, choice, longer, patience)
        steps = one.go()
        if not one.missed:
            return steps
        for s, position in one.missed.items():
            longer[s] = max(position, longer.get(s, -1))
    raise CannotRepeat(f"storages {sorted(one.missed)[:8]} are wanted after they are gone for good")


class _Walk:
    def __init__(self, gaps: Gaps, choice: Sequence[int], longer: dict[int, int], patience: int) -> None:
        self.gaps, self.choice, self.longer, self.patience = gaps, choice, longer, patience
        self.graph = gaps.graph
        self.beyond = gaps.beyond.tolist()
        storages = self.graph.storages
        self.here = bytearray(len(storages))
        self.copied = bytearray(len(storages))
        self.made = [-1] * len(storages)  # the step after which it had its present value
        self.since = [0] * len(storages)  # the step before which it can come back at the earliest
        self.in_gap = list(gaps.first)
        self.leaving: dict[int, Leave] = {}
        self.missed: dict[int, int] = {}
        self.steps = Steps()
        self.expiring: dict[int, list[int]] = {}
        for s, position in longer.items():
            self.expiring.setdefault(position, []).append(s)
        self.bytes = 0

    def go(self) -> Steps:
        gaps, graph, steps = self.gaps, self.graph, self.steps
        count = len(graph.nodes)
        self._begin()
        sizes, here, nodes, beyond, ends = gaps.sizes, self.here, graph.nodes, self.beyond, gaps.end.tolist()
        for n in range(count):
            node = nodes[n]
            missing = [s for s in gaps.needs[n] if not here[s]]
            comes = self._ensure(missing, n) if missing else ()
            k = self._step(RUN, n, n, comes)
            made = 0
            for s in node.makes:
                here[s] = 1
                self.made[s] = k
                made += sizes[s]
            self.bytes += made
            steps.must.append(self.bytes + node.workspace)
            for s in node.writes:
                self.copied[s] = 0
                self.made[s] = k
            for s, g in gaps.after[n]:
                self.in_gap[s] = g
                if g < 0:
                    if g == TAIL and self.longer.get(s, -1) <= n:
                        self._free(s)
                    continue
                if beyond[g]:
                    if self.choice[g] != DROP:
                        self.expiring.setdefault(ends[g], []).append(s)
                    elif self.longer.get(s, -1) > n:
                        continue
                if self.choice[g] == SWAP:
                    self._away(s, k)
                elif self.choice[g] == DROP:
                    self._free(s)
            for s in self.expiring.get(n, ()):
                g = self.in_gap[s]
                if here[s] and (g == TAIL or (g >= 0 and beyond[g])):
                    self._free(s)
        missing = [s for s in sorted(gaps.wanted_at_end) if not here[s]]
        comes = self._ensure(missing, count) if missing else ()
        self._come(comes, len(steps))
        steps.must.append(self.bytes)
        return steps

    def _begin(self) -> None:
        gaps, steps = self.gaps, self.steps
        steps.frees.append([])
        homes = []
        for s, one in enumerate(self.graph.storages):
            g = gaps.first[s]
            if one.lasting and g >= 0 and self.choice[g] == SWAP:
                homes.append(s)
                self.copied[s] = 1
            elif one.lasting or one.kind == "input":
                self.here[s] = 1
                self.bytes += gaps.sizes[s]
        steps.on_host, steps.start = frozenset(homes), self.bytes
        for s, one in enumerate(self.graph.storages):
            g = gaps.first[s]
            if one.kind == "input" and self.here[s]:
                if g == TAIL and s not in self.longer:
                    self._free(s)
                elif g >= 0 and self.choice[g] == SWAP:
                    self._away(s, -1)

    def _step(self, kind: int, n: int, place: int, comes: Iterable[int]) -> int:
        steps = self.steps
        k = len(steps.node)
        self._come(comes, k)
        steps.kind.append(kind)
        steps.node.append(n)
        steps.place.append(place)
        steps.frees.append([])
        return k

    def _come(self, which: Iterable[int], k: int) -> None:
        for s in which:
            self.steps.comes.append(Come(s, self.since[s], k))
            self.leaving.pop(s, None)
            self.here[s] = 1
            self.bytes += self.gaps.sizes[s]

    def _free(self, s: int) -> None:
        self.here[s] = 0
        self.bytes -= self.gaps.sizes[s]
        self.steps.frees[-1].append(s)
        self.since[s] = len(self.steps.node)

    def _away(self, s: int, k: int) -> None:
        if self.copied[s]:
            self._free(s)
            return
        self.here[s] = 0
        self.bytes -= self.gaps.sizes[s]
        self.copied[s] = 1
        self.since[s] = k + 1
        leave = Leave(s, self.made[s], k, 1 << 60)
        self.leaving[s] = leave
        self.steps.leaves.append(leave)

    def _from_host(self, s: int) -> bool:
        g = self.in_gap[s]
        return bool(self.copied[s]) and (g >= 0 and self.choice[g] == SWAP)

    def _ensure(self, missing: list[int], position: int) -> list[int]:
        """Makes again what must be; gives what must come from the host."""
        comes = [s for s in missing if self._from_host(s)]
        lost = [s for s in missing if not self._from_host(s)]
        if lost:
            self._again(lost, position)
            comes = [s for s in comes if not self.here[s]]
        return comes

    def _closure(self, lost: list[int], position: int) -> list[int]:
        """The nodes to run again, makers before readers; iterative, since chains can be long."""
        gaps, graph, here, until = self.gaps, self.graph, self.here, self.gaps.until
        order: list[int] = []
        seen: set[int] = set()
        stack: list[int] = []  # node n to visit, or ~n once all that it reads has been visited

        def want(s: int) -> None:
            n = graph.maker[s]
            if n >= 0 and graph.nodes[n].again and until[n] >= position:
                stack.append(n)
            elif not self.copied[s]:
                self.missed[s] = max(position, self.missed.get(s, -1))
                here[s] = 1  # from here on as if it had been kept; this walk will not be used
                self.bytes += gaps.sizes[s]

        for s in lost:
            want(s)
            while stack:
                n = stack.pop()
                if n < 0:
                    order.append(~n)
                elif n not in seen:
                    seen.add(n)
                    stack.append(~n)
                    for r in gaps.reads[n]:
                        if not here[r] and not self._from_host(r):
                            want(r)
        return order

    def _again(self, lost: list[int], position: int) -> None:
        gaps, graph, here, sizes, steps = self.gaps, self.graph, self.here, self.gaps.sizes, self.steps
        order = self._closure(lost, position)
        readers: dict[int, int] = dict.fromkeys(lost, 1)  # how many still want it; the node at `position` counts
        for n in order:
            for r in gaps.reads[n]:
                readers[r] = readers.get(r, 0) + 1
        for n in order:
            node = graph.nodes[n]
            k = self._step(AGAIN, n, position, [r for r in gaps.reads[n] if not here[r]])
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
            steps.must.append(self.bytes + node.workspace + doubled)
            for s in fresh:
                if self._stays(s, position, made=True):
                    steps.remade.append((s, position))
                elif not readers.get(s):
                    self._free(s)
            for r in gaps.reads[n]:
                readers[r] -= 1
                if self._stays(r, position, made=False):
                    steps.touched.append((r, position))
                elif not readers[r] and here[r]:
                    self._free(r)

    def _stays(self, s: int, position: int, *, made: bool) -> bool:
        """Whether something made again, or brought back for that, is kept: it has a use of its own to come."""
        g = self.in_gap[s]
        if g == TAIL or (g >= 0 and self.beyond[g] and (self.choice[g] == DROP or self.gaps.end[g] < position)):
            return self.longer.get(s, -1) >= position
        if g < 0 or self.choice[g] != SWAP:
            return True
        if made or self.gaps.end[g] - position > self.patience:
            return False
        return not (self.gaps.wraps[g] and position > self.gaps.start[g])
