"""Stop 1: a serial loop, explained and run in parallel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from .stop import Shown

RANK, EPOCHS, RATE = 8, 5, 0.03
LINES = 8  # of the explanation


@st.parallel
def epoch(ratings, W, H, rate, loss):  # type: ignore[no-untyped-def]
    for (i, j), r in ratings:
        e = r - W[i] @ H[j]
        loss += e * e
        W[i], H[j] = W[i] + rate * e * H[j], H[j] + rate * e * W[i]


def loop_stop(folder: Path) -> Shown:
    """Explain the loop, run it as plain Python, serially and on two workers, and compare."""
    ratings = st.generate_ratings(20_000, 400, 300, rank=4, noise=0.3, seed=1).data
    W, H = _start(ratings)
    told = epoch.explain(ratings, W, H, RATE, st.accumulator(0.0)).splitlines()
    plain = _plain_seconds(ratings)
    serial, _, _ = _trained(ratings, st.Serial(), None)
    record = folder / "loop"
    threads, seconds, losses = _trained(ratings, st.Threads(2), record)
    same = all(np.array_equal(one, other) for one, other in zip(serial, threads, strict=True))
    faster = plain / seconds
    picture = [
        "  @st.parallel",
        "  def epoch(ratings, W, H, rate, loss):",
        "      for (i, j), r in ratings:",
        "          e = r - W[i] @ H[j]",
        "          loss += e * e",
        "          W[i], H[j] = W[i] + rate * e * H[j], H[j] + rate * e * W[i]",
        "",
        *(f"  {line}" for line in told[:LINES]),
        f"  … ({len(told) - LINES} more lines: epoch.explain(…))",
        "",
        "  squared error of an epoch: " + " → ".join(f"{one:,.0f}" for one in losses),
        f"  seconds of an epoch: plain Python about {plain:.2f}, compiled on 2 workers {seconds:.4f}",
    ]
    says = (
        "Each rating changes one row of W and one row of H. The subscripts show which ratings share a row, so blocks "
        "of ratings that share none run at the same time. The two workers end with "
        + ("the same bits as a serial run" if same else "other bits than a serial run, which is a defect")
        + f", and an epoch takes about 1/{faster:,.0f} of the time that plain Python takes."
    )
    facts = {"same_bits": same, "losses": losses, "seconds_python": plain, "seconds": seconds}
    return Shown("\n".join(picture), says, facts, record)


def _start(ratings: Any) -> tuple[Any, Any]:
    rows, cols = ratings.shape
    return st.random((rows, RANK), scale=0.3, seed=1), st.random((cols, RANK), scale=0.3, seed=2)


def _trained(ratings: Any, runtime: Any, record: Path | None) -> tuple[tuple[Any, Any], float, list[float]]:
    """(W and H, seconds of the fastest epoch, losses) of some epochs."""
    W, H = _start(ratings)
    there, seconds, losses = epoch.using(runtime=runtime), [], []
    loss = st.accumulator(0.0)
    run: Any = range(EPOCHS) if record is None else st.epochs(EPOCHS, record, {"W": W, "H": H, "loss": loss})
    for _ in run:
        loss.reset()
        began = time.perf_counter()
        there(ratings, W, H, RATE, loss)
        seconds.append(time.perf_counter() - began)
        losses.append(float(loss.get()))
        if record is not None:
            run.log(losses[-1])
    return (W.array.copy(), H.array.copy()), min(seconds), losses


def _plain_seconds(ratings: Any) -> float:
    """Seconds of an epoch as plain Python, from a twentieth of it."""
    (W, H), count = (state.array.copy() for state in _start(ratings)), len(ratings) // 20
    rows, cols, values = ratings.rows[:count].tolist(), ratings.cols[:count].tolist(), ratings.values[:count].tolist()
    began = time.perf_counter()
    for i, j, r in zip(rows, cols, values, strict=True):
        e = r - W[i] @ H[j]
        W[i], H[j] = W[i] + RATE * e * H[j], H[j] + RATE * e * W[i]
    return (time.perf_counter() - began) * len(ratings) / count
