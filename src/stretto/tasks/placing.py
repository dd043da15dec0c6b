"""Where the stages of tasks run: through the gate that all tasks of a session share."""

from __future__ import annotations

from collections.abc import Iterable

from stretto.errors import PlanError
from stretto.runtime.stages.gate import StageGate
from stretto.runtime.stages.stage_runs import StagePlace
from stretto.schedule.stages.stage_placement import place, place_near
from stretto.schedule.stages.stage_scheduler import StageScheduler
from stretto.schedule.stages.stage_values import Assignment, NodeSlots, SchedulingHistory, StageRequest, refusal

from .files import FileBlocks
from .reads import UnitReads
from .tree import Unit


def request_of(
    unit: Unit,
    task: str,
    stage: str,
    workers: int,
    priority: float = 0.0,
    reads: UnitReads | None = None,
    most: int = 1,
    before: tuple[int, ...] = (),
) -> StageRequest:
    """What a unit asks the scheduler for.

    reads: what it reads in blocks. most: workers of a node. before: nodes of its stage before.
    """
    placement = dict(unit.placement) if unit.placement else None
    data: frozenset[str] = frozenset()
    if reads is not None and reads.near:
        if reads.pinned:
            placement = place_near(reads.near, workers, most) if placement is None else placement
            workers = sum(placement.values())
            reads.check(unit.name, placement)
        data = reads.held
    return StageRequest(task, stage, workers, placement, data, unit.priority + priority, before=before)


def width_of(unit: Unit, widest: int, found: int = 0, threads: int | None = None) -> int:
    """Workers that a unit asks for. found: its width where that is automatic. threads: of a node."""
    if unit.mode is not None and threads is not None:  # its states are memory of one process
        widest = threads
    if unit.placement:
        return sum(many for _, many in unit.placement)
    if unit.workers == "auto":
        return max(1, found)
    # A worker without a part would only wait; the blocks of a loop are not known here.
    return (widest if unit.is_loop else min(widest, unit.parts)) if unit.workers is None else int(unit.workers)


def gate_of(nodes: Iterable[int], threads: int) -> StageGate:
    """A gate for nodes with this many workers each."""
    return StageGate(StageScheduler(_slots(nodes, threads).values()))


def place_of(assignment: Assignment) -> StagePlace:
    """An assignment as the place of a stage."""
    return StagePlace(tuple(sorted(assignment.workers_by_node.items())))


def slots_of(node: int, threads: int) -> NodeSlots:
    """A node with this many workers."""
    return NodeSlots(node, threads)


def _slots(nodes: Iterable[int], threads: int) -> dict[int, NodeSlots]:
    return {node: NodeSlots(node, threads) for node in nodes}


class Placing:
    """Where the stages of a task would run if it had all nodes to itself, for its plan."""

    def __init__(self, nodes: int, threads: int) -> None:
        self._nodes = _slots(range(nodes), threads)
        self._history = SchedulingHistory()
        self._turn = 0
        self.widest = nodes * threads

    def first(self, unit: Unit) -> StagePlace:
        """Where a unit runs next; of automatic width: with one worker. Any node may have files of its own."""
        nodes, reads = len(self._nodes), None
        if any(isinstance(a.value, FileBlocks) and a.value.opened is None for a in unit.arguments):
            reads = UnitReads(near=tuple(part * nodes // unit.parts for part in range(unit.parts)), pinned=True)
        if unit.placement:
            reads = None  # which of them have files is known when the task starts
        request = request_of(unit, "task", unit.name, width_of(unit, self.widest), 0.0, reads, self.widest // nodes)
        if why := refusal(request, self._nodes):
            raise PlanError(why)
        free = {number: slots.workers for number, slots in self._nodes.items()}
        found = place(request, self._nodes, free, self._history)
        assert found is not None  # all nodes are free
        assignment = Assignment("task", unit.name, found)
        self._history.add(0.0, assignment, self._turn)
        self._turn += 1
        return place_of(assignment)


def moved_bytes(nbytes: int, before: StagePlace | None, now: StagePlace, nodes: int) -> int:
    """Bytes of a state that change their node between two stages.

    One node holds it whole; several hold it cut evenly over all nodes. From one node to another it goes directly.
    before: None where it is created now, which moves nothing.
    """
    if before is None or nodes == 1 or before.single == now.single:
        return 0
    if before.single is not None and now.single is not None:
        return nbytes
    return nbytes - nbytes // nodes
