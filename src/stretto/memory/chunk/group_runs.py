"""Divide the operations of a group into runs.

In each run, all its operations run for the first chunk, then all for the second, and so on. A run ends where an
operation needs a result of all chunks. Most of the step comes between the forward and the backward operations of a
layer, so they are two runs. Between them the chunks are kept separately.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Graph, Node

from .groups import ChunkGroup

_CHANGES = (  # operations that change a tensor, so they cannot be moved
    "stretto.update.default",
    "stretto.update_unless.default",
    "aten.copy_.default",
    "aten.copy.default",
)


def assign_runs(graph: Graph, group: ChunkGroup) -> ChunkGroup:
    """Divide the operations of a group into as few runs as their order allows.

    Sets `group.runs`, and `group.before`: what must come before each run.
    """
    group.runs, group.before = [], []
    run: set[Node] = set()
    after: set[Node] = set()  # outside the group, and depend on the run
    independent: dict[Node, None] = {}  # outside the group, between operations of the run, independent of it; in order
    stuck: set[Node] = set()  # of those: cannot be moved before the run
    drawn = False  # random numbers are drawn after or within the run, so later ones cannot be drawn before it
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node in group.needs:
            if any(x in after or x in stuck or (x in run and x in group.added) for x in inputs) or not run:
                run, after, independent, stuck, drawn = set(), set(), {}, set(), False
                group.runs.append([])
                group.before.append([])
            run.add(node)
            group.runs[-1].append(node)
            group.before[-1] += _pop_needed(independent, inputs)
        elif run:
            if any(x in run or x in after for x in inputs):
                after.add(node)
                drawn = drawn or _draws(node)
            else:
                independent[node] = None
                if str(node.target) in _CHANGES or (drawn and _draws(node)) or any(x in stuck for x in inputs):
                    stuck.add(node)
                    drawn = drawn or _draws(node)
    return group


def _pop_needed(independent: dict[Node, None], wanted: Iterable[Node]) -> list[Node]:
    """Remove operations that are needed, with their inputs, and return them in order.

    Random numbers keep their order: an operation that draws some also moves all that draw before it.
    """
    found: list[Node] = []
    left = [x for x in wanted if x in independent]
    while left:
        node = left.pop()
        if node not in independent:
            continue
        if _draws(node):
            earlier = list(independent)
            left += [other for other in earlier[: earlier.index(node)] if _draws(other)]
        del independent[node]
        found.append(node)
        left += [x for x in node.all_input_nodes if x in independent]
    return sorted(found)


def _draws(node: Node) -> bool:
    """Whether an operation may draw random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
