"""`TaskResult`: what a task leaves behind besides its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stretto.consistency.adaptive.knobs import ConsistencyMove
from stretto.errors import PlanError
from stretto.runtime.stages.tuning_events import plot_moves
from stretto.text import html_table

from .plan import TaskPlan


@dataclass(frozen=True)
class StageRecord:
    """One stage that ran.

    Attributes
    ----------
    unit : str
        Name of the unit.
    path : tuple of int
        Its place in the tree.
    turn : int
        How often it had run before at this place.
    width : int
        Workers.
    nodes : tuple of int
        Nodes that they were on.
    iterations : int
        Iterations it made.
    seconds : float
        Its time; virtual on `st.Simulated`.
    transition : float
        Seconds between the end of the stage before and its own start.
    moved : int
        Bytes of states that changed their node before it, or while it ran.
    reason : str
        Why it had this width, and its settings where a loop with sync="adaptive" chose them.
    value : number or None
        The value of the unit, where it is a number.
    preparation : str
        How a stage on one node of a cluster got its states: "whole", "on-demand" or "served".
    sent : int
        Bytes of messages between its nodes while it ran: reads and updates of states that are cut over nodes.
    recording : object or None
        Everything that happened in it, with record="full".
    staleness : tuple of int
        How many rows were read that were 0, 1, … clocks behind their reader; empty where none could be.
    """

    unit: str
    path: tuple[int, ...]
    turn: int
    width: int
    nodes: tuple[int, ...]
    iterations: int
    seconds: float
    transition: float
    moved: int
    reason: str
    value: float | None = None
    preparation: str = ""
    sent: int = 0
    recording: Any = field(default=None, repr=False, compare=False)
    staleness: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @property
    def worker_seconds(self) -> float:
        """Seconds of all its workers together."""
        return self.seconds * self.width


_NEWEST = 10  # stages that a notebook shows


@dataclass(frozen=True, eq=False, repr=False)
class TaskResult:
    """The result of `st.run(task)`. The states themselves hold what was learned.

    Attributes
    ----------
    value : object
        The value of the unit that ended last.
    stages : sequence of StageRecord
        What ran, in order.
    stopped : str
        Why it ended: "done" or "interrupted".
    plan : TaskPlan
        The plan that was run.
    widths : dict
        The best widths that were found, by unit and batch size.
    moves : tuple of ConsistencyMove
        The decisions of loops with sync="adaptive", in order, with their reasons.
    """

    value: Any
    stages: Sequence[StageRecord]
    stopped: str
    plan: TaskPlan
    widths: dict[str, Any] = field(default_factory=dict)
    moves: tuple[ConsistencyMove, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of all stages and of what lay between them."""
        return sum(stage.seconds + stage.transition for stage in self.stages)

    @property
    def worker_seconds(self) -> float:
        """Seconds of all workers of all stages together."""
        return sum(stage.worker_seconds for stage in self.stages)

    def history(self, unit: str) -> list[float]:
        """The values of a unit, in order.

        Parameters
        ----------
        unit : str
            Name of the unit.
        """
        return [stage.value for stage in self.stages if stage.unit == unit and stage.value is not None]

    def plot_settings(self, path: str | Path, objective: str, title: str = "") -> None:
        """Draw the decisions of a loop with sync="adaptive": its objective and its settings against seconds.

        Parameters
        ----------
        path : str or Path
            The file to write; its ending chooses the format.
        objective : str
            Name of the unit of the criterion.
        title : str, default ""
            Title of the figure.
        """
        at, values = 0.0, []
        for stage in self.stages:
            at += stage.seconds + stage.transition
            if stage.unit == objective and stage.value is not None:
                values.append((at, stage.value))
        if not self.moves:
            raise PlanError("plot_settings: no setting was tuned; give a loop with sync='adaptive'")
        if not values:
            raise PlanError(f"plot_settings: objective={objective!r} has no values; name the unit of the criterion")
        plot_moves(values, self.moves, path, title)

    def _repr_html_(self) -> str:
        """The newest stages, with why they had their widths, for notebooks."""
        heads = ("unit", "workers", "nodes", "iterations", "seconds", "value", "why")
        rows = [
            [
                *(stage.unit, str(stage.width), str(len(stage.nodes)), f"{stage.iterations:,}", f"{stage.seconds:.3g}"),
                *("" if stage.value is None else f"{stage.value:.6g}", stage.reason),
            ]
            for stage in self.stages[-_NEWEST:]
        ]
        return html_table(heads, rows, repr(self))

    def __repr__(self) -> str:
        return f"TaskResult({len(self.stages)} stages, {self.seconds:.3g} s, {self.stopped})"
