"""Where a stage runs: the placement rules of FlexPS (section 5.2 of the paper) as one pure function.

1. A complete specification is followed strictly.
2. Otherwise all workers go to one node, so that they share its copy of the model: a node that holds part of the data if
   one has enough free workers. Of several, it is the one that this task used longest ago, so that all parts of the data
   are read about equally often. The stages of one run of a unit stay on the nodes of the first where they fit.
3. Otherwise the workers are spread over as few nodes as possible, as many of them as possible holding data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .stage_values import NodeSlots, SchedulingHistory, StageRequest


def place(
    request: StageRequest, nodes: Mapping[int, NodeSlots], free: Mapping[int, int], history: SchedulingHistory
) -> dict[int, int] | None:
    """The workers of the stage on each node; None if it does not fit now.

    Parameters
    ----------
    request : StageRequest
        The stage.
    nodes : mapping of int to NodeSlots
        The nodes that take work.
    free : mapping of int to int
        Their free workers, less those locked for other stages.
    history : SchedulingHistory
        Where the stages of its task ran before.
    """
    if request.placement is not None:
        fits = all(free.get(node, 0) >= workers for node, workers in request.placement.items())
        return dict(request.placement) if fits else None
    # Best first: holders of data, nodes of the stage before, the node used longest ago, the lowest number.
    ranked = sorted(
        (node for node in nodes if free[node] > 0),
        key=lambda node: (
            not _holds(nodes[node], request),
            node not in request.before,
            history.last_used(node),
            node,
        ),
    )
    for node in ranked:
        if free[node] >= request.workers:
            return {node: request.workers}
    return _spread(request, nodes, free, ranked)


def _spread(
    request: StageRequest, nodes: Mapping[int, NodeSlots], free: Mapping[int, int], ranked: list[int]
) -> dict[int, int] | None:
    """Workers on the fewest nodes that have enough of them free, holders of data preferred."""
    # A stable sort: nodes with equally many free workers stay in the order of `ranked`.
    largest = sorted(ranked, key=lambda node: -free[node])
    count = _fewest(request.workers, [free[node] for node in largest])
    if count is None:
        return None
    holders = [node for node in largest if _holds(nodes[node], request)]
    others = [node for node in largest if not _holds(nodes[node], request)]
    for holding in range(min(count, len(holders)), -1, -1):
        chosen = holders[:holding] + others[: count - holding]
        if len(chosen) == count and sum(free[node] for node in chosen) >= request.workers:
            break
    left, found = request.workers, {}
    for node in chosen:
        found[node] = min(left, free[node])
        left -= found[node]
    return found


def _fewest(workers: int, free: list[int]) -> int | None:
    """How many of these numbers, taken from the front, have this sum; None if all together have less."""
    total = 0
    for count, each in enumerate(free, 1):
        total += each
        if total >= workers:
            return count
    return None


def _holds(node: NodeSlots, request: StageRequest) -> bool:
    return not request.data or bool(node.data & request.data)


def place_near(near: Sequence[int], workers: int, most: int) -> dict[int, int]:
    """Workers on the nodes that have the files of parts, where no other node can read them.

    Each of these nodes has a worker at least, even where fewer were asked for; the others go where a worker has most
    parts.

    Parameters
    ----------
    near : sequence of int
        By part: its node.
    workers : int
        Workers that the stage asks for.
    most : int
        Workers of a node.
    """
    parts = {node: sum(at == node for at in near) for node in sorted(set(near))}
    found = dict.fromkeys(parts, 1)
    for _ in range(workers - len(found)):
        able = [node for node in parts if found[node] < min(most, parts[node])]
        if not able:
            break
        found[max(able, key=lambda node: (parts[node] / found[node], -node))] += 1
    return found


def lock(request: StageRequest, free: Mapping[int, int]) -> dict[int, int]:
    """The free workers to keep for a starving stage that does not fit: all that it could use."""
    if request.placement is None:
        return dict(free)
    return {node: min(workers, free.get(node, 0)) for node, workers in request.placement.items() if node in free}
