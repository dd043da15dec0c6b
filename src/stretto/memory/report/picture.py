"""Plot one step: bytes on the device over time by kind, the budget, and the copies to the host and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stretto.figures import COLOURS, new_figure
from stretto.memory.planner.instructions import EVICT, FREE, IN, OUT, RECOMPUTE, RUN
from stretto.memory.planner.planner import PlannedProgram
from stretto.memory.planner.program import Ledger
from stretto.text import show_bytes

# Series of the plot, in the order in which they are stacked: a name, a colour, and the kinds of storages in it.
_SERIES = (
    ("parameters", COLOURS[0], ("parameter",)),
    ("optimizer state", COLOURS[2], ("state",)),
    ("activations", COLOURS[1], ("activation",)),
    ("gradients", COLOURS[3], ("gradient",)),
    ("buffers, batch, workspaces", COLOURS[5], ("buffer", "constant", "input")),
)
_POINTS = 20_000  # points of a curve at most: more are not visible


@dataclass
class MemoryTimeline:
    """Predicted bytes on the device over one step.

    Attributes
    ----------
    seconds : list of float
        When each instruction ends [I + 1].
    nbytes : list of arrays
        Bytes by series until then [I + 1, series].
    to_host, from_host : list of (float, float)
        When each copy begins and how long it takes, in seconds.
    """

    seconds: list[float] = field(default_factory=list)
    nbytes: list[Any] = field(default_factory=list)
    to_host: list[tuple[float, float]] = field(default_factory=list)
    from_host: list[tuple[float, float]] = field(default_factory=list)


def draw(planned: PlannedProgram, path: Path, *, borrowed: int = 0, title: str = "") -> Path:
    """Write the plot; the ending of the file name selects the format.

    Parameters
    ----------
    planned : PlannedProgram
        The plan.
    path : Path
        The file to write.
    borrowed : int
        Bytes on the device that are always in use and not in the program: the caller's batch, libraries.
    title : str
        The title. Default: one that gives the peak and the budget.
    """
    history, costs = history_of(planned), planned.costs
    budget, peak = planned.settings.budget + borrowed, costs.peak + borrowed
    with new_figure(path, 10, 4.8) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [5, 1]})
        count = len(history.seconds)
        places = np.unique(np.linspace(0, count - 1, _POINTS).astype(int)) if count else np.zeros(0, int)
        times = 1e3 * np.array(history.seconds)[places]
        nbytes = np.array(history.nbytes, dtype=float).reshape(count, len(_SERIES))[places]
        nbytes[:, -1] += borrowed
        present = [k for k in range(len(_SERIES)) if nbytes[:, k].any()]
        upper.stackplot(
            times,
            *[nbytes[:, k] / 2**30 for k in present],
            labels=[_SERIES[k][0] for k in present],
            colors=[_SERIES[k][1] for k in present],
            step="pre",
            linewidth=0,
        )
        upper.axhline(budget / 2**30, color="black", linestyle="--", linewidth=1, label="budget")
        top = max(peak, min(budget, 1.3 * peak))
        title = title or f"Device memory over one training step: at most {show_bytes(peak)} of {show_bytes(budget)}"
        upper.set(ylabel="on the device (GiB)", ylim=(0, 1.05 * top / 2**30 or 1), title=title)
        upper.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
        for copies, height, colour in ((history.to_host, 1, COLOURS[1]), (history.from_host, 0, COLOURS[0])):
            lower.broken_barh([(1e3 * at, 1e3 * long) for at, long in copies], (height + 0.1, 0.8), color=colour)
        lower.set(
            yticks=[0.5, 1.5],
            yticklabels=["copies from host", "copies to host"],
            xlabel="time in the step (ms, predicted)",
            ylim=(0, 2),
            xlim=(0, 1e3 * max(costs.seconds, 1e-9)),
        )
    return path


def series_names() -> list[str]:
    """The names of the series of a `MemoryTimeline`, in its order."""
    return [name for name, _, _ in _SERIES]


def history_of(planned: PlannedProgram) -> MemoryTimeline:
    """Run a program on a predicted clock and record the bytes on the device."""
    program = planned.program
    storages = program.graph.storages
    series = {kind: k for k, (_, _, kinds) in enumerate(_SERIES) for kind in kinds}
    ledger = Ledger(program, planned.settings.link)
    present = np.zeros(len(_SERIES), np.int64)  # by series: bytes on the device
    for s in ledger.resident:
        present[series[storages[s].kind]] += storages[s].nbytes
    held = set(ledger.resident)
    history = MemoryTimeline([0.0], [present.copy()])
    for at, (what, which) in enumerate(program.instructions):
        ledger.advance(at)
        # A storage that is copied in has its memory from the begin of the copy, one that is copied out until its end.
        if what in (RUN, RECOMPUTE, IN):
            for s in program.graph.nodes[which].makes if what != IN else (which,):
                if s not in held:
                    held.add(s)
                    present[series[storages[s].kind]] += storages[s].nbytes
        elif what in (EVICT, FREE):
            held.discard(which)
            present[series[storages[which].kind]] -= storages[which].nbytes
        if what == OUT:
            long = planned.settings.link.out_seconds(storages[which].nbytes)
            history.to_host.append((ledger.landed[which] - long, long))
        elif what == IN:
            long = planned.settings.link.in_seconds(storages[which].nbytes)
            history.from_host.append((ledger.coming[which] - long, long))
        row = present.copy()
        row[-1] += ledger.curve[-1] - present.sum()  # the workspace of the running operation
        history.seconds.append(ledger.now)
        history.nbytes.append(row)
    return history
