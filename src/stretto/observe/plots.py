"""Plots of runs: the objective and the metrics of several runs against epochs and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.figures import COLOURS, new_figure, plain_log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORDER = ("epoch", "seconds", "items")  # columns for the horizontal axis, not plotted


def comparison(tables: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw several runs into `path`: a row for each of the objective and the metrics, a curve for each run.

    Parameters
    ----------
    tables : mapping of mappings
        By name of the run: columns of equal length, as from `EpochTable.columns()`; None where a value is not known.
    path : Path
        The file to write; its ending chooses the format.
    """
    runs = {
        run: {name: np.array(values, dtype=np.float64) for name, values in table.items()}
        for run, table in tables.items()
    }
    names = dict.fromkeys(name for table in runs.values() for name in table if name not in (*ORDER, "speed"))
    names = {name: None for name in names if any(np.isfinite(table.get(name, np.nan)).any() for table in runs.values())}
    rows = max(1, len(names))
    with new_figure(path, 10, 1.4 + 3.0 * rows, "Convergence of " + ", ".join(runs)) as figure:
        axes = figure.subplots(rows, 2, sharex="col", sharey="row", squeeze=False)
        for column, (along, label) in enumerate((("epoch", "epochs"), ("seconds", "seconds in epochs"))):
            for row, name in enumerate(names):
                for place, table in enumerate(runs.values()):
                    values = table.get(name, np.full(len(table[along]), np.nan))
                    _line(axes[row][column], table[along], values, COLOURS[place % len(COLOURS)], name == "objective")
            axes[-1][column].set_xlabel(label)
        for row, name in enumerate(names):
            axes[row][0].set_ylabel(name.replace("_", " "))
        figure.legend(axes[0][0].get_lines(), runs, loc="outside lower center", ncols=min(3, len(runs)))


def _line(axes: Axes, along: NDArray[np.float64], values: NDArray[np.float64], colour: str, log: bool) -> None:
    """Draw one curve. Values that are not finite are left out; a logarithmic scale only where it helps."""
    good = np.isfinite(values)
    axes.plot(along[good], values[good], marker="o" if good.sum() <= 50 else "", markersize=3, color=colour)
    if log and good.any() and values[good].min() > 0 and values[good].max() > 20 * values[good].min():
        plain_log_scale(axes)
