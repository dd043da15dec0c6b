"""Plots of several simulated runs: the objective against virtual seconds, and against bytes sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np


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
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=120)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    colours = colormaps["viridis"](np.linspace(0, 0.9, max(1, len(runs))))
    for colour, (name, looks) in zip(colours, runs.items(), strict=False):
        values = [look.objective for look in looks]
        mark = "o" if len(looks) <= 50 else ""
        left.plot([look.seconds for look in looks], values, color=colour, label=name, marker=mark, markersize=3)
        right.plot([look.bytes / 1e6 for look in looks], values, color=colour, marker=mark, markersize=3)
    left.set_xlabel("virtual seconds")
    right.set_xlabel("megabytes sent")
    left.set_ylabel("objective")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    if any(runs):
        left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
