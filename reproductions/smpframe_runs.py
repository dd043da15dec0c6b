"""One run of a schedule on a regression, evaluated on the way; when it reached a target; and plots of such runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stretto as st
from stretto.errors import Diverged
from stretto.programs.run import run
from stretto.programs.values import Look
from stretto.schedule.spec import Schedule

from .smpframe_sets import Task

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
    file: str, panels: Sequence[tuple[str, str, str, Callable[[Any], None]]], *, height: float = 3.4, dpi: int = 80
) -> None:
    """A row of panels (title, label of x, label of y, what draws it), written to docs/reproductions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(4.2 * len(panels), height), layout="constrained")
    FigureCanvasAgg(drawn)
    for at, (title, x, y, draw) in enumerate(panels):
        axes = drawn.add_subplot(1, len(panels), at + 1)
        draw(axes)
        axes.set(title=title, xlabel=x, ylabel=y)
        axes.title.set_fontsize(10)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    PLOTS.mkdir(parents=True, exist_ok=True)
    drawn.savefig(PLOTS / file, dpi=dpi)


def distances(task: Task, traces: Sequence[Trace], styles: Sequence[str], *, by_time: bool) -> Callable[[Any], None]:
    """Draws how far above the optimum runs are, as a share of the way, against samples (in sweeps) or seconds."""

    def draw(axes: Any) -> None:
        for one, style in zip(traces, styles, strict=True):
            kept = [look for look in one.looks if look.objective < 3 * task.start]
            x = [look.seconds if by_time else look.samples / one.sweep for look in kept]
            y = [max(1e-6, (look.objective - task.best) / (task.start - task.best)) for look in kept]
            axes.plot(x, y, style, label=one.name + (" (diverges)" if one.diverged else ""), linewidth=1.2)
        axes.set_yscale("log")

    return draw
