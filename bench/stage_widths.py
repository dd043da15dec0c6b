"""The time of an iteration of a stage against its width, for two batch sizes, on the cores of this machine; and the
automatic width beside the best and the mean of the fixed ones.

The stage is SGD for logistic regression on generated data (100,000 samples of 256 dense float32 features); an iteration
takes a batch, cut into 16 logical parts, so all widths compute the same bits. The sums of a part are one call of a
compiled function, which releases Python's lock. *Random* is the mean over the widths tried. Times are wall seconds of
1,000 iterations, transitions included, the median of three runs in turn; worker-seconds are the sum over stages of
seconds times workers.
"""

from __future__ import annotations

import statistics
from typing import Any

import numba
import numpy as np

import stretto as st

from . import report

SAMPLES, FEATURES, PARTS = 100_000, 256, 16
ITERATIONS, RUNS = 1_000, 3
EVERY = np.arange(FEATURES)


@numba.njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
def gradient(X: Any, y: Any, first: int, count: int, w: Any, out: Any) -> None:  # pragma: no cover (compiled)
    """Add the gradients of some samples of the logistic loss to out [features]."""
    for i in range(first, first + count):
        margin = np.float32(0.0)
        for j in range(len(w)):
            margin += X[i, j] * w[j]
        slope = -y[i] / (np.float32(1.0) + np.exp(y[i] * margin))
        for j in range(len(w)):
            out[j] += slope * X[i, j]


def step(worker: Any, X: Any, y: Any, w: Any, batch: int) -> None:
    """One step with a contiguous batch, of which the part has its share."""
    mine = batch // worker.parts
    first = worker.iteration * mine % max(1, len(y) - mine)
    total = np.zeros(FEATURES, np.float32)
    gradient(X, y, first, mine, w.read().reshape(-1), total)
    w.add(EVERY, -0.5 / batch * total)


def measure(batch: int, width: Any, X: Any, y: Any) -> tuple[float, float, int, bytes]:
    """Seconds, worker-seconds, the last width, and the bits."""
    w = st.zeros(FEATURES, "f4")
    unit = st.unit(step, X, y, w, batch, parts=PARTS, iterations=ITERATIONS, workers=width, batch=batch)
    result = st.run(unit, runtime=st.Threads(min(PARTS, report.cores())))
    return result.seconds, result.worker_seconds, result.stages[-1].width, w.array.tobytes()


def main() -> None:
    """Measure and save."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((SAMPLES, FEATURES), dtype=np.float32) / 16
    y = np.where(X @ draw.standard_normal(FEATURES) > 0, 1.0, -1.0).astype(np.float32)
    widths = [width for width in (1, 2, 4, 8, 12, 16) if width <= report.cores()]
    rows = []
    for batch in (160, 16_000, 64_000):
        measure(batch, 1, X, y)  # nothing is compiled in what follows
        found: dict[Any, list[tuple[float, float, int, bytes]]] = {}
        for _ in range(RUNS):
            for width in (*widths, "auto"):
                found.setdefault(width, []).append(measure(batch, width, X, y))
        seconds = {width: statistics.median(run[0] for run in runs) for width, runs in found.items()}
        busy = {width: statistics.median(run[1] for run in runs) for width, runs in found.items()}
        best = min(widths, key=lambda width: seconds[width])
        mean, mean_busy = (statistics.mean(of[width] for width in widths) for of in (seconds, busy))
        same = len({run[3] for runs in found.values() for run in runs}) == 1
        rows.append(
            [
                f"{batch:,}",
                *(f"{1e3 * seconds[width] / ITERATIONS:.2f}" for width in widths),
                best,
                f"{sorted(run[2] for run in found['auto'])[RUNS // 2]}",
                f"{seconds['auto'] / seconds[best] - 1:+.0%}",
                f"{1 - seconds['auto'] / mean:.0%}",
                f"{busy[best]:.2f}, {busy['auto']:.2f}, {mean_busy:.2f}",
                "yes" if same else "NO",
            ]
        )
        print(*rows[-1], flush=True)
    columns = ["batch", *(f"{width} workers, ms" for width in widths), "best width", "auto ends at",
               "auto over best", "auto under random", "worker-seconds: best, auto, random", "same bits"]  # fmt: skip
    report.save("stage_widths", "Widths of a stage", report.text(__doc__), report.table(columns, rows))


if __name__ == "__main__":
    main()
