"""In which runs the operations of a group are run.

Each run is all of its operations for the first piece, then all for the second. A run ends where an operation wants
something that is made of all pieces: most of the step lies between a layer's forward operations and its backward ones,
so they are two runs. Pieces wait for the second run as they are, each by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Graph, Node

from .groups import Group

_CHANGES = (  # something, at its time
    "stretto.update.default",
    "stretto.update_unless.default",
    "aten.copy_.default",
    "aten.copy.default",
)


def in_runs(graph: Graph, group: Group) -> Group:
    """Put its operations into as few runs as their order allows, and note what has to come before each."""
    group.runs, group.before = [], []
    run: set[Node] = set()
    after: set[Node] = set()  # outside, and made of what the run makes
    beside: dict[Node, None] = {}  # outside, between operations of the run, and not made of them; in order
    stuck: set[Node] = set()  # of those: must stay where they are, or wait for such
    drawn = False  # random numbers that wait for the run, or are stuck: no later ones may be drawn before it
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node in group.needs:
            if any(x in after or x in stuck or (x in run and x in group.added) for x in inputs) or not run:
                run, after, beside, stuck, drawn = set(), set(), {}, set(), False
                group.runs.append([])
                group.before.append([])
            run.add(node)
            group.runs[-1].append(node)
            group.before[-1] += _taken_out(beside, inputs)
        elif run:
            if any(x in run or x in after for x in inputs):
                after.add(node)
                drawn = drawn or _draws(node)
            else:
                beside[node] = None
                if str(node.target) in _CHANGES or (drawn and _draws(node)) or any(x in stuck for x in inputs):
                    stuck.add(node)
                    drawn = drawn or _draws(node)
    return group


def _taken_out(beside: dict[Node, None], wanted: Iterable[Node]) -> list[Node]:
    """Those that are wanted and what they want, in an order in which they can be made. Random numbers are drawn in
    their order: with one, all that are drawn before it."""
    found: list[Node] = []
    left = [x for x in wanted if x in beside]
    while left:
        node = left.pop()
        if node not in beside:
            continue
        if _draws(node):
            earlier = list(beside)
            left += [other for other in earlier[: earlier.index(node)] if _draws(other)]
        del beside[node]
        found.append(node)
        left += [x for x in node.all_input_nodes if x in beside]
    return sorted(found)


def _draws(node: Node) -> bool:
    """Whether it takes random numbers, or may."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
