"""Figures in the one style of the project, drawn by matplotlib without a display and without touching the user's.

The style is `figures.mplstyle` beside this module: `plt.style.use("stretto.figures")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_suffix(".mplstyle")
COLOURS = ("#1f5fa8", "#d1602a", "#2f8f5b", "#7d4fa3", "#8a6d1d", "#5c5c5c")  # those of the style, in its order
MARKERS = "os^Dv*"  # one for each colour, so that series also differ without colours
INK, FAINT = "#1d2329", "#9aa3ab"  # text and marks; reference lines


@contextmanager
def new_figure(
    path: str | Path, width: float, height: float, title: str = "", *, palette: bool = False
) -> Iterator[Figure]:
    """Open a figure in the style of the project; it is saved at the end.

    Parameters
    ----------
    path : str or Path
        The file to write; its ending chooses the format.
    width, height : float
        Inches.
    title : str
        Title above all panels.
    palette : bool
        Whether a PNG is stored with a palette: half the bytes, for a tenth of a second. For the documentation.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_figure(f"{folder}/line.png", 4, 3, "A line") as figure:
    ...         _ = figure.subplots().plot([1, 2, 3])
    ...     Path(folder, "line.png").stat().st_size > 1000
    True
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        if title:
            figure.suptitle(title)
        yield figure
        kind = path.suffix.lstrip(".") or "png"
        figure.savefig(path, format=kind)
    if palette and kind == "png":
        _with_palette(path)


def _with_palette(path: Path) -> None:
    """Store a PNG with a palette of 128 colours: half the bytes, and no difference that is seen."""
    from PIL import Image

    with Image.open(path) as full:
        small = full.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(path, format="png", optimize=True, dpi=(110, 110))


def legend_below(panel: Axes) -> None:
    """Put the legend of one panel below it, outside of the data, in as many columns as fit."""
    labels = panel.get_legend_handles_labels()[1]
    grid = panel.get_subplotspec()
    width = panel.get_figure().get_size_inches()[0] / (grid.get_gridspec().ncols if grid else 1)  # type: ignore[union-attr]
    if labels:
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=_columns(labels, width))


def shared_legend(figure: Figure) -> None:
    """Put one legend for all panels below the figure: each label once, as it is drawn first."""
    known: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    if known:
        columns = _columns(list(known), figure.get_size_inches()[0])
        figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=columns)


def _columns(labels: Sequence[str], inches: float) -> int:
    """Return the columns of a legend that fit: at 9 points fourteen letters take an inch, a handle half of one."""
    return max(1, min(3, len(labels), int(inches / (max(map(len, labels)) / 14 + 0.6))))


def plain_log_scale(panel: Axes, which: str = "y", subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Make an axis logarithmic, with ticks in plain numbers: easier to read than powers of ten, and faster to draw."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(panel, f"set_{which}scale")("log")
    axis = getattr(panel, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
