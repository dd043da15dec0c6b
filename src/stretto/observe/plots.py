"""Plots of runs, drawn by matplotlib without a display and without touching the user's figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORDER = ("epoch", "seconds", "items")  # columns for the horizontal axis, not plotted
COLOURS = ("#1f5fa8", "#d1602a", "#2f8f5b", "#7d4fa3", "#8a6d1d", "#5c5c5c")


def comparison(tables: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw several runs into `path`: a row for each of the objective and the metrics, a curve for each run.

    Parameters
    ----------
    tables : mapping of mappings
        By name of the run: columns of equal length, as from `EpochTable.columns()`; None where a value is not known.
    path : Path
        The file to write; its ending chooses the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    runs = {
        run: {name: np.array(values, dtype=np.float64) for name, values in table.items()}
        for run, table in tables.items()
    }
    names = dict.fromkeys(name for table in runs.values() for name in table if name not in (*ORDER, "speed"))
    names = {name: None for name in names if any(np.isfinite(table.get(name, np.nan)).any() for table in runs.values())}
    rows = max(1, len(names))
    figure = Figure(figsize=(10, 1.4 + 3.0 * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 2, sharex="col", sharey="row", squeeze=False)
    for column, (along, label) in enumerate((("epoch", "epochs"), ("seconds", "seconds in epochs"))):
        for row, name in enumerate(names):
            for place, table in enumerate(runs.values()):
                curve = {name: table.get(name, np.full(len(table[along]), np.nan))}
                _lines(axes[row][column], table[along], curve, log=name == "objective", first=place)
        axes[-1][column].set_xlabel(label)
    for row, name in enumerate(names):
        axes[row][0].set_ylabel(name.replace("_", " "))
    figure.suptitle("Convergence of " + ", ".join(runs))
    handles = axes[0][0].get_lines()
    figure.legend(handles, runs, loc="outside lower center", ncols=min(3, len(runs)), frameon=False)
    figure.savefig(path, format=path.suffix.lstrip(".") or "png")


def _lines(
    axes: Axes, along: NDArray[np.float64], columns: Mapping[str, NDArray[Any]], log: bool = False, first: int = 0
) -> None:
    """Draw one line per column, in colours from `first` on. Values that are not finite are left out; a logarithmic
    scale only where it helps.
    """
    for place, (name, values) in enumerate(columns.items(), first):
        good = np.isfinite(values)
        marker = "o" if good.sum() <= 50 else ""
        axes.plot(
            along[good],
            values[good],
            marker=marker,
            markersize=3,
            label=name.replace("_", " "),
            color=COLOURS[place % len(COLOURS)],
        )
        if log and good.any() and values[good].min() > 0 and values[good].max() > 20 * values[good].min():
            _log_scale(axes)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _log_scale(axes: Axes) -> None:
    """Set ticks at 1, 2 and 5 in plain numbers: easier to read than powers of ten, and faster to draw."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
