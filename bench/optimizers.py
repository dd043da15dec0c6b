"""Plain SGD, AdaGrad by row and AdaRevision (here: AdaGrad by element) on MovieLens-1M, a tenth held out.

First table: defaults. Epochs and seconds to two test errors; the clock runs from the call of `fit` (it includes looking
at the data, planning and laying out the blocks) and comes from runs that measure nothing. Ratings per second are those
of the compiled passes alone. Second table: the error after the last epoch for learning rates from half of plain SGD's
default to ten times it; plain SGD and AdaGrad once with their falling schedule and once without one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st
from stretto.errors import Diverged
from stretto.models.mf_base import Problem
from stretto.models.mf_sgd import build_sgd
from stretto.observe.events import EpochDone, Event
from stretto.plan.plan import Physical
from stretto.runtime.runtimes import Threads

from . import report, sets

RANK, EPOCHS, ROUNDS = 64, 20, 5
TARGETS = (0.87, 0.85)
RATES = (0.02, 0.04, 0.08, 0.15, 0.25, 0.4)
OPTIMIZERS = ("sgd", "adagrad", "adarevision")


@dataclass(frozen=True)
class Curve:
    """Test RMSE after each epoch, and seconds from the call of fit to its end."""

    rmse: list[float]
    seconds: list[float]

    def to(self, target: float) -> str:
        """Seconds and epochs to a test RMSE."""
        reached = [k for k, value in enumerate(self.rmse) if value <= target]
        return f"{self.seconds[reached[0]]:.2f} s, {reached[0] + 1} epochs" if reached else "not reached"


def model(data: sets.RatingSet, **parameters: Any) -> st.MatrixFactorization:
    return st.MatrixFactorization(RANK, reg=data.reg, epochs=EPOCHS, random_state=0, duplicates="keep", **parameters)


def curve(data: sets.RatingSet, optimizer: str, threads: int) -> Curve:
    """Errors from one run, the clock from others."""
    fitted = model(data, optimizer=optimizer, n_jobs=threads).fit(data.train, validation=data.test)
    clocks = []
    for _ in range(ROUNDS):
        ends: list[float] = []

        def note(event: Event, ends: list[float] = ends) -> None:
            if isinstance(event, EpochDone):
                ends.append(time.perf_counter())

        began = time.perf_counter()
        model(data, optimizer=optimizer, n_jobs=threads).fit(data.train, session=st.Session(listeners=[note]))
        clocks.append([end - began for end in ends])
    rmse = [epoch["test_rmse"] for epoch in fitted.history_]
    return Curve(rmse, [min(clock[k] for clock in clocks) for k in range(EPOCHS)])


def speed(data: st.Data, optimizer: str, threads: int) -> float:
    """M ratings per second of the compiled passes, the fastest of several."""
    with Threads(threads).open() as crew:
        physical = Physical("threads", threads)
        problem = Problem(RANK, optimizer=optimizer)
        job = build_sgd(problem, data, crew, seed=0, profile="exact", width=16, physical=physical)
        laps = [crew.run(job.steps(epoch)[0], "exact").seconds for epoch in range(4 * ROUNDS)]
    return len(data) / min(laps) / 1e6


def last_error(data: sets.RatingSet, **parameters: Any) -> str:
    """Test RMSE after the last epoch."""
    try:
        return f"{-model(data, **parameters).fit(data.train).score(data.test):.4f}"
    except Diverged:
        return "diverged"


def main() -> None:
    """Measure MovieLens-1M at 1 and 2 threads."""
    if sets.real_data() is None:
        print("MovieLens-1M is not here: set STRETTO_DATA to the folder of the real sets")
        return
    data = next(iter(sets.rating_sets(big=False)))
    rows = []
    for optimizer in OPTIMIZERS:
        for threads in (1, 2):
            found = curve(data, optimizer, threads)
            reached = [found.to(target) for target in TARGETS]
            best = int(np.argmin(found.rmse))
            shown = [f"{found.rmse[best]:.4f} ({best + 1})", f"{found.rmse[-1]:.4f}"]
            rows.append([optimizer, threads, f"{speed(data.train, optimizer, threads):.1f}", *reached, *shown])
            print(rows[-1], flush=True)
    columns = ["optimizer", "threads", "M ratings/s", *(f"to {target}" for target in TARGETS)]
    times = report.table([*columns, "best RMSE (epoch)", "last RMSE"], rows)
    ways: list[dict[str, Any]] = [{"optimizer": name} for name in OPTIMIZERS]
    ways += [{"optimizer": name, "schedule": "constant"} for name in ("sgd", "adagrad")]
    ways += [{"optimizer": "adarevision", "schedule": "linear"}]
    errors = [
        [", ".join(way.values()), *(last_error(data, learning_rate=rate, **way) for rate in RATES)] for way in ways
    ]
    body = f"{times}\n\n{report.table(['test RMSE at learning rate', *map(str, RATES)], errors)}"
    settings = f"Rank {RANK}, reg {data.reg}, {EPOCHS} epochs, seed 0, profile `exact`, the fastest of {ROUNDS} runs."
    report.save("optimizers", "SGD, AdaGrad and AdaRevision", f"{report.text(__doc__)}\n{settings}", body)
