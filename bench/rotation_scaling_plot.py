"""The plot of `rotation_scaling`: speed-up on the same data, seconds of an epoch as data and nodes grow together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cluster_scaling import PAPER, SIZES, WHOLE
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


def panel(axes: Any, points: Points, scaling: str, job: str) -> None:
    """The curves of one job; tables dashed."""
    for series in (*SERIES, *TABLES):
        nodes, values = curve(points, series, scaling)
        if series.startswith(job) and nodes:
            axes.plot(nodes, values, "s--" if series in TABLES else "o-", label=series, linewidth=1.2, markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.set_xlabel("nodes of 2 workers")
    if scaling == "strong":
        if job == "MF":
            axes.plot(list(PAPER), list(PAPER.values()), "k^:", label="dissertation, MF by rotation", markersize=4)
        axes.plot(SIZES, SIZES, color="0.7", linewidth=0.8)
        axes.set_yscale("log", base=2)
        axes.set_ylabel("speed-up over one node (×)")
    else:
        axes.axhline(1.0, color="0.7", linewidth=0.8)
        axes.set_yscale("log", base=2)
        axes.set_ylabel("seconds of an epoch / of computing alone")


def draw(points: Points) -> None:
    """Two rows: matrix factorisation and LDA; strong and weak beside each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(12, 7.5), layout="constrained")
    FigureCanvasAgg(drawn)
    for row, (job, title) in enumerate({"MF": "Matrix factorisation", "LDA": "Topic models (LDA)"}.items()):
        for column, scaling in enumerate(("strong", "weak")):
            axes = drawn.add_subplot(2, 2, 2 * row + column + 1)
            panel(axes, points, scaling, job)
            what = (
                "the same data on more nodes" if scaling == "strong" else f"data grow with nodes (whole set on {WHOLE})"
            )
            axes.set_title(f"{title}, predicted: {what}", fontsize=10)
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    drawn.savefig(FILE, dpi=90)
