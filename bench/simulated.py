"""The simulated cluster itself: messages per second of a core's time, what a message costs, memory.

Matrix factorisation by gradient descent on a million ratings: users' rows are the workers' own, items' rows are served.
Seconds are CPU seconds of the process, without those the workers computed; a message counts once, bare acknowledgements
do not. Managed runs read and add four times a clock.
The last run is one of 256 nodes with 16 workers each, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import stretto as st
from stretto.comm.policy import Eager, Managed
from stretto.consistency.rules import BSP, SSP
from stretto.runtime.simulated.spec import Simulated
from stretto.tables.result import TableResult

from . import report
from .sets import rating_sets

RATINGS = 1_000_000


@njit(cache=True)  # type: ignore[untyped-decorator]
def sweep(users: Any, items: Any, values: Any, W: Any, H: Any, D: Any, rate: float) -> float:
    """One pass over ratings: W [users, k] in place, changes of H [items, k] into D."""
    loss = 0.0
    for n in range(len(users)):
        i, j = users[n], items[n]
        error = values[n]
        for k in range(W.shape[1]):
            error -= W[i, k] * (H[j, k] + D[j, k])
        loss += error * error
        for k in range(W.shape[1]):
            w, h = W[i, k], H[j, k] + D[j, k]
            W[i, k] += rate * (error * h - 0.05 * w)
            D[j, k] += rate * (error * w - 0.05 * h)
    return loss


class Ratings:
    """Ratings dealt out by users; each worker's items numbered for itself."""

    def __init__(self, workers: int, rank: int) -> None:
        found = next(iter(rating_sets(big=False)), None)
        data = (
            st.generate_ratings(RATINGS, 6_000, 3_500, rank=12, noise=0.5, seed=1).data
            if found is None
            else found.train
        )
        self.items, self.rank, self.computed = data.shape[1], rank, 0.0
        rows, cols, values = data.rows.astype(np.int64), data.cols, data.values
        owner = rows * workers // data.shape[0]
        self.parts = []
        for worker in range(workers):
            mine = np.flatnonzero(owner == worker)
            keys, items = np.unique(cols[mine], return_inverse=True)
            _, users = np.unique(rows[mine], return_inverse=True)
            self.parts.append((users, keys.astype(np.int64), items, values[mine].astype(np.float32)))

    def worker(self, clocks: int, parts: int = 1) -> Callable[[Any], None]:
        """parts: reads and adds per clock."""

        def work(w: Any) -> None:
            users, keys, items, values = self.parts[w.number]
            draw = w.random(0)
            W = w.local.setdefault("W", draw.normal(0, 0.1, (users.max(initial=0) + 1, self.rank)).astype(np.float32))
            x = w.table("items")
            cuts = np.linspace(0, len(users), parts + 1).astype(int)
            for _ in w.clocks(clocks):
                for a, b in pairwise(cuts):
                    H = x.read(keys)
                    began = time.process_time()
                    D = np.zeros_like(H)
                    sweep(users[a:b], items[a:b], values[a:b], W, H, D, 0.0005)
                    self.computed += time.process_time() - began
                    w.work(b - a)
                    x.add(keys, D)

        return work

    def run(
        self, sync: Any, comm: Any, nodes: int, workers: int, clocks: int, parts: int = 1
    ) -> tuple[TableResult, float]:
        """The result, and CPU seconds without computing."""
        start = np.random.default_rng(0).normal(0, 0.1, (self.items, self.rank)).astype(np.float32)
        self.computed = 0.0
        began = time.process_time()
        result = st.run(
            self.worker(clocks, parts),
            tables={"items": st.tables.Table(rows=self.items, cols=self.rank, start=start)},
            workers=workers,
            sync=sync,
            comm=comm,
            runtime=Simulated(nodes=nodes, threads=max(1, workers // nodes), seconds_per_item=1e-6),
        )
        return result, time.process_time() - began - self.computed


def counted(result: Any) -> tuple[int, int]:
    """Messages and bytes, without bare acknowledgements."""
    reasons = result.recording.by_reason()
    messages = sum(count for reason, (count, _, _) in reasons.items() if reason != "acknowledge")
    return messages, sum(nbytes for _, _, nbytes in reasons.values())


def speeds() -> list[list[object]]:
    """Messages per second for several rules and policies, at two sizes of rows."""
    rows: list[list[object]] = []
    for nodes, rank in ((16, 32), (64, 8), (64, 32), (64, 128)):
        ratings = Ratings(nodes, rank)
        for name, sync, comm in (
            ("BSP", BSP(), Eager()),
            ("SSP(2)", SSP(2), Eager()),
            ("SSP(2), managed", SSP(2), Managed("200Mbit", burst=(1600, 1600))),
        ):
            ratings.run(sync, comm, 2, nodes, 2)
            result, seconds = ratings.run(sync, comm, nodes, nodes, 5, 4 if comm != Eager() else 1)
            messages, nbytes = counted(result)
            rows.append(
                [
                    f"{nodes} nodes, rank {rank}",
                    name,
                    messages,
                    f"{nbytes / messages:.0f}",
                    f"{messages / seconds:,.0f}",
                    f"{1e6 * seconds / messages:.1f}",
                ]
            )
            print(*rows[-1], flush=True)
    return rows


def peak() -> int:
    """Most memory this process has held, in bytes; getrusage may tell that of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def one(nodes: int, threads: int, rank: int, clocks: int) -> dict[str, Any]:
    """A large run: time and peak memory."""
    ratings = Ratings(nodes * threads, rank)
    before = peak()
    result, seconds = ratings.run(SSP(2), Eager(), nodes, nodes * threads, clocks)
    messages, _ = counted(result)
    return {
        "messages": messages,
        "seconds": seconds,
        "virtual": result.seconds,
        "before": before,
        "peak": peak(),
    }


def main() -> None:
    """Both parts."""
    rows = speeds()
    columns = ["cluster", "rule", "messages", "bytes each", "messages/s", "µs each"]
    order = json.dumps([256, 16, 32, 3])
    done = subprocess.run(
        [sys.executable, "-m", "bench.simulated", order],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    large = json.loads(done.stdout.splitlines()[-1])
    body = report.table(columns, rows)
    body += (
        f"\n\n256 nodes × 16 workers, SSP(2), rank 32, 3 clocks: {large['messages']:,} messages in "
        f"{large['seconds']:.0f} CPU seconds ({large['messages'] / large['seconds']:,.0f} per second), peak memory "
        f"{large['peak'] / 2**30:.2f} GiB, of which {large['before'] / 2**30:.2f} before it began.\n"
    )
    report.save("simulated", "The simulated cluster", report.text(__doc__), body, ["greenlet"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(one(*json.loads(sys.argv[1]))))
    else:
        main()
