"""The Lasso by rounds of coordinates on 1 to 64 simulated nodes: virtual seconds until the objective is within 1 % of
the optimum, at pipeline depth 1 and 3, under prioritised, random (Shotgun) and cyclic rounds (SMPFRAME, Figures 7 and
12 and Table 3, for `st.SparseRegression`).

2,048 × 10,000 dense numbers, columns in blocks of 10 that correlate at 0.9; 64 blocks of rows, at most 128 coordinates
in a round. Nodes have one core and links of 10 Gbit/s with a latency of 100 µs.

How far it scales depends on how much work a round is, so there are two tables. In the first an entry takes 40 ns of
virtual time. That is an assumption, chosen so that there is work to divide: a round of 128 coordinates is 10.5 ms, as
for a set with many times the rows. In the second an entry takes what it took on one thread of this machine.

What the driver computes takes no virtual time, in either table. *choosing* is what choosing a round took on this
machine; folding, changing the coefficients and handling messages come on top and are not in it. The last lines say how
many rounds a real driver made with two processes on this machine: virtual rates above that are out of its reach.

*rounds*, *updates*: until the target; the same at any number of nodes, since the bits are. *seconds*: from the
evaluation after 5 rounds on, scaled to all rounds, so that loading does not count. *efficiency*: the speedup over one
node at the same depth, divided by the number of nodes. *messages*: to and from the driver, for each round, X left out.

The set is the second that was tried. On the first (16,384 × 4,000, half this penalty, runs on one thread) prioritised
rounds needed 1,005 rounds at depth 1, random ones 685 and shuffled ones 425; at depth 3 prioritised rounds had not
reached the target after 1,500, the others had after 705 and 465.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from bench import sparse_sets
from numpy.typing import NDArray

import stretto as st
from stretto.errors import Diverged
from stretto.programs.values import ProgramResult

from . import report
from .smpframe_sets import scaled

ROWS, COLUMNS, BLOCK, BLOCKS, WIDTH = 2_048, 10_000, 10, 64, 128
NODES = (1, 4, 16, 64)
DEPTHS = (1, 3)
TARGET = 0.01
MOST = 4_000  # rounds
SECONDS_OF_ENTRY = 4e-8
SCHEDULES: dict[str, Callable[[], Any]] = {
    "prioritised": lambda: st.schedule.prioritised(WIDTH),
    "random": lambda: st.schedule.random(WIDTH),
    "cyclic, shuffled": lambda: st.schedule.cyclic(WIDTH, shuffle=True),
}


class Set:
    """The regression. goal: the objective to be reached."""

    def __init__(self) -> None:
        X, y = sparse_sets.generated(ROWS, COLUMNS, BLOCK, 0.9, 50)
        self.X: NDArray[Any] = np.asfortranarray(scaled(X), np.float32)
        self.y = (y - y.mean()) / y.std()
        self.alpha = float(np.abs(self.X.T @ self.y).max()) / ROWS / 10
        coef = st.Lasso(self.alpha, fit_intercept=False, tol=1e-7).fit(self.X, self.y).coef_
        left = self.y - self.X @ coef
        self.best = 0.5 * float(np.mean(left * left)) + self.alpha * float(np.abs(coef).sum())
        self.goal = (1 + TARGET) * self.best

    def run(self, schedule: Any, depth: int, runtime: Any, rounds: int = MOST, every: int = 5) -> ProgramResult:
        """Run until the goal."""
        program = st.SparseRegression(self.X, self.y, self.alpha, schedule=schedule, by="rows", blocks=BLOCKS)
        options: dict[str, Any] = {"rounds": rounds, "every": every, "pipeline": depth, "runtime": runtime}
        return st.run(program, until=lambda look: look.objective <= self.goal, **options)


def simulated(nodes: int, entry: float) -> st.Simulated:
    """The cluster. entry: virtual seconds for each entry."""
    return st.Simulated(nodes=nodes, threads=1, link="10Gbit", latency="100us", seconds_per_item=entry, seed=0)


def _seconds(result: ProgramResult) -> float:
    """Virtual seconds from the first evaluation after the data were sent, scaled to all rounds."""
    first, last = result.history[1], result.history[-1]
    return (last.seconds - first.seconds) * last.round / (last.round - first.round)


def _rows(
    one: Set, local: ProgramResult, name: str, depth: int, nodes: tuple[int, ...], entry: float
) -> list[list[object]]:
    """A schedule at a depth on some numbers of nodes, 1 first. local: the same on one thread."""
    rows: list[list[object]] = []
    alone = 0.0
    for count in nodes:
        cluster = simulated(count, entry)
        found = one.run(SCHEDULES[name](), depth, cluster)
        if not np.array_equal(found.params["coef"], local.params["coef"]):
            raise RuntimeError(f"{name}, depth {depth}: other bits on {count} nodes")
        seconds = _seconds(found)
        alone = seconds if count == 1 else alone
        sent = (cluster.report.driver_bytes - one.X.nbytes) / found.rounds / 1e3
        rows.append(
            [name, depth, count, found.rounds if found.stopped == "until" else "-", f"{found.updates:,}",
             f"{seconds:.3f}", f"{found.rounds / seconds:,.0f}", f"{alone / seconds:.1f}×",
             f"{alone / seconds / count:.0%}", f"{sent:.0f} KB",
             f"{1e3 * local.schedule_seconds / local.rounds:.3f} ms"]
        )  # fmt: skip
        print(*rows[-1], flush=True)
    return rows


def _real(one: Set) -> str:
    """Rounds per second of a real driver."""
    found = one.run(SCHEDULES["prioritised"](), 3, st.Cluster("processes", nodes=2), rounds=400, every=50)
    first, last = found.history[1], found.history[-1]
    rate = (last.round - first.round) / (last.seconds - first.seconds)
    return (
        f"On two processes of this machine, driver and nodes on {report.cores()} cores, prioritised rounds at depth 3 "
        f"ran at {rate:.0f} rounds/s. The load average of the machine was {os.getloadavg()[0]:.0f} then: other jobs "
        "slow down all that is not virtual time, also choosing and the measured time of an entry."
    )


def _in_order(one: Set) -> str:
    """What becomes of cyclic rounds of neighbours."""
    try:
        found = one.run(st.schedule.cyclic(WIDTH), 1, st.Threads(1), rounds=100, every=100)
    except Diverged:
        return "Cyclic rounds in the order of the columns, whose neighbours correlate, diverge within 100 rounds."
    return (
        "Cyclic rounds in the order of the columns, whose neighbours correlate: after 100 rounds the objective is "
        f"{found.objective:.1e}, and {found.history[0].objective:.2f} at the start."
    )


def main() -> None:
    """Measure and save."""
    one = Set()
    local = {(name, depth): one.run(SCHEDULES[name](), depth, st.Threads(1)) for name in SCHEDULES for depth in DEPTHS}
    busy = sum(run.busy_seconds - run.schedule_seconds for run in local.values())
    measured = busy / sum(run.history[-1].samples for run in local.values())
    assumed = [row for key, run in local.items() for row in _rows(one, run, *key, NODES, SECONDS_OF_ENTRY)]
    real = [row for key, run in local.items() if key[1] == 3 for row in _rows(one, run, *key, (1, 64), measured)]
    columns = [
        "schedule", "depth", "nodes", "rounds", "updates", f"seconds to {TARGET:.0%}", "rounds/s", "speedup",
        "efficiency", "messages", "choosing",
    ]  # fmt: skip
    body = [
        f"## {SECONDS_OF_ENTRY * 1e9:.0f} ns an entry, assumed", report.table(columns, assumed),
        f"## {measured * 1e9:.2f} ns an entry, as measured here", report.table(columns, real),
        "## Beside these", _real(one), _in_order(one),
    ]  # fmt: skip
    report.save("lasso_rounds", "The Lasso by rounds on simulated nodes", report.text(__doc__), "\n\n".join(body))


if __name__ == "__main__":
    main()
