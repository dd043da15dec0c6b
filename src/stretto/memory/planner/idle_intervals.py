"""Find the idle intervals of each storage: between two uses, it could be off the device.

A *position* is the place of a node in the order; -1 is before the first and N after the last. A storage used at 3 and
next at 9 has the idle interval (3, 9). A persistent storage has one more, which wraps around the end of the step: from
its last use to its first use in the next step. An input has one before its first use, a result one after its last use.

    1 idle interval of y:    make y   use y   .   .   .   use y
                               0        1     2   3   4     5       interval (1, 5)

With `extend`, a storage also has an interval after its last use, up to the last position at which something made from
it may have to be recomputed. DROP is the usual choice there (the storage is freed). KEEP makes it a checkpoint, SWAP a
checkpoint on the host. The input of a block of a network is often such a storage: gradients do not need it, but
recomputing the block does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretto.cached import cached_property
from stretto.kernels.memory_planner.arrays import DROP, GIVEN, KEEP, NEXT, PERSISTENT, SWAP, TAIL, TEMPORARY, PlanArrays
from stretto.kernels.memory_planner.recompute import RecomputeSpace

from .graph import Graph

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

__all__ = [
    "DROP",
    "KEEP",
    "NEXT",
    "SWAP",
    "TAIL",
    "Bools",
    "Gaps",
    "Ints",
    "find_idle_intervals",
    "last_changes",
    "recompute_space",
]


@dataclass(frozen=True, eq=False)
class Gaps:
    """All idle intervals of a graph, and the graph as plain lists for the planner's loops."""

    graph: Graph
    storage: Ints  # by interval: its storage
    start: Ints  # by interval: the position of the use before it
    end: Ints  # by interval: the position of the use after it
    wraps: Bools  # by interval: it wraps around the end of the step
    nbytes: Ints  # by interval: bytes of its storage
    droppable: Bools  # by interval: the maker of its storage may run again before its end
    # by node: (storage, interval that begins here, or TAIL or NEXT) for each storage that it touches
    after: list[list[tuple[int, int]]]
    initial: list[int]  # by storage: the interval in which it is when the step begins
    touches: list[list[int]]  # by storage: positions at which it is made, read or written
    interval_of: list[list[int]]  # by storage: the interval after each touch
    # by node: the last position before which it can run again (a storage that it read changes then)
    recompute_until: list[int]
    sizes: list[int]  # by storage: bytes
    reads: list[tuple[int, ...]]  # by node: storages that it reads, each once
    needs: list[tuple[int, ...]]  # by node: storages that it reads or writes, each once
    needed_at_end: frozenset[int]  # results of the step
    extended: Bools  # by interval: it comes after the last use of its storage

    def __len__(self) -> int:
        return len(self.storage)

    def uniform(self, what: int) -> list[int]:
        """The same choice in every interval; storages are dropped after their last use."""
        chosen: list[int] = np.where(self.extended, DROP, what).tolist()
        return chosen

    @cached_property
    def arrays(self) -> PlanArrays:
        """The intervals and the graph as arrays, for compiled loops."""
        graph, nodes = self.graph, self.graph.nodes
        kinds = [
            PERSISTENT if one.persistent else GIVEN if one.kind == "input" else TEMPORARY for one in graph.storages
        ]
        return PlanArrays(
            *_listed(self.needs),
            *_listed(self.reads),
            *_listed([node.makes for node in nodes]),
            *_listed([node.writes for node in nodes]),
            *_listed([[s for s, _ in those] for those in self.after]),
            _listed([[g for _, g in those] for those in self.after])[1],
            *_listed(self.touches),
            _listed(self.interval_of)[1],
            np.array(self.initial, np.int64),
            np.array(graph.maker, np.int64),
            np.array(self.sizes, np.int64),
            np.array(kinds, np.uint8),
            np.array([node.recomputable for node in nodes], np.uint8),
            np.array(self.recompute_until, np.int64),
            np.array([node.workspace for node in nodes], np.int64),
            np.array([node.seconds for node in nodes], np.float64),
            self.storage,
            self.start,
            self.end,
            self.wraps.astype(np.uint8),
            self.extended.astype(np.uint8),
            np.array(sorted(self.needed_at_end), np.int64),
        )

    def covering(self, position: int) -> Bools:
        """Which intervals contain this position."""
        outside = (self.start < position) | (position < self.end)
        return np.where(self.wraps, outside, (self.start < position) & (position < self.end))

    def interval_at(self, s: int, position: int) -> int:
        """The interval of storage s just before this position runs.

        TAIL after its last use. NEXT if the node at this position uses it, or the node before used it.
        """
        touches = self.touches[s]
        i = bisect_left(touches, position)
        if i < len(touches) and touches[i] == position:
            return NEXT
        return self.interval_of[s][i - 1] if i else self.initial[s]

    def interval_before(self, s: int, position: int) -> int:
        """The interval of storage s that ends at or contains this position; TAIL or NEXT if there is none."""
        i = bisect_left(self.touches[s], position)
        return self.interval_of[s][i - 1] if i else self.initial[s]


