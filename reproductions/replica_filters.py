"""Filters of replicated states: the objective against bytes sent, for four rankings and two shares.

Alt's dissertation (section 4.4) names four filters: random, round-robin, by the absolute and by the relative change; it
does not measure them. Here: logistic regression on generated sparse samples, eight simulated nodes (100 Mbit, 1 ms)
with a part on each. A part makes 100 steps on single samples of its own data with its copy of the model; then half of
each change is added to all copies. A filter sends 5 or 20 % of the rows of the model in an exchange; what it holds back
is sent later, and all of it at the end. Each point is a run of its own, of 2 to 40 exchanges; bytes are those of all
messages between nodes. Recordings of the shortest runs pass the replay checker: no update is lost or applied twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

import stretto as st
from stretto.testing import check_replay

from . import report
from .flexps_plot import Panel, draw

SAMPLES, FEATURES, ENTRIES, PARTS, STEPS = 8_000, 2_000, 20, 8, 100
EXCHANGES = (2, 5, 10, 20, 40)
RANKINGS: dict[str, Callable[[float], Any]] = {
    "absolute": lambda share: st.top("absolute", share=share),
    "relative": lambda share: st.top("relative", share=share),
    "random": st.random_share,
    "round-robin": st.round_robin,
}
FILTERS: dict[str, Any] = {
    "all rows": None,
    **{f"{name}, {share:.0%}": make(share) for name, make in RANKINGS.items() for share in (0.2, 0.05)},
}


def problem() -> tuple[Any, Any]:
    """Sparse samples [n, p] with popular features, and labels −1 and 1."""
    draws = np.random.default_rng(3)
    columns = (FEATURES * draws.random((SAMPLES, ENTRIES)) ** 2).astype(np.int64)
    values = draws.standard_normal((SAMPLES, ENTRIES)) / np.sqrt(ENTRIES)
    X = scipy.sparse.csr_array(
        (values.ravel(), columns.ravel(), np.arange(0, SAMPLES * ENTRIES + 1, ENTRIES)), shape=(SAMPLES, FEATURES)
    )
    true = 5 * draws.standard_normal(FEATURES)
    return X, np.where(X @ true + 0.3 * draws.standard_normal(SAMPLES) > 0, 1.0, -1.0)


def descend(worker: Any, X: Any, y: Any, w: Any, exchanges: int) -> Iterator[None]:
    """Stochastic steps on the copy; control is handed over after every 100."""
    rows = worker.random().integers(len(y), size=(exchanges, STEPS))
    for some in rows:
        for i in some:
            first, last = X.indptr[i], X.indptr[i + 1]
            keys, values = X.indices[first:last], X.data[first:last]
            slope = -y[i] / (1.0 + np.exp(y[i] * (values @ w.array[keys])))
            np.add.at(w.array, keys, -2.0 * slope * values)
        worker.work(STEPS)
        yield


def objective(X: Any, y: Any, w: Any) -> float:
    """The mean logistic loss."""
    return float(np.logaddexp(0.0, -y * (X @ w)).mean())


def run(X: Any, y: Any, rule: Any, exchanges: int) -> tuple[float, int]:
    """The objective after a number of exchanges, and the bytes that were sent."""
    w = st.state(np.zeros(FEATURES), replicate=True, merge=st.add(0.5), filter=rule, exchange="shards")
    unit = st.unit(descend, X, y, w, exchanges, parts=PARTS)
    cluster = st.Simulated(nodes=PARTS, threads=1, link="100Mbit", latency="1ms", seconds_per_item=1e-4)
    checked = exchanges == EXCHANGES[0]
    result = st.run(unit, runtime=cluster, record="full" if checked else None)
    if checked:
        for stage in result.stages:
            check_replay(stage.recording)
    return objective(X, y, w.array), sum(stage.sent for stage in result.stages)


def draw_filters(points: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Loss against bytes, a panel for each share of the rows."""
    panels = [
        Panel(
            f"{share} of the rows in an exchange",
            "megabytes sent between nodes",
            "mean logistic loss",
            {name: points[name] for name in points if name == "all rows" or name.endswith(f" {share}")},
            "x",
        )
        for share in ("20%", "5%")
    ]
    draw("filters", panels, paper="alt")


def main() -> None:
    """Measure, draw and save."""
    X, y = problem()
    points: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for name, rule in FILTERS.items():
        found = [run(X, y, rule, exchanges) for exchanges in EXCHANGES]
        points[name] = [(nbytes / 1e6, loss) for loss, nbytes in found]
        rows.append([name, *(f"{loss:.4f} ({nbytes / 1e6:.2f})" for loss, nbytes in found)])
        print(*rows[-1], flush=True)
    draw_filters(points)
    body = report.table(["rows sent", *(f"{n} exchanges: loss (MB)" for n in EXCHANGES)], rows)
    report.save("replica_filters", "Filters of replicated states", report.text(__doc__), body)


if __name__ == "__main__":
    main()
