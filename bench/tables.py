"""Parameter tables on threads: how fast rows are read and added to by key, and what a shared table costs.

*Rows per second*: 2 workers on `st.Threads(2)` through the public interface, `x.read(keys, out=…)` and
`x.add(keys, …)`, 1000 random keys a call, rows of 64 float32; every clock is {calls} calls of each, then a tick. Rows
read and rows added both count. *Inside* leaves the ticks out, *whole* has them in; *by processor time* is inside with
the seconds that the threads had a core: the same on a quiet machine. Median of the clocks.

*Shared*: an epoch of matrix factorisation by SGD, rank 64, written with Numba, by 2 threads, each with half of the
users. *Raw*: NumPy arrays, two threads and a barrier after each epoch. *Shared*: `x.array` of two tables with
placement="shared" under `st.tables.SSP(1)`, a tick after each epoch. Medians of epochs; raw and shared runs take turns.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

import stretto as st

from . import report, sets

ROWS, COLS, BATCH, CALLS, CLOCKS = 20_000, 64, 1000, 500, 12
RANK, EPOCHS, ROUNDS = 64, 6, 5


def keyed(sync: Any, workers: int) -> tuple[float, float, float]:
    """M rows/s inside clocks, with ticks, and inside by processor time."""
    draw = np.random.default_rng(0)
    keys = [[draw.permutation(ROWS)[:BATCH] for _ in range(50)] for _ in range(workers)]
    inside, busy = np.zeros((workers, CLOCKS)), np.zeros((workers, CLOCKS))
    ends = np.zeros((workers, CLOCKS + 1))

    def worker(w: Any) -> None:
        x, mine = w.table("x"), keys[w.number]
        out, deltas = np.empty((BATCH, COLS), "f4"), np.full((BATCH, COLS), 1e-3, "f4")
        for some in mine:
            x.read(some, out=out)
        w.tick()
        ends[w.number, 0] = time.perf_counter()
        for clock in range(CLOCKS):
            began, worked = time.perf_counter(), time.thread_time()
            for call in range(CALLS):
                some = mine[call % 50]
                x.read(some, out=out)
                x.add(some, deltas)
            inside[w.number, clock] = time.perf_counter() - began
            busy[w.number, clock] = time.thread_time() - worked
            w.tick()
            ends[w.number, clock + 1] = time.perf_counter()

    st.run(
        worker,
        workers=workers,
        tables={"x": st.tables.Table(rows=ROWS, cols=COLS)},
        sync=sync,
        runtime=st.Threads(workers),
    )
    rows = 2 * BATCH * CALLS * workers / 1e6
    whole = np.diff(ends.max(axis=0))
    seconds = (inside.max(axis=0), whole, busy.max(axis=0))
    first, second, third = (rows / statistics.median(found[2:]) for found in seconds)
    return first, second, third


@numba.njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
def epoch(users: Any, items: Any, ratings: Any, W: Any, H: Any, rate: float, penalty: float) -> None:
    """One pass of SGD; W [users, rank], H [items, rank]."""
    for n in range(len(ratings)):
        w, h = W[users[n]], H[items[n]]
        error = ratings[n]
        for k in range(w.shape[0]):
            error -= w[k] * h[k]
        for k in range(w.shape[0]):
            a, b = w[k], h[k]
            w[k] += rate * (error * b - penalty * a)
            h[k] += rate * (error * a - penalty * b)


def halves(data: st.Data) -> list[tuple[NDArray[Any], ...]]:
    """Each worker's ratings: those of half of the users."""
    order = np.argsort(data.rows, kind="stable")
    cut = int(np.searchsorted(data.rows[order], data.shape[0] // 2))
    parts = [order[:cut], order[cut:]]
    draw = np.random.default_rng(0)
    for part in parts:
        draw.shuffle(part)
    return [(data.rows[part], data.cols[part], data.values[part] - data.values.mean()) for part in parts]


def factors(data: st.Data) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where both ways begin."""
    draw = np.random.default_rng(1)
    return tuple(0.1 * draw.standard_normal((n, RANK), dtype=np.float32) for n in data.shape)  # type: ignore[return-value]


STEP = (np.float32(0.005), np.float32(0.05))


def raw(data: st.Data, shares: list[tuple[NDArray[Any], ...]]) -> list[float]:
    """Seconds of each epoch with plain arrays."""
    W, H = factors(data)
    barrier, ends = threading.Barrier(2), np.zeros((2, EPOCHS + 1))

    def work(number: int) -> None:
        barrier.wait()
        ends[number, 0] = time.perf_counter()
        for t in range(EPOCHS):
            epoch(*shares[number], W, H, *STEP)
            barrier.wait()
            ends[number, t + 1] = time.perf_counter()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.diff(ends.max(axis=0))[1:].tolist()  # type: ignore[no-any-return]


def shared(data: st.Data, shares: list[tuple[NDArray[Any], ...]]) -> list[float]:
    """Seconds of each epoch with shared tables."""
    W, H = factors(data)
    ends = np.zeros((2, EPOCHS + 1))

    def worker(w: Any) -> None:
        users, items = w.table("W").array, w.table("H").array
        w.tick()
        ends[w.number, 0] = time.perf_counter()
        for t in range(EPOCHS):
            epoch(*shares[w.number], users, items, *STEP)
            w.tick()
            ends[w.number, t + 1] = time.perf_counter()

    tables = {
        name: st.tables.Table(rows=len(array), cols=RANK, start=array, placement="shared")
        for name, array in (("W", W), ("H", H))
    }
    st.run(worker, workers=2, tables=tables, sync=st.tables.SSP(1), runtime=st.Threads(2))
    return np.diff(ends.max(axis=0))[1:].tolist()  # type: ignore[no-any-return]


def main() -> None:
    """Measure and save."""
    rows = []
    for sync in (st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()):
        for workers in (1, 2):
            found = [keyed(sync, workers) for _ in range(3)]
            rates = [f"{statistics.median(column):.1f}" for column in zip(*found, strict=True)]
            rows.append([repr(sync).split("(")[0], workers, *rates])
            print(*rows[-1], sep=" | ", flush=True)
    data = sets.generated(2_000_000, 20_000, 8_000)
    shares = halves(data)
    raw(data, shares)  # compiles
    times: dict[str, list[float]] = {"raw": [], "shared": []}
    for _ in range(ROUNDS):
        times["raw"] += raw(data, shares)
        times["shared"] += shared(data, shares)
    plain, tabled = (statistics.median(found) for found in times.values())
    body = "\n\n".join(
        [
            report.table(["rule", "workers", "inside, M rows/s", "whole, M rows/s", "by processor time"], rows),
            report.table(
                ["", "epoch, ms", "beside raw"],
                [
                    ["raw arrays", f"{plain * 1e3:.1f}", ""],
                    ["shared tables", f"{tabled * 1e3:.1f}", f"{tabled / plain - 1:+.1%}"],
                ],
            ),
        ]
    )
    about = report.text(__doc__).replace("{calls}", str(CALLS))
    report.save("tables", "Parameter tables on threads", about, body)
