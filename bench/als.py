"""Implicit-feedback ALS: seconds to the loss that the `implicit` library reaches in its default 15 iterations.

Both solve the same problem (confidence 1 + α·rating, rank 64, the same ridge) with three conjugate-gradient steps a
row, on MovieLens-1M or, without it, a generated set. The loss of both is computed by the same function from the final
factors.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

import stretto as st

from . import report, sets

RANK, ITERATIONS, ALPHA, REG, REPEATS = 64, 15, 1.0, 10.0, 3


def loss(X: sparse.csr_matrix, W: np.ndarray, H: np.ndarray) -> float:
    """Σ c (p − w·h)² over every pair, plus the ridge, in float64."""
    W, H = W.astype(np.float64), H.astype(np.float64)
    entries = X.tocoo()
    scores = np.einsum("nk,nk->n", W[entries.row], H[entries.col])
    seen = (1 + ALPHA * entries.data) * (1 - scores) ** 2 - scores**2
    everywhere = float(np.sum((W.T @ W) * (H.T @ H)))
    return float(seen.sum()) + everywhere + REG * float((W**2).sum() + (H**2).sum())


def theirs(X: sparse.csr_matrix, threads: int) -> tuple[float, float]:
    """(seconds, loss) of the implicit library."""
    from implicit.cpu.als import AlternatingLeastSquares

    times = []
    # The library takes the confidence itself where we take what it is made of.
    confidence = X.copy()
    confidence.data = 1 + ALPHA * X.data
    with threadpool_limits(1, "blas"):
        for _ in range(REPEATS):
            model = AlternatingLeastSquares(
                factors=RANK,
                regularization=REG,
                alpha=1.0,
                iterations=ITERATIONS,
                num_threads=threads,
                random_state=0,
            )
            began = time.perf_counter()
            model.fit(confidence, show_progress=False)
            times.append(time.perf_counter() - began)
    return statistics.median(times), loss(X, model.user_factors, model.item_factors)


def ours(X: sparse.csr_matrix, threads: int, target: float) -> tuple[float, float, int]:
    """(seconds, loss, epochs) to at most the target loss."""
    for epochs in range(1, 4 * ITERATIONS):
        model = st.MatrixFactorization(
            RANK, solver="als", implicit=True, alpha=ALPHA, reg=REG, epochs=epochs, linear_solver="cg", random_state=0
        ).set_params(n_jobs=threads, init_scale=0.1)
        model.fit(X)
        if loss(X, model.row_factors_, model.col_factors_) <= target:
            break
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - began)
    return statistics.median(times), loss(X, model.row_factors_, model.col_factors_), epochs


def main() -> None:
    """Measure at one and two threads."""
    data = next(iter(sets.rating_sets(big=False)), None)
    entries = sets.generated(1_000_000, 6_000, 4_000) if data is None else data.train
    X = entries.to_csr()
    rows = []
    for threads in (1, 2):
        seconds, target = theirs(X, threads)
        own, reached, epochs = ours(X, threads, target)
        rows.append(
            [
                threads,
                f"{target:.6g}",
                f"{seconds:.2f} ({ITERATIONS})",
                f"{own:.2f} ({epochs})",
                f"{reached:.6g}",
                f"{own / seconds:.2f}",
            ]
        )
        print(rows[-1], flush=True)
    columns = [
        "threads",
        "implicit's loss",
        "implicit, s (iterations)",
        "Stretto, s (epochs)",
        "Stretto's loss",
        "ratio",
    ]
    about = report.text(__doc__) + f"\n{entries.source.rsplit('/', 1)[-1]}, {len(entries):,} entries."
    report.save("als", "ALS beside implicit", about, report.table(columns, rows), ("implicit",))
