"""The tree of a task: units, sequences, loops, branches, and units side by side.

    step = st.unit(gradient_step, (X, y), w, workers="auto", iterations=200)
    task = st.seq(st.unit(prepare, X, w), st.loop(step, until=st.below(st.unit(loss, (X, y), w), 1e-4)))
    print(task.logical())

A tree is a frozen description. It holds no result: the same tree may run twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar, Protocol

from stretto.consistency.replication import Replication
from stretto.consistency.rules import BSP, Rule
from stretto.errors import RunError

from .arguments import Argument


class TaskMethods(Protocol):
    """What can be done with a tree. The front end has it; the tree itself is only a description."""

    def logical(self, task: Task) -> str:
        """The tree in words."""

    def plan(self, task: Task, workers: int | None, nodes: int, memory: str | int | None) -> Any:
        """The physical plan, a TaskPlan."""


class Task(ABC):
    """Base class of the nodes of a tree. Every node is a task of its own."""

    _methods: ClassVar[TaskMethods]  # set by `tasks.front`, where trees are made

    @property
    @abstractmethod
    def children(self) -> tuple[Task, ...]:
        """The nodes below, in the order in which they run."""

    def units(self) -> Iterator[Unit]:
        """The units of the tree in order, criteria and conditions included."""
        for child in self.children:
            yield from child.units()

    def logical(self) -> str:
        """The tree in words: what runs in which order on which states. Says nothing about workers or nodes.

        Returns
        -------
        str
        """
        return self._methods.logical(self)

    def plan(self, *, workers: int | None = None, nodes: int = 1, memory: str | int | None = None) -> Any:
        """The physical plan: width and placement of each stage, lifetimes of states, transfers, predicted cost.

        Parameters
        ----------
        workers : int or None, default None
            Workers in all; None for all cores of this machine.
        nodes : int, default 1
            Nodes that they are distributed over.
        memory : str, int or None, default None
            Memory of a node, such as "8GiB"; None does not check.

        Returns
        -------
        TaskPlan

        Raises
        ------
        PlanError
            If a unit asks for more workers than there are, or the states and data of a stage do not fit in memory.
        """
        return self._methods.plan(self, workers, nodes, memory)


@dataclass(frozen=True, eq=False, repr=False)
class Unit(Task):
    """A function that runs as one stage. Made by `st.unit`."""

    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    workers: int | str | None = None
    parts: int = 1
    iterations: int = 1
    placement: tuple[tuple[int, int], ...] = ()  # (node, workers), where it is given
    priority: float = 0.0
    mode: str | None = None
    sync: Rule = field(default_factory=BSP)
    fresh: tuple[int, ...] = ()  # numbers of the arguments that start from their first values each time it runs
    batch: int | None = None
    name: str = ""
    preparation: str | None = None  # of its states on one node: "whole", "on-demand", or None: chosen
    partition: tuple[tuple[str, Any], ...] = ()  # (argument, function(keys, nodes)), where it is given
    own_sync: bool = False  # `sync` was given, for the unit or for a loop around it
    tuned: bool = False  # an adaptive loop around it chooses its sync, which starts with `sync`
    rules: tuple[tuple[str, Replication], ...] = ()  # of replicated states, by argument, where a loop has chosen them

    @property
    def children(self) -> tuple[Task, ...]:
        """None: a unit is a leaf."""
        return ()

    def units(self) -> Iterator[Unit]:
        """Itself."""
        yield self

    @property
    def is_loop(self) -> bool:
        """Whether its function is a loop of `@st.parallel`."""
        return is_loop(self.function)

    def __repr__(self) -> str:
        return f"<unit {self.name}>"


@dataclass(frozen=True, eq=False, repr=False)
class SequenceTask(Task):
    """Tasks one after another. Made by `st.seq`."""

    tasks: tuple[Task, ...]

    @property
    def children(self) -> tuple[Task, ...]:
        """Its tasks."""
        return self.tasks


@dataclass(frozen=True, eq=False, repr=False)
class RepeatedTask(Task):
    """A task that is repeated. Made by `st.loop`."""

    body: Task
    times: int | None = None
    until: Criterion | None = None
    adaptive: bool = False  # it tunes the units below by the value of its criterion

    @property
    def children(self) -> tuple[Task, ...]:
        """The body, then the unit of the criterion."""
        return (self.body, *((self.until.unit,) if self.until is not None else ()))


@dataclass(frozen=True, eq=False, repr=False)
class BranchTask(Task):
    """One of two tasks. Made by `st.branch`."""

    condition: Criterion
    then: Task
    otherwise: Task | None = None

    @property
    def children(self) -> tuple[Task, ...]:
        """The unit of the condition, and both tasks."""
        return (self.condition.unit, self.then, *((self.otherwise,) if self.otherwise is not None else ()))


@dataclass(frozen=True, eq=False, repr=False)
class ParallelTasks(Task):
    """Tasks that do not wait for each other. Made by `st.parallel_units`."""

    tasks: tuple[Task, ...]

    @property
    def children(self) -> tuple[Task, ...]:
        """Its tasks."""
        return self.tasks


@dataclass(frozen=True, eq=False, repr=False)
class Criterion:
    """A unit whose value decides: made by `st.below` and `st.stalls`, or from a unit, whose value is true or false."""

    unit: Unit
    kind: str = "true"  # or "below", "stalls"
    bound: float = 0.0

    def holds(self, value: Any, before: Any) -> bool:
        """Whether it holds for a value. before: the value of the turn before, None at first."""
        if self.kind == "true":
            return bool(value)
        found = float(value)
        if not isfinite(found):
            raise RunError(f"criterion {self.unit.name}: its value is {found}; the task has diverged")
        if self.kind == "below":
            return found < self.bound
        return before is not None and abs(float(before) - found) <= self.bound * max(abs(found), 1e-300)

    def words(self) -> str:
        """The criterion in words."""
        end = {
            "true": "is true",
            "below": f"is below {self.bound:g}",
            "stalls": f"changes by less than {self.bound:g} of itself",
        }
        return f"{self.unit.name} {end[self.kind]}"


def is_loop(function: Any) -> bool:
    """Whether a function is a loop of `@st.parallel`, which has its own plans."""
    return hasattr(function, "run_plan") and hasattr(function, "using")
