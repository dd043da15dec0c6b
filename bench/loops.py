"""A user's loop beside the kernel written by hand, and beside the same body given to plain Numba.

The loop is the one of the README (Python floats for the step and the penalty, a Python accumulator); the hand-written
kernel is that of `MatrixFactorization` without biases. Same data, same order of visits, same profile, rank 64, round
after round in one process: million ratings per second, medians, and medians of the ratios of each round. `call` is what
a user's clock sees: the whole call of the function, with the binding of its arguments and the folding of the
accumulator; `pass` is the compiled pass alone, which is what is measured of the kernel. `plain Numba` is the body as
it stands under `numba.njit`, over the same records, one thread.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numba
import numpy as np

import stretto as st
from stretto.kernels.factorization.loss_codes import SQUARED
from stretto.kernels.factorization.sgd import sgd_worker
from stretto.kernels.numeric.lanes import unrolled
from stretto.runtime.blocks.step import make_step

from . import report
from .sets import rating_sets

RANK = 64
ROUNDS, FEW = 61, 21  # of small sets, of large ones
STEP, PENALTY = 0.01, 0.05


@st.parallel
def epoch(ratings: Any, W: Any, H: Any, lr: float, lam: float, loss: Any) -> None:
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def naive(rows: Any, cols: Any, values: Any, W: Any, H: Any, lr: float, lam: float) -> float:
    """The same body as plain Numba takes it."""
    loss = 0.0
    for t in range(len(values)):
        i, j, r = rows[t], cols[t], values[t]
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + lr * (e * H[j] - lam * W[i]), H[j] + lr * (e * W[i] - lam * H[j])
    return loss


def states(data: st.Data) -> tuple[st.State, st.State]:
    """Fresh factors."""
    return (
        st.random((data.shape[0], RANK), scale=0.1, seed=1),
        st.random((data.shape[1], RANK), scale=0.1, seed=2),
    )


def compare(data: st.Data, threads: int) -> tuple[float, float, float, float, float]:
    """Million ratings per second of the call, of its pass and of the hand-written kernel; then how much longer the pass
    and the call took than the kernel in the same round, the median of all rounds.
    """
    W, H = states(data)
    loop = epoch.using(runtime=st.Threads(threads))
    loop(data, W, H, STEP, PENALTY, st.accumulator(0.0))
    visits = loop.plan(data, W, H).parts[0].prepared.visits
    blocks, none, f4 = visits.arrays, np.zeros(0, np.float32), np.float32
    names = ("ptr", "index0", "index1", "field", "base0", "base1")
    ptr, u, i, r, row_base, col_base = (blocks[name, "r" if name == "field" else ""] for name in names)
    step = make_step(
        "hand", sgd_worker, visits.order, visits.weight, ptr, u, i, r, row_base, col_base, W.array, H.array, none, none,
        none, none, f4(STEP), f4(PENALTY), f4(0), f4(0), f4(0), SQUARED, f4(np.inf), unrolled(RANK),
    )  # fmt: skip
    calls, passes, hands = [], [], []
    with st.Threads(threads).open() as crew:
        for turn in range(ROUNDS if len(data) < 3_000_000 else FEW):
            for mine in (turn % 2 == 0, turn % 2 == 1):  # now one goes first, now the other
                if not mine:
                    hands.append(crew.run(step, "exact").seconds)
                    continue
                began = time.perf_counter()
                loop(data, W, H, STEP, PENALTY, st.accumulator(0.0))
                calls.append(time.perf_counter() - began)
                passes.append(loop.seconds)
    n = len(data) / 1e6
    speeds = [n / statistics.median(seconds) for seconds in (calls, passes, hands)]
    longer = [statistics.median(a / b for a, b in zip(seconds, hands, strict=True)) for seconds in (passes, calls)]
    return speeds[0], speeds[1], speeds[2], longer[0], longer[1]


def plain_numba(data: st.Data) -> float:
    """Ratings per second of the naive loop, over at most two million records in the plan's order."""
    W, H = states(data)
    some = data.take(np.arange(min(len(data), 2_000_000)))
    args = (some.rows, some.cols, some.values, W.array, H.array, STEP, PENALTY)
    naive(*args)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        naive(*args)
        seconds.append(time.perf_counter() - began)
    return len(some) / 1e6 / statistics.median(seconds)


def main() -> None:
    """Measure on every set."""
    rows = []
    for found in rating_sets():
        slow = plain_numba(found.train)
        for threads in (1, 2):
            call, compiled, hand, pass_ratio, call_ratio = compare(found.train, threads)
            beside = [f"{slow:.2f}", f"{call / slow:.0f}×"] if threads == 1 else ["", ""]
            speeds = [f"{speed:.1f}" for speed in (hand, compiled, call)]
            rows.append([found.name, threads, *speeds, f"{pass_ratio:.2f}", f"{call_ratio:.2f}", *beside])
            print(*rows[-1], flush=True)
    columns = ["set", "threads", "by hand", "loop: pass", "loop: call", "time pass / hand", "time call / hand",
               "plain Numba", "loop / plain Numba"]  # fmt: skip
    title = "A user's loop beside a kernel written by hand"
    report.save("loops", title, report.text(__doc__), report.table(columns, rows))
