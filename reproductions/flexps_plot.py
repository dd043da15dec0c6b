"""Plots of the FlexPS figures, and of others like them: one panel for each data set or batch, legends below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from stretto.figures import new_figure, plain_log_scale

from .smpframe_runs import PLOTS, below

Points = Sequence[tuple[float, float]]
STYLES = ("o-", "s--", "^:", "D-.", "v-", "*--")  # at most six series a panel


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
    with new_figure(PLOTS / f"{paper}-{name}.png", max(6.4, 4.8 * len(panels)), 4.8, palette=True) as drawn:
        for place, panel in enumerate(panels, 1):
            axes = drawn.add_subplot(1, len(panels), place)
            for style, (called, points) in zip(cycle(STYLES), panel.series.items(), strict=False):
                axes.plot([x for x, _ in points], [y for _, y in points], style, label=called)
            axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
            for letter in panel.log:
                plain_log_scale(axes, letter)
        below(drawn)
