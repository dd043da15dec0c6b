"""Where a storage is not wanted: the gaps between two uses, during which it could be away from the device.

A *position* is the place of a node in the order; -1 is before the first and N after the last. A storage used at 3 and
next at 9 has the gap (3, 9). What lasts from step to step has one more, round the end of the step: from its last use to
the first use in the next step. What was given with the step has one before its first use, a result one after its last.

    1 gap of y:      make y   use y   .   .   .   use y
                       0        1     2   3   4     5       gap (1, 5)

With `extend`, a storage also has a gap *beyond* its last use, up to the last position at which something made from it
may have to be recomputed. DROP there is the usual case (it is freed); KEEP makes a checkpoint of it, SWAP a checkpoint
on the host. The input of a block of a network is often such a storage: gradients do not want it, recomputing does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretto.cached import cached_property
from stretto.kernels.memory_planner.arrays import DROP, GIVEN, KEEP, NEXT, PERSISTENT, SWAP, TAIL, TEMPORARY, PlanArrays

from .graph import Graph

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

__all__ = ["DROP", "KEEP", "NEXT", "SWAP", "TAIL", "Bools", "Gaps", "Ints", "find_gaps"]


@dataclass(frozen=True, eq=False)
class Gaps:
    """All gaps of a graph and the graph as plain lists, for the loops of the planner.

    Of a gap: `storage`, `start` and `end` (positions), `wraps` (round the end of the step), `nbytes`, `droppable` (its
    maker may be run again before the end of the gap). `after[n]`: the storages that node n touches, each with the gap
    that begins there, TAIL or NEXT. `first[s]`: the gap a storage is in when the step begins. `touches[s]` are
    positions, the maker's first; `gap_of[s]` is the gap after each. `until[n]`: the last position before which n can
    run again, because a lasting storage that it read is changed there. `beyond`: gaps after the last use.
    """

    graph: Graph
    storage: Ints
    start: Ints
    end: Ints
    wraps: Bools
    nbytes: Ints
    droppable: Bools
    after: list[list[tuple[int, int]]]
    first: list[int]
    touches: list[list[int]]
    gap_of: list[list[int]]
    until: list[int]
    sizes: list[int]
    reads: list[tuple[int, ...]]
    needs: list[tuple[int, ...]]  # reads and writes, each once
    wanted_at_end: frozenset[int]
    beyond: Bools

    def __len__(self) -> int:
        return len(self.storage)

    def everywhere(self, what: int) -> list[int]:
        """The same choice in every gap; what is not wanted any more is freed."""
        chosen: list[int] = np.where(self.beyond, DROP, what).tolist()
        return chosen

    @cached_property
    def arrays(self) -> PlanArrays:
        """The same for compiled loops."""
        graph, nodes = self.graph, self.graph.nodes
        kinds = [PERSISTENT if one.lasting else GIVEN if one.kind == "input" else TEMPORARY for one in graph.storages]
        return PlanArrays(
            *_listed(self.needs),
            *_listed(self.reads),
            *_listed([node.makes for node in nodes]),
            *_listed([node.writes for node in nodes]),
            *_listed([[s for s, _ in those] for those in self.after]),
            _listed([[g for _, g in those] for those in self.after])[1],
            *_listed(self.touches),
            _listed(self.gap_of)[1],
            np.array(self.first, np.int64),
            np.array(graph.maker, np.int64),
            np.array(self.sizes, np.int64),
            np.array(kinds, np.uint8),
            np.array([node.again for node in nodes], np.uint8),
            np.array(self.until, np.int64),
            np.array([node.workspace for node in nodes], np.int64),
            np.array([node.seconds for node in nodes], np.float64),
            self.storage,
            self.start,
            self.end,
            self.wraps.astype(np.uint8),
            self.beyond.astype(np.uint8),
            np.array(sorted(self.wanted_at_end), np.int64),
        )

    def covering(self, position: int) -> Bools:
        """Which gaps a storage spends away from this position."""
        outside = (self.start < position) | (position < self.end)
        return np.where(self.wraps, outside, (self.start < position) & (position < self.end))

    def at(self, s: int, position: int) -> int:
        """The gap that storage s is in just before this position runs: a gap, TAIL, or NEXT if it is used right
        there or was used right before."""
        touches = self.touches[s]
        i = bisect_left(touches, position)
        if i < len(touches) and touches[i] == position:
            return NEXT
        return self.gap_of[s][i - 1] if i else self.first[s]

    def before(self, s: int, position: int) -> int:
        """The gap of storage s that ends at this position, or is under way there; TAIL or NEXT if there is none."""
        i = bisect_left(self.touches[s], position)
        return self.gap_of[s][i - 1] if i else self.first[s]


def _listed(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Bounds of lists in one array, and the array."""
    bounds = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=bounds[1:])
    return bounds, np.array([x for one in lists for x in one], np.int64)


