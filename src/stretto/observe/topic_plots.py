"""Plots of topic models: shares of topics over time, and models with different numbers of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.observe.plots import COLOURS

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
    figure = _figure(10, 4.6)
    axes = figure.subplots()
    x = np.arange(len(periods))
    for (name, share, low, high), colour in zip(bands, COLOURS, strict=False):
        marker = "o" if len(periods) <= 50 else ""
        axes.plot(x, 100 * share, color=colour, marker=marker, markersize=3, label=name)
        axes.fill_between(x, 100 * low, 100 * high, color=colour, alpha=0.15, linewidth=0)
    every = max(1, -(-len(periods) // _TICKS))
    axes.set_xticks(x[::every], [periods[p] for p in x[::every]], rotation=30, ha="right")
    axes.set_xlabel(f"period (bands: {100 * level:g} % confidence intervals)")
    axes.set_ylabel("mean share of the documents (%)")
    axes.set_ylim(bottom=0)
    _finish(figure, [axes], path, title)


def draw_topic_counts(
    n_components: Sequence[int], panels: Mapping[str, tuple[Floats, Floats]], path: Path, title: str
) -> None:
    """Draw measures against the number of topics into `path` (its ending chooses the format).

    panels : by label of the vertical axis, the values of the single runs [numbers, runs] and their means [numbers]
    """
    figure = _figure(3.6 * len(panels) + 0.4, 4.0)
    x = np.asarray(n_components, np.float64)
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
    _finish(figure, all_axes, path, title)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _finish(figure: Any, all_axes: Sequence[Any], path: Path, title: str) -> None:
    for axes in all_axes:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper" if len(all_axes) == 1 else "outside lower center", frameon=False, ncols=1 if
                  len(all_axes) == 1 else 2)  # fmt: skip
    figure.suptitle(title)
    figure.savefig(path, format=path.suffix.lstrip(".") or "png")
