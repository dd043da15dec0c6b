"""A plot of a run whose settings were tuned: the objective, every setting and every decision against seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.figures import COLOURS, new_figure, plain_log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = {"try": ("o", "white", "trial"), "keep": ("o", COLOURS[2], "kept"), "back": ("X", COLOURS[1], "went back"),
          "lower": ("v", COLOURS[3], "lowered: diverged")}  # fmt: skip


@dataclass(frozen=True)
class PlottedMove:
    """A decision: when, from which rung of the knob's ladder to which, and of which kind."""

    seconds: float
    knob: str
    before: int
    after: int
    kind: str


def settings_figure(
    objective: Sequence[tuple[float, float]],
    moves: Sequence[PlottedMove],
    words: Mapping[str, Mapping[int, str]],
    path: Path,
    title: str = "",
) -> None:
    """Draw the objective above and a panel for each knob below into `path` (its ending chooses the format).

    Parameters
    ----------
    objective : sequence of (float, float)
        Seconds and value.
    moves : sequence of PlottedMove
        The decisions in order.
    words : mapping
        By knob and rung: the setting in words.
    path : Path
        The file to write.
    title : str
        Title of the figure.
    """
    knobs = list(dict.fromkeys(move.knob for move in moves))
    with new_figure(path, 9, 3 + 1.6 * len(knobs), title) as figure:
        _draw(figure, objective, moves, words, knobs)


def _draw(
    figure: Figure,
    objective: Sequence[tuple[float, float]],
    moves: Sequence[PlottedMove],
    words: Mapping[str, Mapping[int, str]],
    knobs: Sequence[str],
) -> None:
    rows = figure.subplots(1 + len(knobs), 1, sharex=True, squeeze=False, height_ratios=[2, *(1 for _ in knobs)])
    axes: list[Axes] = [row[0] for row in rows]
    good = [(at, value) for at, value in objective if math.isfinite(value)]
    axes[0].plot([at for at, _ in good], [value for _, value in good], color=COLOURS[0])
    if good and min(value for _, value in good) > 0:
        plain_log_scale(axes[0])
    axes[0].set_ylabel("objective")
    end = max([at for at, _ in objective] + [move.seconds for move in moves], default=0.0)
    for one, knob in zip(axes[1:], knobs, strict=True):
        _knob(one, [move for move in moves if move.knob == knob], words[knob], end)
        one.set_ylabel(knob)
    axes[-1].set_xlabel("seconds")
    used = {move.kind for move in moves}
    handles = [_mark(axes[-1], [], [], kind) for kind in _MARKS if kind in used]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _knob(axes: Axes, moves: Sequence[PlottedMove], words: Mapping[int, str], end: float) -> None:
    """The setting of a knob as steps, with a mark at every decision."""
    times, rungs = [0.0], [moves[0].before]
    for move in moves:
        times.append(move.seconds)
        rungs.append(move.after)
    axes.step([*times, end], [*rungs, rungs[-1]], where="post", color=COLOURS[0])
    for kind in _MARKS:
        some = [move for move in moves if move.kind == kind]
        _mark(axes, [move.seconds for move in some], [move.after for move in some], kind)
    axes.set_yticks(sorted(words), [words[rung] for rung in sorted(words)])
    axes.margins(y=0.25)


def _mark(axes: Axes, x: Sequence[float], y: Sequence[int], kind: str) -> Any:
    marker, colour, label = _MARKS[kind]
    (line,) = axes.plot(x, y, linestyle="", marker=marker, markerfacecolor=colour, markeredgecolor="#333333",
                        markersize=6, label=label)  # fmt: skip
    return line
