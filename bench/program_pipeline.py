"""Rounds in flight on a simulated cluster: rounds per virtual second at depth 1, 2, 3 and 5, by the latency of the
network (SMPFRAME, Figure 12: depth 3 gains throughput).

The Lasso by coordinate descent as an `st.Program`: 4,000 rows in 16 parts on 8 nodes of 4 threads with 1 Gbit/s links,
1,000 columns, `st.schedule.prioritised(width=32)`. An update is the inner product of one column of one part with the
residual, 1 µs of virtual time for each row; choosing and aggregating run on the driver and take none. *Seconds to
target*: virtual seconds until the objective is within 1 % of the best that any run found, as a share of where it
started. Rounds that overlap see older parameters, so they may need more rounds. Every run is also made with crashes of
two nodes, and must end with the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.runtime.simulated.faults import Crash

from . import report

DEPTHS = (1, 2, 3, 5)
LATENCIES = ("100us", "1ms", "5ms")
ROUNDS = 250
TARGET = 0.01
ROWS, COLUMNS, PARTS, NODES = 4000, 1000, 16, 8


class Lasso(st.Program):
    """½‖y − Xβ‖² + λ‖β‖₁, rows in parts."""

    def __init__(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        self.data, self.norms = X, np.square(X).sum(axis=0)  # data stay on the driver, since there are parts
        self.lam = 0.05 * float(np.abs(X.T @ y).max())
        self.parts = [(X[rows], rows) for rows in np.array_split(np.arange(ROWS), PARTS)]
        self.params = {"beta": np.zeros(COLUMNS), "residual": y.copy()}
        self.columns = np.asfortranarray(X)
        self.schedule = st.schedule.prioritised(width=32)

    def samples(self, jobs: Any) -> int:
        return ROWS * len(jobs)

    def update(self, job: int, part: Any, params: Any) -> Any:
        X, rows = part
        return job, params["beta"][job], X[:, job] @ params["residual"][rows]

    def merge(self, a: Any, b: Any) -> Any:
        return *a[:2], a[2] + b[2]

    def aggregate(self, results: Any, params: Any) -> NDArray[Any]:
        moved = []
        for job, beta, slope in results:
            u = slope + self.norms[job] * beta
            moved.append(np.sign(u) * max(abs(u) - self.lam, 0.0) / self.norms[job] - beta)
            params["residual"] -= self.data[:, job] * moved[-1]
            params["beta"][job] += moved[-1]
        return np.array(moved)

    def objective(self, data: Any, params: Any) -> float:
        return 0.5 * float(np.square(params["residual"]).sum()) + self.lam * float(np.abs(params["beta"]).sum())


def problem() -> tuple[NDArray[Any], NDArray[Any]]:
    """Correlated columns, 40 of which matter."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((ROWS, COLUMNS)) + 0.1 * draw.standard_normal((ROWS, 1))
    beta = np.zeros(COLUMNS)
    beta[draw.choice(COLUMNS, 40, replace=False)] = draw.standard_normal(40)
    return X, X @ beta + draw.standard_normal(ROWS)


def simulated(latency: str, **faults: Any) -> Any:
    """The cluster."""
    return st.Simulated(nodes=NODES, threads=4, latency=latency, seconds_per_item=1e-6, detect=0.05, **faults)


def main() -> None:
    """Measure and save."""
    X, y = problem()
    runs: dict[tuple[str, int], Any] = {}
    for latency in LATENCIES:
        for depth in DEPTHS:
            options: dict[str, Any] = {"rounds": ROUNDS, "pipeline": depth, "every": 5}
            found = runs[latency, depth] = st.run(Lasso(X, y), runtime=simulated(latency), **options)
            crashes = [
                Crash(1, at=0.3 * found.seconds, back_after=0.01),
                Crash(6, at=0.7 * found.seconds, back_after=1),
            ]
            again = st.run(Lasso(X, y), runtime=simulated(latency, faults=crashes), **options)
            if any(not np.array_equal(again.params[name], found.params[name]) for name in found.params):
                raise RuntimeError(f"latency {latency}, depth {depth}: other bits after crashes")
    best = min(run.objective for run in runs.values())
    rows = []
    for (latency, depth), run in runs.items():
        start = run.history[0].objective
        goal = best + TARGET * (start - best)
        reached = next((look for look in run.history if look.objective <= goal), None)
        # The first look after the data were sent: loading is no part of a round.
        first = run.history[1]
        rate = (run.rounds - first.round) / (run.seconds - first.seconds)
        one = runs[latency, 1]
        before = (one.rounds - one.history[1].round) / (one.seconds - one.history[1].seconds)
        cells = ("-", "-") if reached is None else (reached.round, f"{reached.seconds - first.seconds:.3f}")
        rows.append([latency, depth, f"{rate:.0f}", f"{rate / before:.2f}×", *cells])
    columns = ["latency", "depth", "rounds/s", "over depth 1", f"rounds to {TARGET:.0%}", f"seconds to {TARGET:.0%}"]
    report.save("program_pipeline", "Programs: rounds in flight", report.text(__doc__), report.table(columns, rows))


if __name__ == "__main__":
    main()
