"""Stop 3: a parameter server with too little bandwidth, with and without a ranking of what is sent first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from .stop import Shown, bars

USERS, ITEMS, RANK, NODES, BUDGET = 400, 600, 8, 8, "2Mbit"


def ranking_stop(folder: Path) -> Shown:
    """Factorise ratings on eight simulated nodes that may send 2 Mbit/s each: rows at random, or by importance."""
    made = st.generate_ratings(20_000, USERS, ITEMS, rank=4, noise=0.2, seed=1).data
    order = np.argsort(made.rows, kind="stable")
    rows, cols = made.rows[order], made.cols[order]
    values = (made.values[order] - made.values.mean()).astype(np.float32)
    found = {rank: _run(rows, cols, values, rank) for rank in ("random", "relative")}
    (error, sent, seconds), (ranked, ranked_sent, _) = found["random"], found["relative"]
    picture = bars(
        [
            ("rows at random", error, f"RMSE {error:.4f} after {sent / 1e6:.2f} MB"),
            ("largest relative change", ranked, f"RMSE {ranked:.4f} after {ranked_sent / 1e6:.2f} MB"),
        ]
    )
    says = (
        f"Eight nodes learn item factors together in {seconds:.1f} s of virtual time (the learning is real, the "
        "network is simulated). The budget is too small for all changes. "
        f"Sent at random they give an error of {error:.4f}; about as many bytes with the largest relative changes "
        f"first give {ranked:.4f}, a change of {ranked / error - 1:+.1%}. The policy is one argument of st.run: "
        f'comm=st.tables.Managed("{BUDGET}", rank="relative").'
    )
    facts = {"rmse_random": error, "rmse_ranked": ranked, "bytes_random": sent, "bytes_ranked": ranked_sent}
    return Shown("  error of the ratings (shorter is better), for about the same bytes\n\n" + picture, says, facts)


def _run(rows: Any, cols: Any, values: Any, rank: str) -> tuple[float, int, float]:
    """(RMSE, bytes sent, virtual seconds) with rows sent in this order."""

    def worker(w: Any) -> None:
        items, mine = w.table("items"), np.flatnonzero(rows % w.workers == w.number)
        users = np.random.default_rng(w.number).normal(0, 0.3, (USERS, RANK)).astype(np.float32)
        w.local["users"] = users  # users belong to one worker; items are shared
        for _ in w.clocks(6):
            for lo in range(0, len(mine), 250):
                at = mine[lo : lo + 250]
                keys, place = np.unique(cols[at], return_inverse=True)
                factors, own = items.read(keys), users[rows[at]]
                error = values[at] - np.einsum("nk,nk->n", own, factors[place])
                step = np.zeros_like(factors)
                np.add.at(step, place, 0.03 * (error[:, None] * own - 0.02 * factors[place]))
                np.add.at(users, rows[at], 0.03 * (error[:, None] * factors[place] - 0.02 * own))
                items.add(keys, step)
                w.work(len(at))

    start = np.random.default_rng(5).normal(0, 0.3, (ITEMS, RANK)).astype(np.float32)
    result = st.run(
        worker,
        workers=NODES,
        tables={"items": st.tables.Table(rows=ITEMS, cols=RANK, start=lambda keys: start[keys])},
        sync=st.tables.SSP(3),
        comm=st.tables.Managed(BUDGET, rank=rank, burst=(20, 20)),
        runtime=st.Simulated(nodes=NODES, threads=1, link="10Mbit", seconds_per_item=2e-5, seed=0),
    )
    owner = np.arange(USERS) % NODES
    users = np.stack([result.local[owner[u]]["users"][u] for u in range(USERS)])
    error = values - np.einsum("nk,nk->n", users[rows], np.asarray(result.tables["items"])[cols])
    sent = sum(pair.nbytes for pair in result.traffic)
    return float(np.sqrt(np.mean(np.square(error)))), int(sent), float(result.seconds)
