"""Where the stages of one task run: as many workers on one node as it has, and the nodes in turn."""

from __future__ import annotations

from stretto.errors import PlanError
from stretto.runtime.stages.sessions import StagePlace

from .stage_placement import place
from .stage_values import Assignment, NodeSlots, SchedulingHistory, StageRequest, refusal
from .tree import Unit


class Placing:
    """The nodes that a task has to itself, and where its stages ran before."""

    def __init__(self, nodes: int, threads: int) -> None:
        self._nodes = {node: NodeSlots(node, threads) for node in range(nodes)}
        self._free = dict.fromkeys(range(nodes), threads)
        self._history = SchedulingHistory()
        self._turn = 0
        self.widest = nodes * threads

    def first(self, unit: Unit) -> StagePlace:
        """Where a unit runs by its own specification; of automatic width: with one worker."""
        given = unit.workers
        if unit.placement:
            return self.at(unit, sum(many for _, many in unit.placement))
        return self.at(unit, 1 if given == "auto" else self.widest if given is None else int(given))

    def at(self, unit: Unit, workers: int, stay: StagePlace | None = None) -> StagePlace:
        """Where a unit runs with this number of workers. stay: the place of the stage that it continues."""
        if stay is not None and stay.workers == workers:
            return stay
        placement = dict(unit.placement) if unit.placement else None
        request = StageRequest("task", unit.name, workers, placement)
        if why := refusal(request, self._nodes):
            raise PlanError(why)
        found = place(request, self._nodes, self._free, self._history)
        assert found is not None  # all nodes are free
        self._turn += 1
        self._history.add(0.0, Assignment("task", unit.name, found), self._turn)
        return StagePlace(tuple(sorted(found.items())))


def moved_bytes(nbytes: int, before: StagePlace | None, now: StagePlace, nodes: int) -> int:
    """Bytes of a state that change their node between two stages.

    On one node it is there whole; otherwise it is cut evenly over all nodes. From one node to another it goes directly.
    before: None where it is created now, which moves nothing.
    """
    if before is None or nodes == 1 or before.single == now.single:
        return 0
    if before.single is not None and now.single is not None:
        return nbytes
    return nbytes - nbytes // nodes
