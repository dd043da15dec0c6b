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
from stretto.models.factorization.build import build_in_memory
from stretto.observe.events import EpochDone, Event
from stretto.plan.plan import Physical
from stretto.runtime.runtimes import Threads
from stretto.solvers.factorization.problem import FactorizationProblem

from . import report, sets

RANK, EPOCHS, ROUNDS, LAPS = 64, 20, 7, 6
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
    return st.MatrixFactorization(
        RANK, l2_regularization=data.reg, max_iter=EPOCHS, random_state=0, duplicates="keep", **parameters
    )


def errors(data: sets.RatingSet, optimizer: str) -> list[float]:
    """Test RMSE after each epoch; the same at any number of threads."""
    fitted = model(data, optimizer=optimizer).fit(data.train, validation=data.test)
    return [epoch["test_rmse"] for epoch in fitted.history_]


def clock(data: sets.RatingSet, optimizer: str, threads: int) -> list[float]:
    """Seconds from the call of fit to the end of each epoch."""
    ends: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochDone):
            ends.append(time.perf_counter())

    began = time.perf_counter()
    model(data, optimizer=optimizer, n_jobs=threads).fit(data.train, session=st.Session(listeners=[note]))
    return [end - began for end in ends]


def lap(data: st.Data, optimizer: str, threads: int) -> float:
    """Seconds of the fastest of a few compiled passes."""
    with Threads(threads).open() as crew:
        physical = Physical("threads", threads)
        problem = FactorizationProblem(RANK, optimizer=optimizer)
        job = build_in_memory(problem, data, crew, seed=0, profile="exact", width=16, physical=physical)
        return min(crew.run(job.steps(epoch)[0], "exact").seconds for epoch in range(LAPS))


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
    rmse = {optimizer: errors(data, optimizer) for optimizer in OPTIMIZERS}
    ways = [(optimizer, threads) for optimizer in OPTIMIZERS for threads in (1, 2)]
    clocks: dict[tuple[str, int], list[list[float]]] = {way: [] for way in ways}
    laps: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):  # in turns: what else the machine does meets all of them
        for way in ways:
            clocks[way].append(clock(data, *way))
            laps[way].append(lap(data.train, *way))
    rows = []
    for optimizer, threads in ways:
        way = optimizer, threads
        found = Curve(rmse[optimizer], [min(ends) for ends in zip(*clocks[way], strict=True)])
        best = int(np.argmin(found.rmse))
        shown = [f"{found.rmse[best]:.4f} ({best + 1})", f"{found.rmse[-1]:.4f}"]
        speed = f"{len(data.train) / min(laps[way]) / 1e6:.1f}"
        rows.append([optimizer, threads, speed, *(found.to(target) for target in TARGETS), *shown])
    columns = ["optimizer", "threads", "M ratings/s", *(f"to {target}" for target in TARGETS)]
    times = report.table([*columns, "best RMSE (epoch)", "last RMSE"], rows)
    chosen: list[dict[str, Any]] = [{"optimizer": name} for name in OPTIMIZERS]
    chosen += [{"optimizer": name, "schedule": "constant"} for name in ("sgd", "adagrad")]
    chosen += [{"optimizer": "adarevision", "schedule": "linear"}]
    last = [
        [", ".join(how.values()), *(last_error(data, learning_rate=rate, **how) for rate in RATES)] for how in chosen
    ]
    body = f"{times}\n\n{report.table(['test RMSE at learning rate', *map(str, RATES)], last)}"
    settings = (
        f"Rank {RANK}, reg {data.reg}, {EPOCHS} epochs, seed 0, profile `exact`, the fastest of {ROUNDS} runs in turns."
    )
    report.save("optimizers", "SGD, AdaGrad and AdaRevision", f"{report.text(__doc__)}\n{settings}", body)
