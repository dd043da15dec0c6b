"""Plots of the FlexPS figures, and of others like them: one panel for each data set or batch, legends below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PLOTS = Path(__file__).resolve().parent.parent / "docs" / "reproductions"
Points = Sequence[tuple[float, float]]
STYLES = ("o-", "s--", "^:", "d-.", "v-", "x--")


@dataclass(frozen=True)
class Panel:
    """One panel: its title, the labels of its axes, its series by name, and which axes are logarithmic."""

    title: str
    x: str
    y: str
    series: Mapping[str, Points]
    log: str = ""


def draw(name: str, panels: Sequence[Panel], paper: str = "flexps") -> None:
    """Save docs/reproductions/PAPER-NAME.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(max(6.4, 5 * len(panels)), 4.8), layout="constrained")
    FigureCanvasAgg(drawn)
    for place, panel in enumerate(panels, 1):
        axes = drawn.add_subplot(1, len(panels), place)
        for style, (called, points) in zip(STYLES, panel.series.items(), strict=False):
            axes.plot([x for x, _ in points], [y for _, y in points], style, label=called, markersize=4)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        if "x" in panel.log:
            axes.set_xscale("log")
        if "y" in panel.log:
            axes.set_yscale("log")
        for axis, letter in ((axes.xaxis, "x"), (axes.yaxis, "y")):
            if letter in panel.log:
                axis.set_major_formatter("{x:g}")
        axes.legend(
            fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False, ncol=min(2, len(panels))
        )
    drawn.savefig(PLOTS / f"{paper}-{name}.png", dpi=90)
