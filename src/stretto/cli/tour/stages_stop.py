"""Stop 6: a task whose stages need different numbers of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import stretto as st

from .stop import Shown, bars

CORES, TURNS, STEPS = 16, 4, 60


def stages_stop(folder: Path) -> Shown:
    """Variance-reduced gradients at one width for all stages, and at the width that suits each."""
    plans = {"16 workers throughout": (CORES, CORES), "1 worker throughout": (1, 1), "16, then 1": (CORES, 1)}
    found = {name: _run(*widths) for name, widths in plans.items()}
    picture = bars(
        [
            (name, held, f"{held * 1e3:.0f} core-ms, done in {seconds * 1e3:.0f} ms")
            for name, (seconds, held, _) in found.items()
        ]
    )
    (wide, wide_held, one), (narrow, _, other), (mixed, mixed_held, third) = found.values()
    same = np.array_equal(one, other) and np.array_equal(other, third)
    says = (
        f"Each turn has a pass over all data, which {CORES} workers share, and {STEPS} small steps one after another, "
        "which only one can take. "
        f"One worker throughout takes {narrow / mixed:.1f} times as long. A job that keeps {CORES} cores throughout "
        f"leaves {CORES - 1} without work during the steps: {wide_held / mixed_held:.1f} times the core time. "
        "A task of two units has a width for each (virtual time, real results), and workers='auto' finds it by "
        "measuring. The weights are "
        + ("the same bits in all three." if same else "not the same in all three, which is a defect.")
    )
    facts = {"same_bits": same, "seconds_wide": wide, "seconds_narrow": narrow, "seconds_mixed": mixed}
    facts |= {"core_seconds_wide": wide_held, "core_seconds_mixed": mixed_held}
    return Shown("  cores × virtual time that were held\n\n" + picture, says, facts)


def _run(wide: int, narrow: int) -> tuple[float, float, Any]:
    """(virtual seconds, core seconds that were held, weights)."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(3200, 20))
    y, keys = X @ draw.normal(size=20), np.arange(20)
    w, start, mean = st.zeros(20, "f8"), st.zeros(20, "f8"), st.zeros(20, "f8")

    def full_gradient(worker: Any, X: Any, y: Any, w: Any, start: Any, mean: Any) -> None:
        if worker.part == 0:
            start.add(keys, w.read() - start.read())
        mean.add(keys, X.T @ (X @ w.read() - y) / 3200)
        worker.work(len(y))

    def steps(worker: Any, X: Any, y: Any, w: Any, start: Any, mean: Any) -> None:
        rows = worker.random().integers(len(y), size=10)
        A, x = X[rows], w.read()
        w.add(keys, -0.05 * (A.T @ (A @ (x - start.read())) / 10 + mean.read()))
        worker.work(10)

    task = st.loop(
        st.seq(
            st.unit(full_gradient, X, y, w, start, mean, fresh=[mean], parts=CORES, workers=wide),
            st.unit(steps, X, y, w, start, mean, parts=1, iterations=STEPS, workers=1),
        ),
        times=TURNS,
    )
    result = st.run(task, runtime=st.Simulated(nodes=1, threads=CORES, seconds_per_item=1e-5))
    held = sum(stage.seconds * max(stage.width, narrow if stage.unit == "steps" else 1) for stage in result.stages)
    return float(result.seconds), float(held), w.array.copy()
