"""Orders in which the nodes of a graph can run. All of them keep what `graph.before()` asks for.

updates_early   the order of the program, but an optimizer's update comes right after the gradient that it wants
depth_first     of the nodes that can run, the one that became so last (the dissertation's Algorithm 4)
levels          of the nodes that can run, the one with the longest way to the end (its section 6.3.4)
deep_levels     depth first, but of those that become ready together the one with the longest way first
"""

from __future__ import annotations

import heapq

from .graph import Graph


def after(before: list[list[int]]) -> list[list[int]]:
    """By node: the nodes that wait for it, in the order of the program."""
    found: list[list[int]] = [[] for _ in before]
    for n, waits_for in enumerate(before):
        for m in waits_for:
            found[m].append(n)
    return found


def heights(before: list[list[int]]) -> list[int]:
    """By node: how many nodes the longest way from it to the end has."""
    found = [1] * len(before)
    for n in range(len(before) - 1, -1, -1):
        for m in before[n]:
            found[m] = max(found[m], found[n] + 1)
    return found


def updates_early(graph: Graph) -> list[int]:
    """The order of the program with every update node moved up to where all that it waits for is done."""
    before = graph.before()
    follow = after(before)
    missing = [len(waits_for) for waits_for in before]
    moved = [node.phase == "update" for node in graph.nodes]
    done = bytearray(len(missing))
    order: list[int] = []

    def run(first: int) -> None:
        ready = [first]
        while ready:
            n = ready.pop()
            order.append(n)
            done[n] = 1
            freed = []
            for m in follow[n]:
                missing[m] -= 1
                if not missing[m] and moved[m]:
                    freed.append(m)
            ready.extend(reversed(freed))

    for n in range(len(missing)):
        if not done[n] and not missing[n]:
            run(n)
    return order


def depth_first(graph: Graph) -> list[int]:
    """A stack of nodes that can run; the one that became so last runs first."""
    return _by_stack(graph.before())


def deep_levels(graph: Graph) -> list[int]:
    """Depth first; of the nodes that become ready together the one with the longest way to the end is on top."""
    before = graph.before()
    return _by_stack(before, heights(before))


def _by_stack(before: list[list[int]], height: list[int] | None = None) -> list[int]:
    follow = after(before)
    missing = [len(waits_for) for waits_for in before]
    stack = [n for n in range(len(missing) - 1, -1, -1) if not missing[n]]
    if height is not None:
        stack.sort(key=height.__getitem__)
    order: list[int] = []
    while stack:
        n = stack.pop()
        order.append(n)
        freed = []
        for m in follow[n]:
            missing[m] -= 1
            if not missing[m]:
                freed.append(m)
        if height is not None:
            freed.sort(key=lambda m: (height[m], -m))
        else:  # the program's first on top, and above it what nothing waits for (updates)
            freed.sort(key=lambda m: (not follow[m], -m))
        stack.extend(freed)
    return order


def levels(graph: Graph) -> list[int]:
    """By decreasing length of the longest way to the end, which is what the dissertation calls depth."""
    before = graph.before()
    height, follow = heights(before), after(before)
    missing = [len(waits_for) for waits_for in before]
    ready = [(-height[n], n) for n in range(len(missing)) if not missing[n]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, n = heapq.heappop(ready)
        order.append(n)
        for m in follow[n]:
            missing[m] -= 1
            if not missing[m]:
                heapq.heappush(ready, (-height[m], m))
    return order


ORDERS = {"depth_first": depth_first, "levels": levels, "deep_levels": deep_levels, "program": updates_early}
