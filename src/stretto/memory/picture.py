"""A picture of one step: bytes on the device over time by kind, the budget, and when copies go to the host and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .graph import KINDS
from .planner import Planned
from .program import AGAIN, FREE, GONE, IN, OUT, RUN

_COLOURS = {
    "parameter": "#4c72b0",
    "state": "#55a868",
    "buffer": "#8c8c8c",
    "constant": "#bbbbbb",
    "input": "#937860",
    "activation": "#dd8452",
    "gradient": "#c44e52",
}
_POINTS = 2000  # of the curves: nobody sees more


def draw(planned: Planned, path: Path) -> Path:
    """Write the picture; the kind of file follows from its name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_kind, outs, ins = _history(planned)
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [5, 1]})
    places = np.unique(np.linspace(0, len(by_kind) - 1, _POINTS).astype(int)) if len(by_kind) else np.zeros(0, int)
    kinds = [k for k, kind in enumerate(KINDS) if by_kind[:, k].any()]
    upper.stackplot(
        places,
        *[by_kind[places, k] / 2**30 for k in kinds],
        labels=[KINDS[k] for k in kinds],
        colors=[_COLOURS[KINDS[k]] for k in kinds],
        step="post",
        linewidth=0,
    )
    upper.axhline(planned.settings.budget / 2**30, color="black", linestyle="--", linewidth=1, label="budget")
    if planned.costs.peak_at >= 0:
        upper.axvline(planned.costs.peak_at, color="black", linewidth=0.8, label="most in use")
    top = max(planned.costs.peak, min(planned.settings.budget, 1.3 * planned.costs.peak))
    upper.set(ylabel="GiB on the device", ylim=(0, 1.1 * top / 2**30 or 1))
    upper.legend(loc="upper left", ncols=4, fontsize=8)
    for copies, height, colour in ((outs, 1, "#c44e52"), (ins, 0, "#4c72b0")):
        lower.vlines(copies, height, height + 0.8, color=colour, linewidth=0.6)
    lower.set(yticks=[0.4, 1.4], yticklabels=["from the host", "to the host"], xlabel="instruction", ylim=(-0.1, 2))
    figure.savefig(path, dpi=130)
    return path


def _history(planned: Planned) -> tuple[np.ndarray, list[int], list[int]]:
    """Bytes by kind after each instruction [I, kinds], and where copies to the host and from it begin."""
    program = planned.program
    graph = program.graph
    kind = [KINDS.index(one.kind) for one in graph.storages]
    here = np.zeros(len(KINDS), np.int64)
    held: set[int] = set()
    rows, outs, ins = [], [], []

    def add(s: int) -> None:
        if s not in held:
            held.add(s)
            here[kind[s]] += graph.storages[s].nbytes

    for s, one in enumerate(graph.storages):
        if one.kind == "input" or (one.lasting and s not in program.on_host):
            add(s)
    for at, (what, which) in enumerate(program.instructions):
        if what in (RUN, AGAIN):
            for s in graph.nodes[which].makes:
                add(s)
        elif what == IN:
            add(which)
            ins.append(at)
        elif what == OUT:
            outs.append(at)
        elif what in (GONE, FREE):
            held.discard(which)
            here[kind[which]] -= graph.storages[which].nbytes
        rows.append(here.copy())
    return np.array(rows).reshape(len(rows), len(KINDS)), outs, ins
