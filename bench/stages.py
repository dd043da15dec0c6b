"""The time between two stages of a task, on two threads and on four namespace hosts.

A *transition* is the time from the end of the slowest worker of a stage to the start of the workers of the next: the
outcome is gathered, workers are assigned, states are moved where that is necessary, caches are made. The task repeats a
stage on all nodes (16 parts) and one with a single worker, ten turns; states are vectors of float64. Medians over all
transitions but the first, in milliseconds. *Longest* is over both kinds.

The hosts are network namespaces of this computer with a Ray node each, all on its processors, joined at 1 Gbit. The
processor time of a turn (a stage on all hosts, one on a single host, and both transitions) is that of the four host
processes and of the driver, without Ray's own processes: shared by the cores of this computer, it bounds the time from
below, which it would not where every host has processors of its own. Bytes moved are those of chunks of the state that
change their host before a stage, the median of each kind: 1 MB takes 8 ms at 1 Gbit. Other programs on this computer
lengthen all times, so its load (tasks that run or wait for a core) before the measurement is stated. FlexPS reports 10
to 20 ms at 100 and 200 workers, and about 60 s where a system has to be restarted.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

import stretto as st

from . import report

SIZES = (100, 10_000, 1_000_000)
TURNS, HOSTS = 10, 4


def wide(worker: Any, rows: Any, w: Any) -> float:
    """Every part adds to ten numbers. Its value has the processor time of each host, once for every part on it."""
    w.add(np.arange(10), np.ones(10))
    return time.process_time()


def narrow(worker: Any, w: Any) -> None:
    """One worker adds to ten numbers."""
    w.add(np.arange(10), np.ones(10))


class _DriverClock:
    """The processor time of this process at the end of each stage."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def ended(self, stage: Any) -> None:
        self.seconds.append(time.process_time())


def transitions(runtime: Any, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """By size of the state: the seconds of the transitions to wide and to narrow stages."""
    found = []
    for size in sizes:
        w = st.zeros(size, "f8")
        turn = st.seq(st.unit(wide, np.arange(1600), w), st.unit(narrow, w, workers=1))
        clock = _DriverClock()
        result = st.run(st.loop(turn, times=TURNS), runtime=runtime, on_stage=clock.ended)
        seconds = {
            unit: [stage.transition for stage in result.stages[2:] if stage.unit == unit] for unit in ("wide", "narrow")
        }
        moved = {
            f"{unit}_moved": statistics.median(stage.moved for stage in result.stages[2:] if stage.unit == unit)
            for unit in ("wide", "narrow")
        }
        right = float(w.array[:10].sum()) == 10 * (16 + 1) * TURNS
        hosts = np.diff(result.history("wide")[1:]) * HOSTS / 16
        processors = {"hosts": float(np.median(hosts)), "driver": float(np.median(np.diff(clock.seconds[2::2])))}
        found.append({"size": size, "right": right, **seconds, **moved, **processors})
    return found


def on_hosts() -> None:
    """Measure on the driver's machine; the last line is JSON."""
    print(json.dumps(transitions(st.Cluster(nodes=HOSTS, patience=30.0, start_within=300.0))))


def rows_of(where: str, found: list[dict[str, Any]], hosts: bool = False) -> list[list[object]]:
    """The rows of the table. hosts: host processes, whose processor time counts apart from the driver's."""
    return [
        [
            where,
            f"{one['size']:,}",
            *(f"{1e3 * statistics.median(one[unit]):.1f}" for unit in ("wide", "narrow")),
            f"{1e3 * max(one['wide'] + one['narrow']):.1f}",
            f"{one['wide_moved'] / 1e6:.2f} / {one['narrow_moved'] / 1e6:.2f}",
            f"{1e3 * one['hosts']:.1f} + {1e3 * one['driver']:.1f}" if hosts else f"{1e3 * one['driver']:.1f}",
            "yes" if one["right"] else "NO",
        ]
        for one in found
    ]


def main() -> None:
    """Measure and save."""
    from .laboratory import laboratory

    load = os.getloadavg()[0]
    rows = rows_of("2 threads", transitions(st.Threads(2)))
    rows += rows_of("16 parts on 1 thread", transitions(st.Threads(1)))
    with laboratory(HOSTS) as lab:
        done = lab.run([sys.executable, "-c", "from bench.stages import on_hosts; on_hosts()"], timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if not lines:
        raise SystemExit(f"it failed:\n{done.stdout[-4000:]}")
    rows += rows_of(f"{HOSTS} namespace hosts", json.loads(lines[-1]), hosts=True)
    columns = [
        "where",
        "numbers",
        "to all workers, ms",
        "to one worker, ms",
        "longest, ms",
        "moved to all / to one, MB",
        "processor time of a turn (hosts + driver), ms",
        "sum is right",
    ]
    body = f"Load of the computer before: {load:.1f}.\n\n{report.table(columns, rows)}"
    report.save("stages", "Transitions between stages", report.text(__doc__), body, ["ray"])


if __name__ == "__main__":
    main()
