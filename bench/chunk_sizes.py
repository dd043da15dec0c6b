"""Sizes of chunks: how many locks a table has in mode="locked", and how many bytes of a state move together.

**Locks.** Two threads read and add to rows of 100,000 (16 numbers each), 1,000 rows a call, 2,000 times each, at random
and in runs of 50 neighbours. Few locks make threads wait for each other; many cost more to take. Seconds, medians of
five.

**Bytes.** A process takes chunks of a state of 8 MB from another on demand, for 300 random rows of a tenth of it; and
all of it at once. Larger chunks need fewer messages and move rows that are not used. Milliseconds, medians of five.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import numpy as np

import stretto as st
from stretto.runtime.tables.array_locks import RowAccess
from stretto.store.local import grid

from . import report

LOCKS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
CHUNKS = (12, 14, 16, 18, 20, 22)  # log2 of the bytes
ROWS, COLS, TIMES = 100_000, 16, 5


def locked(locks: int, run: int) -> float:
    """Seconds of two threads over one array. run: neighbouring rows that are used together."""
    array = np.zeros((ROWS, COLS), np.float32)
    access = RowAccess(ROWS, locks)

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        firsts = draw.integers(ROWS - run, size=(100, 1000 // run, 1))
        rows = (firsts + np.arange(run)).reshape(100, -1)
        seen = np.empty((rows.shape[1], COLS), np.float32)
        for turn in range(2000):
            access.read(array, rows[turn % 100], seen)
            access.add(array, rows[turn % 100], seen)

    work(0)  # compiles
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def sparse(worker: Any, w: Any) -> None:
    """Uses some rows of the first tenth."""
    rows = np.unique(worker.random().integers(100_000, size=300))
    w.add(rows, w.read(rows) + 1.0)


def prepared(bits: int, how: str) -> tuple[float, int]:
    """Seconds and bytes of a stage that takes a state from another node."""
    before, grid.CHUNK_BYTES = grid.CHUNK_BYTES, 1 << bits
    try:
        seconds, nbytes = [], 0
        for _ in range(TIMES):
            w, warm = st.zeros(1_000_000, "f8"), st.zeros(1_000_000, "f8")
            task = st.seq(
                *(st.unit(sparse, x, placement={0: 1}, preparation="whole") for x in (warm, w)),
                *(st.unit(sparse, x, placement={1: 1}, preparation=how) for x in (warm, w)),
            )
            stage = st.run(task, runtime=st.Cluster("processes", nodes=2)).stages[3]
            seconds.append(stage.seconds + stage.transition)
            nbytes = stage.moved
        return statistics.median(seconds), nbytes
    finally:
        grid.CHUNK_BYTES = before


def main() -> None:
    """Measure and save."""
    rows: list[list[object]] = []
    for chunks in (0, *LOCKS):
        took = [statistics.median(locked(chunks, run) for _ in range(TIMES)) for run in (1, 50)]
        rows.append([chunks or "none", *(f"{seconds:.3f}" for seconds in took)])
    body = f"## Locks\n\n{report.table(['locks', 'at random, s', 'in runs, s'], rows)}\n"
    rows = []
    for bits in CHUNKS:
        demand, some = prepared(bits, "on-demand")
        whole, every = prepared(bits, "whole")
        size = f"{1 << bits >> 10} KiB"
        rows.append([size, f"{1e3 * demand:.1f}", f"{some / 1e6:.2f}", f"{1e3 * whole:.1f}", f"{every / 1e6:.2f}"])
    columns = ["chunk", "on demand, ms", "on demand, MB", "whole, ms", "whole, MB"]
    body += f"\n## Bytes\n\n{report.table(columns, rows)}\n"
    report.save("chunk_sizes", "Sizes of chunks", report.text(__doc__), body)


if __name__ == "__main__":
    main()
