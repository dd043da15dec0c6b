"""Report the decisions of adaptive loops: as events while they run, and as a plot afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from stretto.consistency.adaptive.knobs import ConsistencyMove
from stretto.observe.events import Listener, SettingTuned
from stretto.observe.settings_plot import PlottedMove, settings_figure


def tell_move(listener: Listener, loop: str, move: ConsistencyMove) -> None:
    """Report a decision. loop: the unit whose value is its objective."""
    listener(SettingTuned(time.time(), loop, move.window, move.knob, move.before, move.after, move.kind, move.reason))


def plot_moves(
    objective: Sequence[tuple[float, float]], moves: Sequence[ConsistencyMove], path: str | Path, title: str = ""
) -> None:
    """Draw the objective (seconds, value), the settings and the decisions of a run into a file."""
    words: dict[str, dict[int, str]] = {}
    for move in moves:
        words.setdefault(move.knob, {}).update({move.rungs[0]: move.before, move.rungs[1]: move.after})
    plotted = [PlottedMove(move.seconds, move.knob, *move.rungs, move.kind) for move in moves]
    settings_figure(objective, plotted, words, Path(path), title)
