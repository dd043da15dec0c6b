"""The plot of `rotation_scaling`: speed-up on the same data, seconds of an epoch as data and nodes grow together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.figures import FAINT, legend_below, new_figure

from .cluster_scaling import PAPER, SIZES
from .report import RESULTS
from .rotation_scaling import SERIES, TABLES, ideal

FILE = RESULTS / "rotation_scaling.png"
Points = Mapping[tuple[str, str, int], float]


def curve(points: Points, series: str, scaling: str) -> tuple[list[int], list[float]]:
    """Nodes, and the speed-up over one node (strong) or seconds over those of computing (weak)."""
    nodes = [size for size in SIZES if (series, scaling, size) in points]
    if scaling == "strong":
        return nodes, [ideal(series, scaling, 1) / points[series, scaling, size] for size in nodes]
    return nodes, [points[series, scaling, size] / ideal(series, scaling, size) for size in nodes]


COLOURS = {"planner's grid": "C0", "fine grid": "C1", "expensive messages": "C2", "tables": "C3", "dear": "C4"}


def colour(series: str) -> str:
    """The same in all panels."""
    if series in TABLES:
        return COLOURS["dear" if "expensive" in series else "tables"]
    return COLOURS[series.rsplit(", ", maxsplit=1)[-1]]


def panel(axes: Any, points: Points, scaling: str, job: str) -> None:
    """The curves of one job; tables dashed."""
    for series in (*SERIES, *TABLES):
        nodes, values = curve(points, series, scaling)
        if series.startswith(job) and nodes:
            style = "s--" if series in TABLES else "o-"
            axes.plot(nodes, values, style, color=colour(series), label=series)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.8, 320)
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.set_xlabel("nodes of 2 workers")
    if scaling == "strong":
        if job == "MF":
            axes.plot(list(PAPER), list(PAPER.values()), "k^:", label="dissertation, MF by rotation")
        axes.plot(SIZES, SIZES, color=FAINT, linewidth=1)
        axes.set_yscale("log", base=2)
        axes.set_yticks(SIZES, [str(size) for size in SIZES])
        axes.set_ylabel("speed-up over one node (×)")
    else:
        axes.axhline(1.0, color=FAINT, linewidth=1)
        axes.set_ylim(0, max(1.5, 1.05 * axes.get_ylim()[1]))
        axes.set_ylabel("seconds of an epoch / of computing")


def draw(points: Points) -> None:
    """Two rows: matrix factorisation and LDA; strong and weak beside each other, legends below."""
    with new_figure(FILE, 10, 9.5, palette=True) as drawn:
        for row, (job, title) in enumerate({"MF": "Matrix factorisation", "LDA": "Topic models"}.items()):
            for column, scaling in enumerate(("strong", "weak")):
                axes = drawn.add_subplot(2, 2, 2 * row + column + 1)
                panel(axes, points, scaling, job)
                what = "same data, more nodes" if scaling == "strong" else "data grow too"
                axes.set_title(f"{title}: {what}")
                legend_below(axes)
