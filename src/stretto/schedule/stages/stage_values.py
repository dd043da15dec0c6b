"""The values that go into the stage scheduler and come out of it: nodes, requests, assignments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stretto.checks import of
from stretto.errors import PlanError


@dataclass(frozen=True)
class NodeSlots:
    """A node and what it offers to stages."""

    number: int
    workers: int  # stages that run on it have at most this number together
    data: frozenset[str] = frozenset()  # names of the data sets of which it holds a part

    def __post_init__(self) -> None:
        check = of("NodeSlots")
        check.number("number", self.number, least=0, whole=True)
        check.number("workers", self.workers, least=1, whole=True)


@dataclass(frozen=True)
class StageRequest:
    """A stage that is ready to run, and the workers it asks for."""

    task: str
    stage: str  # unique among the stages of the task that wait or run
    workers: int
    placement: Mapping[int, int] | None = None  # workers on each node, followed strictly; None: the scheduler decides
    data: frozenset[str] = frozenset()  # names of the data sets that it reads; empty: any node is as good
    priority: float = 0.0  # a higher one goes first
    before: tuple[int, ...] = ()  # nodes of the stage of its unit before, which hold its states; preferred among equals

    def __post_init__(self) -> None:
        check = of(self.name)
        check.number("workers", self.workers, least=1, whole=True)
        check.number("priority", self.priority)
        if self.placement is None:
            return
        for workers in self.placement.values():
            check.number("workers of a node in placement", workers, least=1, whole=True)
        if sum(self.placement.values()) != self.workers:
            raise PlanError(
                f"{self.name}: placement={dict(self.placement)} has {sum(self.placement.values())} workers and "
                f"workers={self.workers}; make them equal, or leave placement out"
            )

    @property
    def key(self) -> tuple[str, str]:
        """Task and stage."""
        return self.task, self.stage

    @property
    def name(self) -> str:
        """Task and stage, for messages."""
        return f"stage {self.stage} of task {self.task}"


@dataclass(frozen=True)
class Assignment:
    """A stage that may start now, and where."""

    task: str
    stage: str
    workers_by_node: Mapping[int, int]

    @property
    def key(self) -> tuple[str, str]:
        """Task and stage."""
        return self.task, self.stage


@dataclass(frozen=True)
class PlacementRecord:
    """One entry of a task's scheduling history."""

    time: float
    assignment: Assignment


@dataclass
class SchedulingHistory:
    """Where the stages of one task were placed."""

    records: list[PlacementRecord] = field(default_factory=list)
    turns: dict[int, int] = field(default_factory=dict)  # by node: the assignment that used it last, by count

    def add(self, now: float, assignment: Assignment, turn: int) -> None:
        """Note an assignment; later ones have higher turns."""
        self.records.append(PlacementRecord(now, assignment))
        for node in assignment.workers_by_node:
            self.turns[node] = turn

    def last_used(self, node: int) -> int:
        """The turn in which the task last used the node; −1: never, which is longest ago."""
        return self.turns.get(node, -1)


def refusal(request: StageRequest, nodes: Mapping[int, NodeSlots]) -> str:
    """Why these nodes can never hold the request, and what would fit; empty if they can."""
    if request.placement is None:
        total = sum(node.workers for node in nodes.values())
        if request.workers <= total:
            return ""
        return (
            f"{request.name} asks for {request.workers} workers, and all nodes together have {total}; "
            f"ask for at most {total}"
        )
    for number, workers in request.placement.items():
        if number not in nodes:
            known = ", ".join(map(str, nodes)) or "none"
            return f"{request.name} is placed on node {number}, which does not exist; the nodes are: {known}"
        if workers > nodes[number].workers:
            most = nodes[number].workers
            return (
                f"{request.name} asks for {workers} workers on node {number}, which has {most}; "
                f"ask for at most {most} there, or leave placement out"
            )
    return ""
