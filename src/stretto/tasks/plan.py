"""`TaskPlan`: the physical plan of a task: widths, placement, lifetimes, transfers and predicted cost.

plan = task.plan(workers=32, nodes=4)
print(plan)
plan.run(runtime=st.Simulated(nodes=4, threads=8))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path as FilePath
from typing import Any

from stretto.cached import cached_property
from stretto.checks import parse_bytes, whole
from stretto.errors import NotEnoughMemory, PlanError
from stretto.plan.cost import Cost
from stretto.plan.explain import PROMISE
from stretto.plan.planned import BasePlan, Runner
from stretto.runtime.cpus import workers_from
from stretto.runtime.stages.exchange_choice import exchange_words
from stretto.runtime.stages.stage_runs import StagePlace
from stretto.state.state import ReplicatedState
from stretto.text import counted, fact_page, show_bytes

from .adaptive.syncing import adaptive_loops, refuse_untuned
from .lifetimes import Lifetime, lifetimes, places
from .logical import arguments_of, names_of
from .placing import Placing, moved_bytes
from .proposals.costs import Machine
from .proposals.distribution import distribution_of
from .proposals.propose import proposals_for
from .transactions.declared import refuse_inexact
from .transactions.mailbox import MailState
from .tree import RepeatedTask, Task, Unit
from .walk import Path


@dataclass(frozen=True, eq=False)
class PlannedStage:
    """A unit in the plan: where it runs first, what is created before it and freed after it."""

    path: Path
    unit: Unit
    place: StagePlace
    automatic: bool
    creates: tuple[str, ...]
    frees: tuple[str, ...]
    moved: int  # bytes of states that change their node before it, the first time
    memory: int  # bytes of states and data that are needed while it runs
    sent: int  # bytes that an iteration sends between nodes, at most
    exchanges: tuple[str, ...] = ()  # how each replicated state is exchanged, and why


@dataclass(frozen=True, eq=False, repr=False)
class TaskPlan(BasePlan):
    """The physical plan of a task.

    Attributes
    ----------
    task : Task
        The tree.
    workers : int
        Workers of all nodes.
    nodes : int
        Nodes.
    stages : tuple of PlannedStage
        The units in the order of the tree.
    grade : str
        "identical", "replayable" or "statistical": that of the weakest unit.
    runner : callable or None
        What `run` calls.
    """

    task: Task
    workers: int
    nodes: int
    stages: tuple[PlannedStage, ...]
    runner: Runner | None = None

    @property
    def grade(self) -> str:
        """What the task promises."""
        grades = [grade_of(stage.unit) for stage in self.stages]
        grades += ["replayable" for _ in adaptive_loops(self.task)]
        return max(grades, key=list(PROMISE).index)

    @property
    def cost(self) -> Cost:
        """Memory of the stage that needs most, and bytes that move between nodes in one run of every stage."""
        most = max(stage.memory for stage in self.stages)
        moved = sum(stage.moved + stage.sent * stage.unit.iterations for stage in self.stages)
        return Cost(0, 0, most, moved, 0)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the fingerprint is made of: the tree and the shapes of what it uses. Widths are no part of it."""
        return {
            "tree": self.task.logical(),
            "arguments": [repr(a.value) for a in arguments_of(self.task) if a.kind in ("value", "knob")],
        }

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything but functions and data that can change a number."""
        text = json.dumps(self.settings, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """The plan in a few words."""
        where = f"{counted(self.workers, 'worker')} on {counted(self.nodes, 'node')}"
        return f"task of {counted(len(self.stages), 'unit')}, {self.grade}, {where}"

    def explain(self) -> str:
        """The plan in words: a heading, then one fact a line."""
        facts = [
            ("grade", f"{self.grade}: {PROMISE[self.grade]}"),
            (
                "fingerprint",
                "of the tree and the shapes it uses; functions, data, values of states and seed are no part of it",
            ),
        ]
        for number, stage in enumerate(self.stages):
            facts += [(f"stage {number}", self._stage(stage))]
            if stage.creates:
                facts.append(("", f"creates {', '.join(stage.creates)}"))
            if stage.moved:
                facts.append(("", f"receives {show_bytes(stage.moved)} of states from other nodes"))
            facts += [("", words) for words in stage.exchanges]
            if stage.frees:
                facts.append(("", f"frees {', '.join(stage.frees)}"))
        if self.nodes > 1:
            proposed = proposals_for(self.task, self.stages, Machine(self.nodes), None)
            facts += [(f"state {one.name}", one.reason) for one in proposed]
        facts += [
            ("memory", f"{show_bytes(self.cost.state_bytes)} in the stage that needs most"),
            ("runs on", f"{counted(self.workers, 'worker')} on {counted(self.nodes, 'node')}"),
        ]
        return fact_page(f"plan {self.fingerprint}: task of {counted(len(self.stages), 'unit')}", facts)

    def _stage(self, stage: PlannedStage) -> str:
        unit = stage.unit
        width = counted(stage.place.workers, "worker")
        where = ", ".join(f"{count} on node {node}" for node, count in stage.place.workers_by_node)
        how = f"width chosen while it runs, {width} at first" if stage.automatic else width
        sent = f", sends at most {show_bytes(stage.sent)} an iteration" if stage.sent else ""
        work = f"{counted(unit.parts, 'part')}, {counted(unit.iterations, 'iteration')}"
        named = distribution_of(unit)
        return f"{unit.name}: {how} ({where}), {work}{sent}" + (f", {named}" if named else "")

    def draw(self, path: str | None = None, workers: int | None = None) -> str:
        """The plan as SVG text: a bar for each stage, as wide as its workers, in the order of the tree.

        Parameters
        ----------
        path : str or None, default None
            File to write it to (.svg).
        workers : int or None, default None
            Not used.
        """
        text = picture(self)
        if path is not None:
            target = FilePath(path)
            if target.suffix != ".svg":
                raise PlanError(f"cannot draw this plan as {target.suffix or 'a file without suffix'}; use .svg")
            target.write_text(text, encoding="utf-8")
        return text


def make_plan(task: Task, workers: int | None, nodes: int, memory: str | int | None, runtime: Any = None) -> TaskPlan:
    """Plan a task for a number of workers on a number of nodes. runtime: whose links are known."""
    nodes = whole("nodes", nodes, 1, "plan")
    total = workers_from(None) if workers is None else whole("workers", workers, 1, "plan")
    if total < nodes:
        raise PlanError(f"plan: {total} workers on {nodes} nodes; give each node at least one")
    refuse_untuned(task)
    refuse_inexact(task)
    placing = Placing(nodes, total // nodes)
    names, lives = names_of(task), lifetimes(task)
    order = list(places(task))
    found: list[PlannedStage] = []
    at: dict[int, StagePlace] = {}  # by state: where it was used last
    for number, (path, unit) in enumerate(order):
        place = placing.first(unit)
        moved = 0
        for argument in unit.arguments:
            if argument.kind == "state":
                moved += moved_bytes(argument.nbytes, at.get(id(argument.value)), place, nodes)
                at[id(argument.value)] = place
        found.append(
            PlannedStage(
                path,
                unit,
                place,
                unit.workers == "auto",
                _at(lives, names, number, "first"),
                _at(lives, names, number, "last"),
                moved if nodes > 1 else 0,
                _memory(task, lives, number, place),
                _sent(unit, place),
                _exchanges(unit, place, names, runtime),
            )
        )
    if memory is not None:
        _refuse_over(found, parse_bytes(memory))
    return TaskPlan(task, total, nodes, tuple(found))


def grade_of(unit: Unit) -> str:
    """What one unit promises."""
    if unit.mode in ("locked", "hogwild"):
        return "statistical"
    timed = any(isinstance(a.value, ReplicatedState) and a.value.replication.timed for a in unit.arguments)
    return "identical" if unit.sync.exact and not unit.tuned and not timed else "replayable"


def _at(lives: Mapping[int, Lifetime], names: Mapping[int, str], number: int, when: str) -> tuple[str, ...]:
    return tuple(names[value] for value, life in lives.items() if getattr(life, when) == number)


def _memory(task: Task, lives: Mapping[int, Lifetime], number: int, place: StagePlace) -> int:
    """Bytes of a node: data are cut over the nodes of the stage, states may all be cached there."""
    total = 0
    for argument in arguments_of(task):
        life = lives.get(id(argument.value))
        if life is not None and life.first <= number <= life.last:
            share = len(place.workers_by_node) if argument.kind == "data" else 1
            total += argument.nbytes // share
    return total


def _sent(unit: Unit, place: StagePlace) -> int:
    """Every node may read and change all of every state."""
    nodes = len(place.workers_by_node)
    if nodes == 1:
        return 0
    return sum(2 * nodes * a.nbytes for a in unit.arguments if a.kind == "state" and not isinstance(a.value, MailState))


def _exchanges(unit: Unit, place: StagePlace, names: Mapping[int, str], runtime: Any) -> tuple[str, ...]:
    """How the replicated states of a unit are exchanged, and why."""
    states = {names[id(a.value)]: a.value for a in unit.arguments if isinstance(a.value, ReplicatedState)}
    return tuple(exchange_words(states, unit.parts, place, runtime))


def _refuse_over(stages: list[PlannedStage], budget: int) -> None:
    for stage in stages:
        if stage.memory > budget:
            raise NotEnoughMemory(
                stage.memory,
                budget,
                f"unit {stage.unit.name} needs that much on a node; plan for more nodes, or let parts read their data "
                "with st.source(…)",
            )


_ROW, _LEFT, _WIDE = 26, 170, 420  # sizes of the picture, in pixels


def picture(plan: TaskPlan) -> str:
    """The SVG text of a plan."""
    height = _ROW * (len(plan.stages) + 1) + 8
    rows = [f'<text x="4" y="18" font-weight="bold">plan {plan.fingerprint}: {escape(plan.title)}</text>']
    for number, stage in enumerate(plan.stages):
        top = _ROW * (number + 1)
        wide = max(3, round(_WIDE * stage.place.workers / plan.workers))
        deep = 8 * sum(isinstance(_at_path(plan.task, stage.path[:k]), RepeatedTask) for k in range(len(stage.path)))
        fill = "#8fb4d9" if stage.automatic else "#4878a8"
        rows.append(f'<text x="{4 + deep}" y="{top + 17}">{escape(stage.unit.name)}</text>')
        rows.append(f'<rect x="{_LEFT}" y="{top + 4}" width="{wide}" height="{_ROW - 8}" fill="{fill}"/>')
        label = f"{stage.place.workers}{' or as measured' if stage.automatic else ''}"
        rows.append(f'<text x="{_LEFT + wide + 6}" y="{top + 17}">{label}</text>')
    body = "".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDE + 140} {height}" '
        f'font-family="sans-serif" font-size="12">{body}</svg>'
    )


def _at_path(task: Task, path: Path) -> Task:
    for number in path:
        task = task.children[number]
    return task
