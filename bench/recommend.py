"""The best 10 items of every user, seen items left out, on the same factors as the `implicit` library.

The flop rate counts 2·users·items·rank, and is set beside NumPy's matrix product (OpenBLAS) of the same factors on the
same number of threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import stretto as st

from . import report, sets

RANK, BEST, REPEATS = 64, 10, 5


def median(call: Callable[[], object]) -> float:
    """Median seconds of a call, the first one not counted."""
    call()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(name: str, model: st.MatrixFactorization, X: Any, threads: int) -> list[object]:
    """One line of the table."""
    from implicit.cpu.als import AlternatingLeastSquares

    users = np.arange(X.shape[0])
    # With many items a share of the users is enough to time.
    some = users[:: max(1, len(users) * X.shape[1] // 400_000_000)]
    W, H = model.user_factors_, model.item_factors_
    peer = AlternatingLeastSquares(factors=RANK, num_threads=threads)
    peer.user_factors, peer.item_factors = W, H
    model.set_params(n_jobs=threads)
    ours = median(lambda: model.recommend(some, BEST))
    few = some[:2000]
    with threadpool_limits(threads, "blas"):
        theirs = median(lambda: peer.recommend(some, X[some], N=BEST))
        product = median(lambda: W[few] @ H.T)
        others = peer.recommend(some, X[some], N=BEST)[0]
    found, _ = model.recommend(some, BEST)
    agree = np.mean([len(set(a) & set(b)) / BEST for a, b in zip(found, others, strict=True)])
    rate, gemm = (2 * n * X.shape[1] * RANK / t / 1e9 for n, t in ((len(some), ours), (len(few), product)))
    times = [f"{theirs:.3f}", f"{ours:.3f}", f"{theirs / ours:.1f}×"]
    return [name, threads, len(some), X.shape[1], *times, f"{rate:.0f}", f"{gemm:.0f}", f"{agree:.1%}"]


def main() -> None:
    """Measure every set at one and two threads."""
    rows = []
    for data in sets.rating_sets():
        model = st.MatrixFactorization(
            RANK, l2_regularization=data.reg, max_iter=3, random_state=0, biases=False, duplicates="keep"
        )
        model.fit(data.train)
        for threads in (1, 2):
            rows.append(measure(data.name, model, data.train.to_csr(), threads))
            print(rows[-1], flush=True)
    columns = ["set", "threads", "users", "items", "implicit, s", "Stretto, s", "faster", "Stretto, Gflop/s"]
    columns += ["matrix product alone, Gflop/s", "same items"]
    body = report.table(columns, rows)
    report.save("recommend", "Top 10 for every user", report.text(__doc__), body, ("implicit",))
