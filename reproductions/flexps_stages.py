"""Figure 10: a stage on one node with its model there or served by all nodes. Figure 11: one stage against ten."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import stretto as st

from . import flexps_plot as plot
from . import report
from .flexps_jobs import KDD, NODES, PARTS, THREADS, WEBSPAM, SparseSet, cluster, sgd_unit

LARGE = SparseSet("kdd-like, 32 MiB model", 9_600, 4_194_304, 10, skew=12, shuffled=False)
BATCH = 24
ITERATIONS = (1, 3, 10, 30, 100, 300, 1_000)
WAYS = {"served": "served by all nodes", "whole": "local, prepared whole", "on-demand": "local, on demand"}


def spread(worker: Any, w: Any) -> None:
    """Leaves the model cut over all nodes."""


def panels(every: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> list[plot.Panel]:
    """A panel for each set: seconds against iterations."""
    return [
        plot.Panel(f"SGD on one of {NODES} nodes, {name}", "iterations", "seconds, preparation included", series, "xy")
        for name, series in every.items()
    ]


def fig10() -> tuple[str, str]:
    """Twelve workers on one node, after a stage on all nodes."""
    rows, seconds = [], {}
    every: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for data in (LARGE, WEBSPAM):
        series: dict[str, list[tuple[float, float]]] = {}
        for iterations in ITERATIONS:
            for way, called in WAYS.items():
                w = data.state()
                stage = sgd_unit(data, w, BATCH, iterations, parts=THREADS, workers=THREADS, preparation=way)
                wide = st.unit(spread, w, parts=NODES, placement=dict.fromkeys(range(NODES), 1))
                last = st.run(st.seq(wide, stage), runtime=cluster()).stages[-1]
                seconds[data.name, way, iterations] = last.seconds + last.transition
                series.setdefault(called, []).append((iterations, last.seconds + last.transition))
            each = [seconds[data.name, way, iterations] for way in WAYS]
            rows.append([data.name, iterations, *(f"{1e3 * one:.1f}" for one in each)])
            print(*rows[-1], flush=True)
        every[data.name] = series
    plot.draw("fig10", panels(every))
    most = ITERATIONS[-1]

    def ratio(data: SparseSet, first: str, second: str, iterations: int) -> float:
        return seconds[data.name, first, iterations] / seconds[data.name, second, iterations]

    faster = ratio(LARGE, "served", "on-demand", most) > 1.2 and ratio(WEBSPAM, "served", "whole", most) > 1.2
    first = ratio(LARGE, "whole", "on-demand", 1) > 1.2
    found = (
        f"{most} iterations served take {ratio(LARGE, 'served', 'whole', most):.1f} times (large model) and "
        f"{ratio(WEBSPAM, 'served', 'whole', most):.1f} times (small one) as long as with the whole model there; one "
        f"iteration with the whole large model takes {ratio(LARGE, 'whole', 'on-demand', 1):.1f} times as long as on "
        f"demand, with the small one {ratio(WEBSPAM, 'whole', 'on-demand', 1):.1f} times"
    )
    verdict = "agrees" if faster and first else "agrees in part" if faster or first else "differs"
    return f"{verdict}: {found}", report.table(["data", "iterations", *(f"{way}, ms" for way in WAYS)], rows)


def fig11() -> tuple[str, str]:
    """100 iterations with 96 workers on 8 nodes, in one stage and in ten."""
    rows, more, delays = [], [], []
    for name, sync in (("BSP", st.tables.BSP()), ("SSP(1)", st.tables.SSP(1)), ("ASP", st.tables.ASP())):
        seconds = []
        for stages, iterations in ((1, 100), (10, 10)):
            w = KDD.state()
            # The same nodes each time, as in the paper; else they would take turns, and the model would move.
            place = dict.fromkeys(range(PARTS // THREADS), THREADS)
            unit = sgd_unit(KDD, w, 96, iterations, placement=place, sync=sync)
            result = st.run(st.loop(unit, times=stages), runtime=cluster())
            seconds.append(result.seconds)
        delay = statistics.median(1e3 * stage.transition for stage in result.stages[1:])
        more.append(seconds[1] / seconds[0] - 1)
        delays.append(delay)
        rows.append([name, f"{seconds[0]:.4f}", f"{seconds[1]:.4f}", f"{more[-1]:+.1%}", f"{delay:.2f}"])
        print(*rows[-1], flush=True)
    verdict = "agrees" if max(more) < 0.1 else "differs"
    found = (
        f"ten stages take {', '.join(f'{one:+.0%}' for one in more)} (BSP, SSP, ASP) of one stage's time; a transition "
        f"without moves is {delays[0]:.1f} ms by the simulator's model (measured: `python -m bench stages`)"
    )
    return f"{verdict}: {found}", report.table(
        ["rule", "one stage, s", "ten stages, s", "difference", "a transition, ms"], rows
    )
