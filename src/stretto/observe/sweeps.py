"""Plots of several simulated runs: the objective against virtual seconds, and against bytes sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from stretto.figures import COLOURS, MARKERS, new_figure, shared_legend


class ObjectivePoint(Protocol):
    """One evaluation of the objective."""

    @property
    def seconds(self) -> float: ...
    @property
    def bytes(self) -> int: ...
    @property
    def objective(self) -> float: ...


def draw_sweep(runs: Mapping[str, Sequence[ObjectivePoint]], path: Path) -> None:
    """Draw a line for each run, named, into `path` (its ending chooses the format)."""
    with new_figure(path, 10, 4.2 + 0.25 * (len(runs) // 3), "Objective of simulated runs") as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        for place, (name, looks) in enumerate(runs.items()):
            values = [look.objective for look in looks]
            colour, mark = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)] if len(looks) <= 50 else ""
            line = ("-", "--", ":", "-.")[place // len(COLOURS) % 4]  # more runs than colours: other lines
            left.plot([look.seconds for look in looks], values, line, color=colour, label=name, marker=mark)
            right.plot([look.bytes / 1e6 for look in looks], values, line, color=colour, marker=mark)
        left.set_xlabel("virtual seconds")
        right.set_xlabel("megabytes sent")
        left.set_ylabel("objective")
        shared_legend(figure)