def find_gaps(graph: Graph, *, place: bool = True, extend: bool = False) -> Gaps:
    """The gaps of a graph in the order of its nodes.

    Parameters
    ----------
    place : bool
        False: persistent storages never leave the device.
    extend : bool
        Add gaps beyond the last use of storages.
    """
    count = len(graph.nodes)
    sizes = [one.nbytes for one in graph.storages]
    reads = [tuple(dict.fromkeys(node.reads)) for node in graph.nodes]
    needs = [tuple(dict.fromkeys((*node.reads, *node.writes))) for node in graph.nodes]
    touches: list[list[int]] = [[] if graph.maker[s] < 0 else [graph.maker[s]] for s in range(len(sizes))]
    for n, which in enumerate(needs):
        for s in which:
            touches[s].append(n)
    until = _until(graph, reads)
    results = frozenset(graph.results)
    rows: list[tuple[int, int, int, bool, bool]] = []
    first, gap_of = [NEXT] * len(sizes), [[NEXT] * len(t) for t in touches]

    def add(s: int, start: int, end: int, wraps: bool = False, droppable: bool = False) -> int:
        rows.append((s, start, end, wraps, droppable))
        return len(rows) - 1

    for s, one in enumerate(graph.storages):
        at, gaps, maker = touches[s], gap_of[s], graph.maker[s]
        if one.lasting and (not place or s in results):  # what is returned must be there when the step ends
            continue
        again = maker >= 0 and graph.nodes[maker].again
        for i in range(len(at) - 1):
            if at[i + 1] > at[i] + 1:
                gaps[i] = add(s, at[i], at[i + 1], False, again and until[maker] >= at[i + 1])
        if one.lasting:
            first[s] = add(s, at[-1] if at else -1, at[0] if at else count, True)
            if at:
                gaps[-1] = first[s]
        else:
            last = TAIL
            if s in results:
                last = NEXT if at and at[-1] == count - 1 else add(s, at[-1] if at else -1, count)
            if at:
                gaps[-1] = last
                if maker < 0 and at[0] > 0:
                    first[s] = add(s, -1, at[0])
            elif maker < 0:
                first[s] = last
    ordinary = len(rows)
    if extend:
        for s, last in _recomputed_from(graph, touches, gap_of, rows):
            maker = graph.maker[s]
            again = maker >= 0 and graph.nodes[maker].again and until[maker] >= last
            gap_of[s][-1] = add(s, touches[s][-1], last, False, again)
    after: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for s, positions in enumerate(touches):
        for n, g in zip(positions, gap_of[s], strict=True):
            after[n].append((s, g))
    table = np.array(rows, np.int64).reshape(len(rows), 5)
    storage = np.ascontiguousarray(table[:, 0])
    return Gaps(
        graph,
        storage,
        np.ascontiguousarray(table[:, 1]),
        np.ascontiguousarray(table[:, 2]),
        table[:, 3].astype(bool),
        np.array(sizes, np.int64)[storage],
        table[:, 4].astype(bool),
        after,
        first,
        touches,
        gap_of,
        until,
        sizes,
        reads,
        needs,
        results,
        np.arange(len(rows)) >= ordinary,
    )


def _recomputed_from(
    graph: Graph,
    touches: list[list[int]],
    gap_of: list[list[int]],
    rows: list[tuple[int, int, int, bool, bool]],
) -> list[tuple[int, int]]:
    """(storage, position) of storages without another use: the last position before which something that is made from
    them, at once or in several operations, may be recomputed."""
    last = [-1] * len(touches)
    found = []
    for n in range(len(graph.nodes) - 1, -1, -1):
        for s in graph.nodes[n].makes:
            if gap_of[s][-1] != TAIL:
                continue
            reach = max((last[r] for m in touches[s][1:] for r in graph.nodes[m].makes), default=-1)
            if reach > touches[s][-1]:
                found.append((s, reach))
            last[s] = reach
        for s in graph.nodes[n].makes:
            ends = [rows[g][2] for g in gap_of[s] if g >= 0 and rows[g][4]]
            last[s] = max([last[s], *ends])
    return found[::-1]


def _until(graph: Graph, reads: list[tuple[int, ...]]) -> list[int]:
    """By node: the position of the next change of anything lasting that it read (its own change counts)."""
    never = len(graph.nodes) + 1
    until = [never] * len(graph.nodes)
    change: dict[int, int] = {}
    for n in range(len(graph.nodes) - 1, -1, -1):
        for s in graph.nodes[n].writes:
            change[s] = n
        if change:
            until[n] = min((change[s] for s in reads[n] if s in change), default=never)
    return until
