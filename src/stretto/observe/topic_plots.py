"""Plots of topic models: shares of topics over time, and models with different numbers of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stretto.figures import COLOURS, new_figure

MOST = len(COLOURS)  # series of a panel
_TICKS = 12

Floats = NDArray[np.float64]


def draw_shares(
    periods: Sequence[str], bands: Sequence[tuple[str, Floats, Floats, Floats]], path: Path, title: str, level: float
) -> None:
    """Draw shares with their intervals against periods into `path` (its ending chooses the format).

    bands : (name, share [periods], low [periods], high [periods]) of each topic, at most six
    level : confidence of the intervals
    """
    x = np.arange(len(periods))
    with new_figure(path, 10, 4.6, title) as figure:
        axes = figure.subplots()
        for (name, share, low, high), colour in zip(bands, COLOURS, strict=False):
            marker = "o" if len(periods) <= 50 else ""
            axes.plot(x, 100 * share, color=colour, marker=marker, markersize=3, label=name)
            axes.fill_between(x, 100 * low, 100 * high, color=colour, alpha=0.15, linewidth=0)
        every = max(1, -(-len(periods) // _TICKS))
        axes.set_xticks(x[::every], [periods[p] for p in x[::every]], rotation=30, ha="right")
        axes.set_xlabel(f"period (bands: {100 * level:g} % confidence intervals)")
        axes.set_ylabel("mean share of the documents (%)")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside right upper")


def draw_topic_counts(
    n_components: Sequence[int], panels: Mapping[str, tuple[Floats, Floats]], path: Path, title: str
) -> None:
    """Draw measures against the number of topics into `path` (its ending chooses the format).

    panels : by label of the vertical axis, the values of the single runs [numbers, runs] and their means [numbers]
    """
    x = np.asarray(n_components, np.float64)
    with new_figure(path, 3.6 * len(panels) + 0.4, 4.0, title) as figure:
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for place, (axes, (label, (runs, mean))) in enumerate(zip(all_axes, panels.items(), strict=True)):
            points = axes.plot(x, runs, linestyle="", marker="o", markersize=4, color=COLOURS[0], alpha=0.4)
            (line,) = axes.plot(x, mean, color=COLOURS[1], marker="_")
            if not place:
                points[0].set_label("one seed")
                line.set_label("mean over seeds")
            if len(x) > 1 and x.max() >= 4 * x.min():
                axes.set_xscale("log")
                axes.minorticks_off()
            axes.set_xticks(x, [f"{k:g}" for k in x])
            axes.set_xlabel("number of topics")
            axes.set_ylabel(label)
        figure.legend(loc="outside lower center", ncols=2)
