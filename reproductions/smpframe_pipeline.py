"""Pipeline depth 1 to 8: Figure 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import stretto as st
from stretto.figures import FAINT

from . import report, smpframe_sets
from .smpframe_runs import figure, said, trace

DEPTHS = (1, 2, 3, 4, 6, 8)
SHARE = 0.01


def fig12() -> tuple[str, str]:
    """Throughput, samples to a target and time to it."""
    rows: list[list[object]] = []
    found, curves = [], {}
    for task in smpframe_sets.lasso():
        target = task.target(SHARE)
        traces = [
            trace(task, f"depth {depth}", st.schedule.prioritised(64), share=SHARE, pipeline=depth) for depth in DEPTHS
        ]
        rates = [one.looks[-1].samples / one.looks[-1].seconds / 1e6 for one in traces]
        sweeps, seconds = [one.sweeps(target) for one in traces], [one.seconds(target) for one in traces]
        for depth, one, rate in zip(DEPTHS, traces, rates, strict=True):
            cells = [
                said(one.sweeps(target), diverged=one.diverged),
                said(one.seconds(target), 2, diverged=one.diverged),
            ]
            rows.append([task.name, depth, f"{rate:.0f}", *cells])
        curves[task.name] = (rates, sweeps, seconds)
        found.append(f"{task.name}: throughput {rates[2] / rates[0]:.2f}×, samples {sweeps[2] / sweeps[0]:.2f}×, time "
                     f"{seconds[2] / seconds[0]:.2f}×")  # fmt: skip

    draw(curves)
    columns = ["set", "depth", "M samples/s", f"sweeps to {SHARE:.0%}", f"seconds to {SHARE:.0%}"]
    return "depth 3 over depth 1: " + "; ".join(found), report.table(columns, rows)


def draw(curves: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]]) -> None:
    """Throughput, samples and time against the depth, over those of depth 1."""

    def panel(which: int) -> Any:
        def lines(axes: Any) -> None:
            for name, curve in curves.items():
                axes.plot(DEPTHS, [value / curve[which][0] for value in curve[which]], "o-", label=name)
            axes.axhline(1.0, color=FAINT, linewidth=1)

        return lines

    titles = ("Updates per second", "Samples until 1 % of the way is left", "Time until 1 % of the way is left")
    label = "times that of one round"
    figure("smpframe-fig12.png", [(title, "rounds in flight", label, panel(k)) for k, title in enumerate(titles)])
