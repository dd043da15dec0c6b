"""Ordered, unordered and buffered loops: time for an epoch, and what an epoch achieves.

Matrix factorisation (rank 32, uniform data, so that blocks are equal) and LDA (collapsed Gibbs, generated corpus) over
a grid of N blocks of the space index, one for each worker, and M blocks of the time index. An ordered loop runs as a
wavefront of M + N − 1 steps where an unordered one needs M, so its time should be (M + N − 1) / M of the other's. For
that comparison both go through the records of a block in the same order (that of the indices, which an ordered loop
must keep); the last column is the unordered loop as the planner cuts and arranges it by itself. Times are medians of
the compiled passes, in turns. The objective is given for the same number of epochs; the ordered loop gives what the
serial loop gives, bit for bit. Buffered: every visit works on the state as of the start of its wave.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import stretto as st

from . import report

ROUNDS = 7
EPOCHS = 10


@st.parallel
def factorise(ratings: Any, W: Any, H: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


@st.parallel
def factorise_numbered(ratings: Any, W: Any, H: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), (_, r) in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


@st.parallel
def factorise_buffered(ratings: Any, W: Any, H: Any, Wb: Any, Hb: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        Wb[i] += lr * (e * H[j] - lam * W[i])
        Hb[j] += lr * (e * W[i] - lam * H[j])


def ratings(n: int, rows: int, cols: int, seed: int = 0) -> st.Data:
    """Uniform places, values of rank 8 with noise."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, rows, n), rng.integers(0, cols, n)
    A, B = rng.normal(size=(rows, 8)), rng.normal(size=(cols, 8))
    values = np.einsum("ij,ij->i", A[i], B[j]) / 4 + 0.3 * rng.normal(size=n)
    return st.Data.from_arrays(i, j, values, shape=(rows, cols))


def factors(data: st.Data) -> tuple[st.State, st.State]:
    return st.random((data.shape[0], 32), scale=0.1, seed=1), st.random((data.shape[1], 32), scale=0.1, seed=2)


def mf_times(data: st.Data, workers: int, blocks: int) -> tuple[float, float, float]:
    """Seconds for an epoch over workers × blocks, ordered and not, and as planned by default.

    The numbers of the records come along so that the unordered loop leaves them in the order in which they came.
    """
    in_order = data.take(np.lexsort((data.cols, data.rows))).numbered()
    same: dict[str, Any] = {"runtime": st.Threads(workers), "blocks": (workers, blocks), "cut": ("i", "j")}
    loops = [
        (factorise_numbered.using(ordered=True, **same), in_order),
        (factorise_numbered.using(**same), in_order),
        (factorise.using(runtime=st.Threads(workers)), data),
    ]
    seconds: list[list[float]] = [[], [], []]
    W, H = factors(data)
    for _ in range(ROUNDS + 1):
        for k, (loop, records) in enumerate(loops):
            loop(records, W, H, 0.001, 0.02, st.accumulator(0.0))
            seconds[k].append(loop.seconds)
    ordered, unordered, default = (statistics.median(found[1:]) for found in seconds)
    return ordered, unordered, default


def mf_losses(data: st.Data) -> list[list[object]]:
    """The mean squared error seen during each of some epochs, for each kind of loop."""
    rows: list[list[object]] = []
    for name in ("serial order", "unordered", "buffered"):
        W, H = factors(data)
        Wb, Hb = st.buffer(W), st.buffer(H)
        seen, seconds = [], []
        for _ in range(EPOCHS):
            loss = st.accumulator(0.0)
            if name == "buffered":
                factorise_buffered(data, W, H, Wb, Hb, 0.03, 0.02, loss)
                seconds.append(factorise_buffered.seconds)
            else:
                loop = _KINDS[name]
                loop(data, W, H, 0.03, 0.02, loss)
                seconds.append(loop.seconds)
            seen.append(float(loss) / len(data))
        took = f"{1e3 * statistics.median(seconds[1:]):.0f} ms"
        rows.append([name, *(f"{seen[k]:.4f}" for k in (0, 1, 3, 5, 9)), took])
    return rows


_KINDS = {"serial order": factorise.using(ordered=True), "unordered": factorise}


def main() -> None:
    """Measure both."""
    workers = min(report.cores(), 16)
    data = ratings(2_000_000 if workers < 8 else 8_000_000, 8_000, 8_000)
    rows: list[list[object]] = []
    for blocks in (workers, 2 * workers, 4 * workers, 8 * workers):
        ordered, unordered, default = mf_times(data, workers, blocks)
        expected = (blocks + workers - 1) / blocks
        ratio = ordered / unordered
        rows.append(["MF", workers, blocks, f"{1e3 * ordered:.1f}", f"{1e3 * unordered:.1f}", f"{ratio:.3f}",
                     f"{expected:.3f}", f"{ratio / expected - 1:+.1%}", f"{1e3 * default:.1f}"])  # fmt: skip
        print(*rows[-1], flush=True)
    rows += lda_times(workers)
    columns = ["loop", "workers N", "blocks M", "ordered ms", "unordered ms", "ratio", "(M + N − 1) / M", "off by",
               "as planned ms"]  # fmt: skip
    small = ratings(500_000, 4_000, 4_000)
    learned = report.table(["MF, mean squared error in epoch", "1", "2", "4", "6", "10", "epoch"], mf_losses(small))
    body = f"{report.table(columns, rows)}\n\n{learned}\n\n{lda_learned()}"
    report.save("orders", "Ordered, unordered, buffered", report.text(__doc__), body)


def lda_times(workers: int) -> list[list[object]]:
    from .orders_lda import times

    return times(workers)


def lda_learned() -> str:
    from .orders_lda import learned

    return learned()