def _listed(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Concatenate lists: their bounds in one array, and the array."""
    bounds = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=bounds[1:])
    return bounds, np.array([x for one in lists for x in one], np.int64)


def find_idle_intervals(graph: Graph, *, place: bool = True, extend: bool = False) -> Gaps:
    """The idle intervals of a graph in the order of its nodes.

    Parameters
    ----------
    graph : Graph
        In the order in which it runs.
    place : bool
        False: persistent storages never leave the device.
    extend : bool
        Add intervals after the last use of storages.
    """
    sizes = [one.nbytes for one in graph.storages]
    reads = [tuple(dict.fromkeys(node.reads)) for node in graph.nodes]
    needs = [tuple(dict.fromkeys((*node.reads, *node.writes))) for node in graph.nodes]
    touches: list[list[int]] = [[] if graph.maker[s] < 0 else [graph.maker[s]] for s in range(len(sizes))]
    for n, which in enumerate(needs):
        for s in which:
            touches[s].append(n)
    finder = _Finder(graph, touches, _recompute_until(graph, reads))
    for s, one in enumerate(graph.storages):
        if one.persistent and (not place or s in finder.results):  # a result must be resident when the step ends
            continue
        finder.add_between_uses(s)
        if one.persistent:
            finder.add_around_end(s)
        else:
            finder.add_ends(s)
    ordinary = len(finder.rows)
    if extend:
        finder.add_after_last_use()
    return finder.intervals(ordinary, sizes, reads, needs)


_Row = tuple[int, int, int, bool, bool]  # storage, start, end, wraps, droppable


class _Finder:
    """The intervals found so far."""

    def __init__(self, graph: Graph, touches: list[list[int]], recompute_until: list[int]) -> None:
        self.graph, self.touches, self.recompute_until = graph, touches, recompute_until
        self.count, self.results = len(graph.nodes), frozenset(graph.results)
        self.rows: list[_Row] = []
        self.initial = [NEXT] * len(touches)
        self.interval_of = [[NEXT] * len(t) for t in touches]

    def _add(self, s: int, start: int, end: int, *, wraps: bool = False, droppable: bool = False) -> int:
        self.rows.append((s, start, end, wraps, droppable))
        return len(self.rows) - 1

    def _droppable(self, s: int, end: int) -> bool:
        """Whether storage s can be recomputed at a position."""
        maker = self.graph.maker[s]
        return maker >= 0 and self.graph.nodes[maker].recomputable and self.recompute_until[maker] >= end

    def add_between_uses(self, s: int) -> None:
        """Intervals between two uses of storage s that are not next to one another."""
        at, found = self.touches[s], self.interval_of[s]
        for i in range(len(at) - 1):
            if at[i + 1] > at[i] + 1:
                found[i] = self._add(s, at[i], at[i + 1], droppable=self._droppable(s, at[i + 1]))

    def add_around_end(self, s: int) -> None:
        """The interval of a persistent storage from its last use to its first use in the next step."""
        at = self.touches[s]
        self.initial[s] = self._add(s, at[-1] if at else -1, at[0] if at else self.count, wraps=True)
        if at:
            self.interval_of[s][-1] = self.initial[s]

    def add_ends(self, s: int) -> None:
        """The interval of an input before its first use, and of a result after its last use."""
        at, made = self.touches[s], self.graph.maker[s] >= 0
        last = TAIL
        if s in self.results:
            last = NEXT if at and at[-1] == self.count - 1 else self._add(s, at[-1] if at else -1, self.count)
        if at:
            self.interval_of[s][-1] = last
            if not made and at[0] > 0:
                self.initial[s] = self._add(s, -1, at[0])
        elif not made:
            self.initial[s] = last

    def add_after_last_use(self) -> None:
        """Intervals after the last use of storages that others may be recomputed from."""
        for s, last in _recomputed_from(self.graph, self.touches, self.interval_of, self.rows):
            self.interval_of[s][-1] = self._add(s, self.touches[s][-1], last, droppable=self._droppable(s, last))

    def intervals(
        self, ordinary: int, sizes: list[int], reads: list[tuple[int, ...]], needs: list[tuple[int, ...]]
    ) -> Gaps:
        """All intervals, of which the first `ordinary` come before the last use of their storage."""
        after: list[list[tuple[int, int]]] = [[] for _ in range(self.count)]
        for s, positions in enumerate(self.touches):
            for n, g in zip(positions, self.interval_of[s], strict=True):
                after[n].append((s, g))
        table = np.array(self.rows, np.int64).reshape(len(self.rows), 5)
        storage = np.ascontiguousarray(table[:, 0])
        return Gaps(
            self.graph,
            storage,
            np.ascontiguousarray(table[:, 1]),
            np.ascontiguousarray(table[:, 2]),
            table[:, 3].astype(bool),
            np.array(sizes, np.int64)[storage],
            table[:, 4].astype(bool),
            after,
            self.initial,
            self.touches,
            self.interval_of,
            self.recompute_until,
            sizes,
            reads,
            needs,
            self.results,
            np.arange(len(self.rows)) >= ordinary,
        )


def _recomputed_from(
    graph: Graph,
    touches: list[list[int]],
    interval_of: list[list[int]],
    rows: list[_Row],
) -> list[tuple[int, int]]:
    """Storages whose last use comes before something made from them may be recomputed.

    Returns (storage, position) pairs: the last position before which something that is made from the storage, directly
    or through several operations, may be recomputed.
    """
    last = [-1] * len(touches)
    found = []
    for n in range(len(graph.nodes) - 1, -1, -1):
        for s in graph.nodes[n].makes:
            if interval_of[s][-1] != TAIL:
                continue
            reach = max((last[r] for m in touches[s][1:] for r in graph.nodes[m].makes), default=-1)
            if reach > touches[s][-1]:
                found.append((s, reach))
            last[s] = reach
        for s in graph.nodes[n].makes:
            ends = [rows[g][2] for g in interval_of[s] if g >= 0 and rows[g][4]]
            last[s] = max([last[s], *ends])
    return found[::-1]


def _recompute_until(graph: Graph, reads: list[tuple[int, ...]]) -> list[int]:
    """By node: the position of the next change of a persistent storage that it read (its own change counts)."""
    never = len(graph.nodes) + 1
    recompute_until = [never] * len(graph.nodes)
    change: dict[int, int] = {}
    for n in range(len(graph.nodes) - 1, -1, -1):
        for s in graph.nodes[n].writes:
            change[s] = n
        if change:
            recompute_until[n] = min((change[s] for s in reads[n] if s in change), default=never)
    return recompute_until


def last_changes(intervals: Gaps) -> tuple[Ints, Bools]:
    """When the storage of each interval got the value that it has there, and whether the host has that value.

    Returns
    -------
    changed : array [intervals]
        The position after which the storage had its value; -1: before the step.
    clean : array [intervals] of bool
        Whether nothing of the step has written it yet, so that the host has its value if it is stored there between
        steps.
    """
    graph = intervals.graph
    writes: dict[int, list[int]] = {}
    for n, node in enumerate(graph.nodes):
        for s in node.writes:
            writes.setdefault(s, []).append(n)
    changed = np.array([max(graph.maker[s], -1) for s in intervals.storage], np.int64)
    clean = np.zeros(len(intervals), bool)
    persistent = [s for s, one in enumerate(graph.storages) if one.persistent]
    for g in np.flatnonzero(np.isin(intervals.storage, persistent)):
        before = [n for n in writes.get(int(intervals.storage[g]), ()) if n <= intervals.start[g]]
        changed[g] = before[-1] if before else -1
        clean[g] = not before
    return changed, clean


def recompute_space(intervals: Gaps) -> RecomputeSpace:
    """Arrays that the search for the cost of a recomputation works in, large enough for every interval."""
    nodes, storages, reads = len(intervals.graph.nodes), len(intervals.sizes), len(intervals.arrays.reads)
    return RecomputeSpace(
        held=np.empty(storages + 1, np.int64),
        beside=np.empty(reads + 1, np.int64),
        leaves=np.empty(reads + 1, np.int64),
        seen=np.zeros(nodes, np.int64),
        wanted=np.full(storages, -1, np.int64),
        list=np.empty(storages + 1, np.int64),
        heap=np.empty(nodes + 1, np.int64),
    )
