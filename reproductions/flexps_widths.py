"""Figure 1: an iteration's time against width. Figure 5 and Table 2: the automatic width, the best, a random one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from . import flexps_plot as plot
from . import report
from .flexps_jobs import KDD, PARTS, PER_NONZERO, THREADS, WEBSPAM, SparseSet, run_sgd

WIDTHS = (1, 3, 6, 12, 24, 48, 96)
WIDER = 192
SHORT, LONG = 20, 200  # iterations of a fixed width at most: on one node, where all take the same time, and on several


def panels(every: Mapping[str, Mapping[str, Iterable[tuple[float, float]]]]) -> list[plot.Panel]:
    """A panel for each batch: milliseconds against workers."""
    return [
        plot.Panel(f"An iteration with a batch of {batch} samples", "workers", "milliseconds",
                   {name: list(points) for name, points in series.items()}, "xy")
        for batch, series in every.items()
    ]  # fmt: skip


def fig1() -> tuple[str, str]:
    """The time of an iteration, its computing and the rest, for two batch sizes and two kinds of parts."""
    rows, best = [], {}
    every: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for batch, iterations in ((96, 10), (9_600, 4)):
        series: dict[str, list[tuple[float, float]]] = {}
        for logical in (False, True):
            kind = f"{PARTS} parts" if logical else "as many parts as workers"
            total = {}
            for width in WIDTHS if logical or batch < WIDER else (*WIDTHS, WIDER):
                result = run_sgd(KDD, batch, iterations, workers=width, parts=PARTS if logical else width)
                total[width] = 1e3 * result.stages[0].seconds / iterations
                compute = 1e3 * batch * KDD.nonzeros * PER_NONZERO / width
                waits = max(0.0, total[width] - compute)
                series.setdefault(f"whole iteration, {kind}", []).append((width, total[width]))
                if not logical:
                    series.setdefault("computing", []).append((width, compute))
                if width > THREADS:  # on one node there is none
                    series.setdefault(f"communication, {kind}", []).append((width, waits))
                rows.append([f"{batch:,}", kind, width, f"{compute:.2f}", f"{waits:.2f}", f"{total[width]:.2f}"])
                print(*rows[-1], flush=True)
            best[batch, logical] = min(total, key=lambda width: total[width])
        every[f"{batch:,}"] = series
    plot.draw("fig1", panels(every))
    moved = all(best[96, logical] < best[9_600, logical] for logical in (False, True))
    found = "; ".join(
        f"best at {best[96, logical]} workers for 96, at {best[9_600, logical]} for 9,600 with {kind}"
        for logical, kind in ((False, "as many parts as workers"), (True, f"{PARTS} parts"))
    )
    columns = ["batch", "parts", "workers", "computing, ms", "communication, ms", "an iteration, ms"]
    return f"{'agrees' if moved else 'differs'}: {found}", report.table(columns, rows)


def fig5() -> tuple[str, str]:
    """SGD in one stage."""
    found, rows, fixed_rows = [], [], []
    within = under = True
    for data, batch, iterations in ((KDD, 96, 1_000), (WEBSPAM, 192, 100)):
        seconds, busy = _fixed(data, batch, iterations)
        best = min(seconds, key=lambda width: seconds[width])
        auto = run_sgd(data, batch, iterations, workers="auto")
        random, random_busy = _uniform(seconds), _uniform(busy)
        over, below = auto.seconds / seconds[best] - 1, 1 - auto.seconds / random
        within, under = within and over <= 0.12, under and below >= 0.45
        ended = auto.stages[-1].width
        rows.append(
            [data.name, batch, iterations, f"{seconds[best]:.3f} ({best})", f"{auto.seconds:.3f} ({ended})",
             f"{random:.3f}", f"{over:+.0%}", f"{below:.0%}", f"{busy[best]:.1f}", f"{auto.worker_seconds:.1f}",
             f"{random_busy:.1f}"]
        )  # fmt: skip
        print(*rows[-1], flush=True)
        fixed_rows.append([data.name, *(f"{seconds[width]:.3f}" for width in WIDTHS)])
        found.append(
            f"{data.name}: {over:.0%} over the best, {below:.0%} under random, worker-seconds {busy[best]:.0f} best, "
            f"{auto.worker_seconds:.0f} auto, {random_busy:.0f} random"
        )
    columns = ["data", "batch", "iterations", "optimal, s (width)", "auto, s (ends at)", "random, s",
               "auto over optimal", "auto under random", "optimal, worker-s", "auto, worker-s",
               "random, worker-s"]  # fmt: skip
    body = report.table(columns, rows)
    body += "\n\n" + report.table(["data", *(f"{width} workers, s" for width in WIDTHS)], fixed_rows)
    verdict = (
        "agrees" if within and under else "agrees with the best, smaller gain over random" if within else "differs"
    )
    return f"{verdict}: {'; '.join(found)}", body


def _fixed(data: SparseSet, batch: int, iterations: int) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds and worker-seconds of the job by width, scaled from fewer iterations where it has many."""
    seconds, busy = {}, {}
    for width in WIDTHS:
        made = min(SHORT if width <= THREADS else LONG, iterations)
        result = run_sgd(data, batch, made, workers=width)
        seconds[width] = result.stages[0].transition + result.stages[0].seconds * iterations / made
        busy[width] = result.worker_seconds * iterations / made
        print(data.name, width, f"{seconds[width]:.3f} s", flush=True)
    return seconds, busy


def _uniform(by_width: dict[int, float]) -> float:
    """The mean over all widths from one node's on, as the paper's random ones were at least one worker a machine.
    Between the widths measured the logarithms are interpolated.
    """
    every = np.arange(THREADS, max(by_width) + 1)
    logs = [math.log(by_width[width]) for width in by_width]
    return float(np.exp(np.interp(np.log(every), np.log(list(by_width)), logs)).mean())
