"""Stop 4: 64 simulated nodes, some of which are slow for a while, with a barrier and with bounded staleness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from .stop import Shown, bars

NODES, CLOCKS = 64, 4
SLOW = {"share": 0.03, "slow": 4.0, "seconds": 0.004}  # other nodes every 4 ms


def straggler_stop(folder: Path) -> Shown:
    """Learn a linear model on 64 nodes: undisturbed, and with stragglers under BSP and under SSP(3)."""
    barrier, bounded = st.tables.BSP(), st.tables.SSP(3)
    runs: list[tuple[str, Any, Any]] = [
        ("no stragglers, barrier", None, barrier),
        ("stragglers, barrier", SLOW, barrier),
    ]
    runs.append(("stragglers, 3 clocks of staleness", SLOW, bounded))
    found = [_run(stragglers, sync) for _, stragglers, sync in runs]
    picture = bars(
        [
            (name, seconds, f"{seconds * 1e3:.0f} ms, error {error:.3f}")
            for (name, _, _), (seconds, error) in zip(runs, found, strict=True)
        ]
    )
    (calm, _), (waiting, error), (going, loose) = found
    fresh = (
        "The error is smaller here, too: a read may also see changes that a barrier would still hold back."
        if loose < error
        else "The error is larger: what is read is older, and it takes more clocks to make up for it."
    )
    says = (
        "Every 4 ms two other nodes of the 64 become four times slower (the cluster is simulated, what it learns is "
        f"real). With a barrier after each of the {CLOCKS} clocks all nodes wait for the slowest one: "
        f"{waiting / calm:.2f} times the time. Where a reader may be up to 3 clocks ahead of the slowest, short delays "
        f"are not waited for: {going / calm:.2f} times. {fresh}"
    )
    facts = {"seconds_calm": calm, "seconds_barrier": waiting, "seconds_stale": going}
    facts |= {"error_barrier": error, "error_stale": loose}
    return Shown(f"  virtual time of {CLOCKS} clocks on {NODES} nodes\n\n{picture}", says, facts)


def _run(stragglers: Any, sync: Any) -> tuple[float, float]:
    """(virtual seconds, mean squared error)."""
    draw = np.random.default_rng(0)
    X, truth = draw.normal(size=(3200, 20)).astype(np.float32), draw.normal(size=20).astype(np.float32)
    y, keys = X @ truth, np.arange(20)

    def worker(w: Any) -> None:
        weights = w.table("weights")
        for _ in w.clocks(CLOCKS):
            for features, answers in w.batches((X, y), 50):
                error = features @ weights.read(keys) - answers
                weights.add(keys, -0.3 / w.workers * features.T @ error / len(error))

    cluster = st.Simulated(
        nodes=NODES, threads=1, link="1Gbit", latency="50us", seconds_per_item=4e-5, stragglers=stragglers, seed=1
    )
    tables = {"weights": st.tables.Table(rows=20)}
    result = st.run(worker, workers=NODES, tables=tables, sync=sync, runtime=cluster)
    return float(result.seconds), float(np.mean(np.square(X @ np.asarray(result.tables["weights"]) - y)))
