"""One run of a schedule on a regression, evaluated on the way; when it reached a target; and plots of such runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stretto as st
from stretto.errors import Diverged
from stretto.figures import COLOURS, legend_below, new_figure, shared_legend
from stretto.programs.run import run
from stretto.programs.values import Look
from stretto.schedule.spec import Schedule

from .smpframe_sets import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS = Path(__file__).resolve().parent.parent / "docs" / "reproductions"
THREADS = 2
LIMIT = 5.0  # seconds of a run at most
LOOKS = 4  # a sweep


@dataclass(frozen=True)
class Trace:
    """A run from its start to where it stopped. samples of a whole sweep: `sweep`."""

    name: str
    looks: tuple[Look, ...]
    sweep: int
    diverged: bool
    together: float = math.nan  # jobs of a round on average

    def reached(self, target: float) -> Look | None:
        """The first evaluation at which the objective is no more than `target`."""
        return next((look for look in self.looks if look.objective <= target), None)

    def sweeps(self, target: float) -> float:
        """Samples until then, in sweeps over all data; infinite if it never was."""
        look = self.reached(target)
        return look.samples / self.sweep if look else math.inf

    def seconds(self, target: float) -> float:
        """Time until then."""
        look = self.reached(target)
        return look.seconds if look else math.inf


def trace(
    task: Task, name: str, schedule: Schedule, *, sweeps: float = 30, share: float = 0.0, pipeline: int = 1
) -> Trace:
    """Run until all but `share` of the way is behind, it has diverged, or so many sweeps of samples are made."""
    program = task.program(schedule)
    sweep = int(program.columns.length.sum())
    looks: list[Look] = []

    def until(look: Look) -> bool:
        looks.append(look)
        # The objective at zero is where it began: far above it there is no way back.
        lost = not look.objective < 3 * task.start
        return lost or look.objective <= task.target(share) or look.samples >= sweeps * sweep

    every = max(1, task.X.shape[1] // (LOOKS * getattr(schedule, "width", 1)))
    together = math.nan
    try:
        result = run(program, every=every, until=until, seconds=LIMIT, pipeline=pipeline, runtime=st.Threads(THREADS))
        together = result.updates / max(1, result.rounds)
        diverged = not result.objective < 3 * task.start
    except Diverged:
        diverged = True
    return Trace(name, tuple(looks), sweep, diverged, together)


def said(value: float, digits: int = 1, *, diverged: bool = False) -> str:
    """A number for a table; what was never reached has none."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "diverges" if diverged else "not reached"


def figure(
    file: str, panels: Sequence[tuple[str, str, str, Callable[[Any], None]]], *, height: float = 4.2, columns: int = 0
) -> None:
    """Panels (title, label of x, label of y, what draws it) in a row or in `columns`, saved to docs/reproductions."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    with new_figure(PLOTS / file, 4.8 * columns, height * rows, palette=True) as drawn:
        for at, (title, x, y, draw) in enumerate(panels):
            axes = drawn.add_subplot(rows, columns, at + 1)
            draw(axes)
            axes.set(title=title, xlabel=x, ylabel=y)
        below(drawn)


def below(drawn: Figure) -> None:
    """Legends below the data: one for all panels if they have the same series, or one below each. Six at most."""
    named = [panel.get_legend_handles_labels()[1] for panel in drawn.axes]
    if most := [names for names in named if len(names) > len(COLOURS)]:
        raise ValueError(f"{len(most[0])} series in a panel; draw at most {len(COLOURS)}: {', '.join(most[0])}")
    if all(set(names) <= set(named[0]) for names in named):
        shared_legend(drawn)
    else:
        for panel in drawn.axes:
            legend_below(panel)


def distances(task: Task, traces: Sequence[Trace], styles: Sequence[str], *, by_time: bool) -> Callable[[Any], None]:
    """Draws how far above the optimum runs are, as a share of the way, against samples (in sweeps) or seconds."""

    def draw(axes: Any) -> None:
        for one, style in zip(traces, styles, strict=True):
            kept = [look for look in one.looks if look.objective < 3 * task.start]
            x = [look.seconds if by_time else look.samples / one.sweep for look in kept]
            y = [max(1e-6, (look.objective - task.best) / (task.start - task.best)) for look in kept]
            axes.plot(x, y, style, label=one.name + (" (diverges)" if one.diverged else ""))
        axes.set_yscale("log")

    return draw
