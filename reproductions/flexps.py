"""FlexPS's figures on simulated clusters: Figure 1 (the time of an iteration against width), Figure 5 and Table 2 (the
automatic width against the best and a random one), Figures 6 and 7 and Tables 3 and 4 (SVRG and SGD with growing
batches, flexible against fixed width), Figure 10 (local stages) and Figure 11 (one stage against ten).

The cluster is simulated: 20 nodes of 12 workers, links of 1 Gbit, 100 µs apart, with real arithmetic and virtual time;
an item (a sample of 100 non-zeros) takes 20 µs. The data are generated: 20,000 samples with 100 of 2,000 features each,
labels by a sparse model with noise; the model is a vector of float32, of which every part reads and changes all. The
width is the number of workers. In FlexPS each worker sends one update an iteration, so communication grows with the
width. Here parts are logical (96 unless a row says otherwise), each sends its own update, and every width computes the
same bits; what crosses the network is then the same for any number of nodes above one, spread over more links.

*Optimal* is the best of the widths tried, *random* the mean over them, *auto* `workers="auto"`. Times are virtual
seconds of the whole job, transitions included; worker-seconds are the sum over stages of seconds times workers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse

import stretto as st

from . import report

SAMPLES, FEATURES, NONZEROS = 20_000, 2_000, 100
NODES, THREADS, PARTS = 20, 12, 96
WIDTHS = (1, 3, 6, 12, 24, 48, 96)
ITEM = 20e-6


@cache
def data() -> tuple[Any, Any]:
    """A sparse classification problem."""
    draw = np.random.default_rng(8)
    columns = draw.integers(FEATURES, size=(SAMPLES, NONZEROS))
    values = draw.standard_normal((SAMPLES, NONZEROS)).astype(np.float32) / np.sqrt(NONZEROS)
    pointers = np.arange(0, SAMPLES * NONZEROS + 1, NONZEROS)
    X = scipy.sparse.csr_array((values.ravel(), columns.ravel(), pointers), shape=(SAMPLES, FEATURES))
    true = np.where(draw.random(FEATURES) < 0.1, draw.standard_normal(FEATURES) * 10, 0.0)
    y = np.where(X @ true + 0.5 * draw.standard_normal(SAMPLES) > 0, 1.0, -1.0).astype(np.float32)
    return X, y


def cluster() -> st.Simulated:
    """The simulated cluster."""
    return st.Simulated(nodes=NODES, threads=THREADS, link="1Gbit", latency="100us", seconds_per_item=ITEM)


def slope(X: Any, y: Any, w: Any) -> Any:
    """The sum of the gradients of the logistic loss."""
    margin = y * (X @ w)
    return X.T @ (-y / (1.0 + np.exp(np.minimum(margin, 50.0))))


def sgd(worker: Any, X: Any, y: Any, w: Any, batch: int, rate: float) -> None:
    """One step with a batch, of which the part has its share."""
    mine = max(1, batch // worker.parts)
    rows = worker.random().integers(len(y), size=mine)
    worker.work(mine)
    here = w.read()
    w.add(EVERY, (-rate / (mine * worker.parts) * slope(X[rows], y[rows], here)).astype(np.float32))


def full(worker: Any, X: Any, y: Any, w: Any, start: Any, mean: Any) -> None:
    """The full gradient, and where it was taken."""
    worker.work(len(y))
    here = w.read()
    if worker.part == 0:
        start.add(EVERY, here - start.read())
    mean.add(EVERY, (slope(X, y, here) / SAMPLES).astype(np.float32))


def svrg(worker: Any, X: Any, y: Any, w: Any, start: Any, mean: Any, batch: int, rate: float) -> None:
    """One variance-reduced step."""
    mine = max(1, batch // worker.parts)
    rows = worker.random().integers(len(y), size=mine)
    worker.work(2 * mine)
    A, b = X[rows], y[rows]
    change = (slope(A, b, w.read()) - slope(A, b, start.read())) / mine + mean.read()
    w.add(EVERY, (-rate / worker.parts * change).astype(np.float32))


def loss(worker: Any, X: Any, y: Any, w: Any) -> float:
    """The logistic loss."""
    return float(np.logaddexp(0.0, -y * (X @ w.read())).sum() / SAMPLES)


EVERY = np.arange(FEATURES)


def run_sgd(width: Any, batch: int, iterations: int, parts: int = PARTS) -> tuple[Any, bytes]:
    """SGD in one stage."""
    X, y = data()
    w = st.zeros(FEATURES, "f4")
    unit = st.unit(sgd, X, y, w, batch, 2.0, parts=parts, iterations=iterations, workers=width, batch=batch)
    return st.run(unit, runtime=cluster()), w.array.tobytes()


def figure_1() -> str:
    """The time of an iteration against the width, for two batch sizes."""
    rows = []
    for batch, logical in ((96, False), (9_600, False), (96, True), (9_600, True)):
        times = {}
        for width in WIDTHS:
            result, _ = run_sgd(width, batch, 3, PARTS if logical else width)
            times[width] = result.stages[0].seconds / 3
        best = min(times, key=lambda width: times[width])
        rows.append(
            [
                f"{batch:,}",
                PARTS if logical else "as many as workers",
                *(f"{1e3 * times[width]:.1f}" for width in WIDTHS),
                best,
            ]
        )
        print(*rows[-1], flush=True)
    return report.table(["batch", "parts", *(f"{width} workers, ms" for width in WIDTHS), "best width"], rows)


def figure_5() -> str:
    """The automatic width against the best and the mean of all."""
    rows = []
    for batch, iterations in ((96, 1_000), (9_600, 400)):
        fixed = {width: run_sgd(width, batch, iterations) for width in WIDTHS}
        auto, bits = run_sgd("auto", batch, iterations)
        best = min(fixed, key=lambda width: fixed[width][0].seconds)
        seconds = [fixed[best][0].seconds, auto.seconds, statistics.mean(r.seconds for r, _ in fixed.values())]
        busy = [
            fixed[best][0].worker_seconds,
            auto.worker_seconds,
            statistics.mean(r.worker_seconds for r, _ in fixed.values()),
        ]
        same = {found for _, found in fixed.values()} == {bits}
        rows.append(
            [
                f"{batch:,}",
                best,
                auto.stages[-1].width,
                *(f"{one:.2f}" for one in seconds),
                f"{seconds[1] / seconds[0] - 1:+.0%}",
                f"{1 - seconds[1] / seconds[2]:.0%}",
                *(f"{one:.1f}" for one in busy),
                "yes" if same else "NO",
            ]
        )
        print(*rows[-1], flush=True)
    columns = ["batch", "best width", "auto ends at", "optimal, s", "auto, s", "random, s", "auto over optimal",
               "auto under random", "optimal, worker-s", "auto, worker-s", "random, worker-s", "same bits"]  # fmt: skip
    return report.table(columns, rows)


def svrg_task(full_width: Any, step_width: Any, turns: int = 2, batch: int = 96, steps: int = 100) -> tuple[Any, Any]:
    """SVRG: a full gradient, then steps."""
    X, y = data()
    w, start, mean = (st.zeros(FEATURES, "f4") for _ in range(3))
    turn = st.seq(
        st.unit(full, X, y, w, start, mean, parts=PARTS, workers=full_width, fresh=[mean]),
        st.unit(svrg, X, y, w, start, mean, batch, 2.0, parts=PARTS, iterations=steps, workers=step_width, batch=batch),
    )
    return st.loop(turn, times=turns), w


def growing_task(widths: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """SGD in three phases with growing batches, the data seen once in each."""
    X, y = data()
    w = st.zeros(FEATURES, "f4")
    phases = [(192, 100), (1_920, 10), (9_600, 2)]
    units = [
        st.unit(
            sgd, X, y, w, batch, 2.0, parts=PARTS, iterations=count, workers=width, batch=batch, name=f"sgd {batch}"
        )
        for (batch, count), width in zip(phases, widths, strict=True)
    ]
    return st.seq(*units), w


def flexible() -> str:
    """Flexible against fixed width."""
    rows = []
    jobs: list[tuple[str, Callable[..., tuple[Any, Any]], int]] = [
        ("SVRG", lambda a, b, c: svrg_task(a, b), 2),
        ("SGD, growing batches", lambda a, b, c: growing_task((a, b, c)), 3),
    ]
    for title, make, wide in jobs:
        fixed = {}
        for width in WIDTHS:
            task, w = make(width, width, width)
            fixed[width] = st.run(task, runtime=cluster()), w.array.tobytes()
        best = min(fixed, key=lambda width: fixed[width][0].seconds)
        base, bits = fixed[best]
        by_unit: dict[str, dict[int, float]] = {}
        for width, (result, _) in fixed.items():
            for stage in result.stages:
                times = by_unit.setdefault(stage.unit, {})
                times[width] = times.get(width, 0.0) + stage.seconds + stage.transition
        chosen: list[Any] = [min(times, key=lambda width: times[width]) for times in by_unit.values()]
        chosen += [chosen[-1]] * (3 - len(chosen))
        for name, widths in (("opt", chosen), ("auto", ["auto"] * 3)):
            if title == "SVRG" and name == "auto":
                widths = [chosen[0], "auto", "auto"]  # one iteration is too short to be searched
            task, w = make(*widths)
            result = st.run(task, runtime=cluster())
            rows.append(
                [
                    f"{title}, {name}",
                    ", ".join(map(str, widths[:wide])),
                    f"{best} ({base.seconds:.2f} s)",
                    f"{result.seconds:.2f}",
                    f"{1 - result.seconds / base.seconds:.0%}",
                    f"{base.worker_seconds / result.worker_seconds:.1f}×",
                    "yes" if w.array.tobytes() == bits else "NO",
                ]
            )
            print(*rows[-1], flush=True)
    columns = ["job", "widths", "best fixed width", "seconds", "less time", "fewer worker-seconds", "same bits"]
    return report.table(columns, rows)


def figure_10() -> str:
    """A stage of 12 workers on one node, with the model there, against the model on all nodes."""
    rows = []
    for iterations in (10, 50, 100):
        local, bits = run_sgd(12, 96, iterations)
        X, y = data()
        w = st.zeros(FEATURES, "f4")
        place = dict.fromkeys(range(12), 1)  # the same number of workers, spread over twelve nodes
        unit = st.unit(sgd, X, y, w, 96, 2.0, parts=PARTS, iterations=iterations, placement=place)
        spread = st.run(unit, runtime=cluster())
        same = "yes" if w.array.tobytes() == bits else "NO"
        rows.append(
            [
                iterations,
                f"{local.seconds:.3f}",
                f"{spread.seconds:.3f}",
                f"{spread.seconds / local.seconds:.1f}×",
                same,
            ]
        )
        print(*rows[-1], flush=True)
    return report.table(["iterations", "on one node, s", "spread over 12, s", "ratio", "same bits"], rows)


def figure_11() -> str:
    """One stage of 100 iterations against ten of 10."""
    X, y = data()
    rows = []
    for name, sync in (("BSP", st.tables.BSP()), ("SSP(1)", st.tables.SSP(1)), ("ASP", st.tables.ASP())):
        seconds = []
        for stages, iterations in ((1, 50), (10, 5)):
            w = st.zeros(FEATURES, "f4")
            unit = st.unit(sgd, X, y, w, 960, 2.0, parts=PARTS, iterations=iterations, workers=PARTS, sync=sync)
            result = st.run(st.loop(unit, times=stages), runtime=cluster())
            seconds.append(result.seconds)
            between = [1e3 * stage.transition for stage in result.stages[1:]]
        rows.append(
            [
                name,
                *(f"{one:.3f}" for one in seconds),
                f"{seconds[1] / seconds[0] - 1:+.1%}",
                f"{statistics.median(between):.2f}",
            ]
        )
        print(*rows[-1], flush=True)
    return report.table(["rule", "one stage, s", "ten stages, s", "more time", "a transition, ms"], rows)


def main() -> None:
    """Measure and save."""
    parts = {
        "Figure 1: the time of an iteration against width": figure_1,
        "Figure 5 and Table 2: automatic width": figure_5,
        "Figures 6 and 7, Tables 3 and 4: flexible against fixed width": flexible,
        "Figure 10: local stages": figure_10,
        "Figure 11: one stage against ten": figure_11,
    }
    body = "\n\n".join(f"## {title}\n\n{measure()}" for title, measure in parts.items())
    report.save("flexps", "FlexPS on simulated clusters", report.text(__doc__), body)


if __name__ == "__main__":
    main()
