"""Implicit-feedback ALS: seconds to the ranking that the `implicit` library reaches in its default 15 iterations.

Both have rank 64, confidence 1 + rating and three conjugate-gradient steps a row, on MovieLens-1M or, without it, a
generated set, with a tenth of the entries held out. Their penalties differ: one for each row there (10), one for each
entry, times its confidence, here (the default, 0.05). NDCG@10 of both is computed by the same function from the final
factors.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import stretto as st
from stretto.solvers.factorization.ndcg import PLACES, Ranking, ndcg

from . import report, sets

RANK, ITERATIONS, REG, REPEATS = 64, 15, 10.0, 3


def ranked(W: Any, H: Any, ranking: Ranking) -> float:
    """NDCG@10 of factors, by NumPy."""
    found = np.empty((len(ranking), PLACES), np.int32)
    for k, row in enumerate(ranking.rows):
        scores = H @ W[row]
        scores[ranking.left_out.indices[ranking.left_out.indptr[k] : ranking.left_out.indptr[k + 1]]] = -np.inf
        best = np.argpartition(-scores, PLACES)[:PLACES]
        found[k] = best[np.argsort(-scores[best])]
    return ndcg(found, ranking.relevant)


def theirs(train: st.Data, ranking: Ranking, threads: int) -> tuple[float, float]:
    """(seconds, NDCG@10) of the implicit library."""
    from implicit.cpu.als import AlternatingLeastSquares

    times = []
    # The library takes the confidence itself where we take what it is made of.
    confidence = train.to_csr()
    confidence.data = 1 + confidence.data
    how: dict[str, Any] = {"factors": RANK, "regularization": REG, "alpha": 1.0, "iterations": ITERATIONS}
    with threadpool_limits(1, "blas"):
        for _ in range(REPEATS):
            model = AlternatingLeastSquares(**how, num_threads=threads, random_state=0)
            began = time.perf_counter()
            model.fit(confidence, show_progress=False)
            times.append(time.perf_counter() - began)
    return statistics.median(times), ranked(model.user_factors, model.item_factors, ranking)


def ours(train: st.Data, ranking: Ranking, threads: int, target: float) -> tuple[float, float, int]:
    """(seconds, NDCG@10, epochs) to at least the target."""
    X, alpha = train.to_csr(), float(train.values.mean())  # a value of 1 adds 1 to the confidence
    for epochs in range(1, 4 * ITERATIONS):
        model = st.MatrixFactorization(
            RANK, solver="als", implicit=True, alpha=alpha, max_iter=epochs, linear_solver="cg", random_state=0
        ).set_params(n_jobs=threads, init_scale=0.1)
        model.fit(X)
        if ranked(model.user_factors_, model.item_factors_, ranking) >= target:
            break
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - began)
    return statistics.median(times), ranked(model.user_factors_, model.item_factors_, ranking), epochs


def main() -> None:
    """Measure at one and two threads."""
    one = next(iter(sets.rating_sets(big=False)), None)
    train, test = sets.generated(1_000_000, 6_000, 4_000).split(0.1) if one is None else (one.train, one.test)
    seen = st.MatrixFactorization(2, max_iter=1).fit(train).seen()
    ranking = Ranking.of(test, seen, train.shape[1])
    rows = []
    for threads in (1, 2):
        seconds, target = theirs(train, ranking, threads)
        own, reached, epochs = ours(train, ranking, threads, target)
        took = [f"{seconds:.2f} ({ITERATIONS})", f"{own:.2f} ({epochs})"]
        rows.append([threads, f"{target:.4f}", *took, f"{reached:.4f}", f"{own / seconds:.2f}"])
        print(rows[-1], flush=True)
    columns = ["threads", "implicit's NDCG@10", "implicit, s (iterations)", "Stretto, s (epochs)"]
    columns += ["Stretto's NDCG@10", "ratio"]
    about = report.text(__doc__) + f"\n{train.source.rsplit('/', 1)[-1]}, {len(train):,} entries."
    report.save("als", "ALS beside implicit", about, report.table(columns, rows), ("implicit",))
