"""Topological orders in which the nodes of a graph can run. All of them respect `Graph.dependencies`.

updates_early   program order, with each optimizer update right after the gradient that it needs
depth_first     of the ready nodes, the one that became ready last (Algorithm 4 of the dissertation)
levels          of the ready nodes, the one with the longest path to the end (section 6.3.4 of the dissertation)
deep_levels     depth first; of nodes that become ready together, the one with the longest path first
"""

from __future__ import annotations

import heapq

from .graph import Graph


def dependents(dependencies: list[list[int]]) -> list[list[int]]:
    """For each node, the nodes that depend on it, in program order."""
    found: list[list[int]] = [[] for _ in dependencies]
    for n, waits_for in enumerate(dependencies):
        for m in waits_for:
            found[m].append(n)
    return found


def heights(dependencies: list[list[int]]) -> list[int]:
    """For each node, the number of nodes on the longest path from it to the end."""
    found = [1] * len(dependencies)
    for n in range(len(dependencies) - 1, -1, -1):
        for m in dependencies[n]:
            found[m] = max(found[m], found[n] + 1)
    return found


def updates_early(graph: Graph) -> list[int]:
    """Program order, with every update node moved to where its dependencies are done."""
    dependencies = graph.dependencies()
    dependents_of = dependents(dependencies)
    missing = [len(waits_for) for waits_for in dependencies]
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
            for m in dependents_of[n]:
                missing[m] -= 1
                if not missing[m] and moved[m]:
                    freed.append(m)
            ready.extend(reversed(freed))

    for n in range(len(missing)):
        if not done[n] and not missing[n]:
            run(n)
    return order


def depth_first(graph: Graph) -> list[int]:
    """Order from a stack of ready nodes: the node that became ready last runs first."""
    return _by_stack(graph.dependencies())


def deep_levels(graph: Graph) -> list[int]:
    """Depth first; of nodes that become ready together, the one with the longest path to the end runs first."""
    dependencies = graph.dependencies()
    return _by_stack(dependencies, heights(dependencies))


def _by_stack(dependencies: list[list[int]], height: list[int] | None = None) -> list[int]:
    dependents_of = dependents(dependencies)
    missing = [len(waits_for) for waits_for in dependencies]
    stack = [n for n in range(len(missing) - 1, -1, -1) if not missing[n]]
    if height is not None:
        stack.sort(key=height.__getitem__)
    order: list[int] = []
    while stack:
        n = stack.pop()
        order.append(n)
        freed = []
        for m in dependents_of[n]:
            missing[m] -= 1
            if not missing[m]:
                freed.append(m)
        if height is not None:
            freed.sort(key=lambda m: (height[m], -m))
        else:  # the first in program order on top, above it nodes without dependents (updates)
            freed.sort(key=lambda m: (not dependents_of[m], -m))
        stack.extend(freed)
    return order


def levels(graph: Graph) -> list[int]:
    """Order by decreasing length of the longest path to the end, which the dissertation calls depth."""
    dependencies = graph.dependencies()
    height, dependents_of = heights(dependencies), dependents(dependencies)
    missing = [len(waits_for) for waits_for in dependencies]
    ready = [(-height[n], n) for n in range(len(missing)) if not missing[n]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, n = heapq.heappop(ready)
        order.append(n)
        for m in dependents_of[n]:
            missing[m] -= 1
            if not missing[m]:
                heapq.heappush(ready, (-height[m], m))
    return order


ORDERS = {"depth_first": depth_first, "levels": levels, "deep_levels": deep_levels, "program": updates_early}
