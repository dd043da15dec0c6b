"""Rotation against data-parallel BSP for matrix factorisation with the step size that is best serially: Figures 6d, 6f.

BSP: ratings are dealt out to the workers at random. In a round each goes through some of its own, one after the other,
from the same factors as all others, and how far each moved them is added up: all of its share, so that there is one
barrier an epoch, or a batch of 1 000. Rotation: `st.schedule.rotation`, each logical worker with a block of users,
blocks of items going round. All call the same compiled step and see every rating once in an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from bench import sets
from numpy.typing import NDArray

import stretto as st
from stretto.errors import Diverged
from stretto.programs.program import Program
from stretto.programs.run import run
from stretto.schedule.turns import Turn

from . import report
from .smpframe_runs import figure

Floats = NDArray[np.float64]
Part = tuple[Any, Any, Any]  # users, items, ratings
WORKERS = (1, 4, 16, 32, 64)
EPOCHS, RANK, REG = 20, 20, 0.05
BATCH = 1_000
MARKS = (1, 5, 10, EPOCHS)
STEPS = (0.01, 0.02, 0.03, 0.05)


@numba.njit(nogil=True, cache=False)  # type: ignore[untyped-decorator]
def descend(users: Any, items: Any, ratings: Any, W: Any, H: Any, step: float) -> None:
    """SGD over ratings, one after the other."""
    for t in range(len(ratings)):
        w, h = W[users[t]], H[items[t]]
        e = ratings[t]
        for k in range(w.shape[0]):
            e -= w[k] * h[k]
        for k in range(w.shape[0]):
            w[k], h[k] = w[k] + step * (e * h[k] - REG * w[k]), h[k] + step * (e * w[k] - REG * h[k])


def rmse(part: Part, W: Floats, H: Floats) -> float:
    """Root mean square error on the ratings that are learned from."""
    users, items, ratings = part
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.mean((ratings - np.einsum("ij,ij->i", W[users], H[items])) ** 2)))


def start(shape: tuple[int, int]) -> dict[str, Floats]:
    """Small random factors."""
    rng = np.random.default_rng(0)
    return {"W": 0.1 * rng.standard_normal((shape[0], RANK)), "H": 0.1 * rng.standard_normal((shape[1], RANK))}


class Bsp(Program):
    """A round: every worker goes through its next batch from the same factors, and the moves are added up."""

    def __init__(self, all_: Part, shape: tuple[int, int], workers: int, step: float, batch: int | None = None) -> None:
        self.step, self.all = step, all_
        dealt = np.random.default_rng(1).permutation(len(all_[0]))
        batches = np.array_split(dealt, workers if batch is None else math.ceil(len(dealt) / batch))
        self.data = [self._own(all_, own) for own in batches]
        self.params = start(shape)
        self.schedule, self.size = st.schedule.cyclic(workers), len(batches)
        self.rounds = math.ceil(len(batches) / workers)  # of an epoch

    @staticmethod
    def _own(all_: Part, own: Any) -> tuple[Any, ...]:
        """The users and items of a batch, and its ratings with the places of these among them."""
        users, user = np.unique(all_[0][own], return_inverse=True)
        items, item = np.unique(all_[1][own], return_inverse=True)
        return users, items, user, item, all_[2][own]

    def update(self, job: int, data: Any, params: Any) -> Any:
        users, items, *batch = data[job]
        W, H = params["W"][users], params["H"][items]
        descend(*batch, W, H, self.step)
        return users, W - params["W"][users], items, H - params["H"][items]

    def aggregate(self, results: Any, params: Any) -> None:
        for users, dW, items, dH in results:
            params["W"][users] += dW
            params["H"][items] += dH

    def objective(self, data: Any, params: Any) -> float:
        return rmse(self.all, params["W"], params["H"])


class Rotated(Program):
    """A round: a full rotation."""

    def __init__(self, all_: Part, shape: tuple[int, int], workers: int, step: float) -> None:
        self.step, self.all = step, all_
        # Users and items in a random order, cut into equal ranges: factors in blocks of their own.
        rng = np.random.default_rng(2)
        self.order = [rng.permutation(n) for n in shape]
        self.bounds = [np.linspace(0, n, workers + 1).astype(int) for n in shape]
        place = [np.argsort(order)[column] for order, column in zip(self.order, all_[:2], strict=True)]
        at = [np.searchsorted(bound, p, "right") - 1 for bound, p in zip(self.bounds, place, strict=True)]
        shuffled = rng.permutation(len(all_[0]))
        groups = shuffled[np.argsort((at[0] * workers + at[1])[shuffled], kind="stable")]
        weight = np.bincount(at[0] * workers + at[1], minlength=workers * workers)
        self.data = {
            divmod(k, workers): (
                place[0][own] - self.bounds[0][k // workers], place[1][own] - self.bounds[1][k % workers], all_[2][own]
            )
            for k, own in enumerate(np.split(groups, np.cumsum(weight)[:-1]))
        }  # fmt: skip
        first = start(shape)
        self.params = {name: array[order] for (name, array), order in zip(first.items(), self.order, strict=True)}
        self.place = place
        self.rounds = 1  # of an epoch
        self.schedule = st.schedule.rotation(workers, weight=weight.reshape(workers, workers))

    def ranges(self, job: Turn) -> tuple[slice, slice]:
        (w, b), (rows, cols) = (job.worker, job.block), self.bounds
        return slice(rows[w], rows[w + 1]), slice(cols[b], cols[b + 1])

    def update(self, job: Turn, data: Any, params: Any) -> Any:
        rows, cols = self.ranges(job)
        W, H = params["W"][rows].copy(), params["H"][cols].copy()
        descend(*data[job], W, H, self.step)
        return rows, cols, W, H

    def aggregate(self, results: Any, params: Any) -> None:
        for rows, cols, W, H in results:
            params["W"][rows] = W
            params["H"][cols] = H

    def objective(self, data: Any, params: Any) -> float:
        return rmse((*self.place, self.all[2]), params["W"], params["H"])


def epochs(program: Bsp | Rotated) -> list[float]:
    """RMSE after each epoch; ends where it is no number or far above the start."""
    first: list[float] = []

    def until(look: Any) -> bool:
        first.append(look.objective)
        return not look.objective < 10 * first[0]

    with np.errstate(over="ignore", invalid="ignore"):
        try:
            history = run(program, rounds=EPOCHS * program.rounds, every=program.rounds, until=until).history
        except Diverged:
            return [*first, math.inf]
    return [look.objective for look in history]


def ratings() -> tuple[str, Part, tuple[int, int]]:
    """MovieLens-1M, or generated ratings where it is not present, minus their mean."""
    folder = sets.real_data()
    name = "MovieLens-1M" if folder is not None else "generated 1M"
    data = (
        sets.generated(1_000_000, 6_000, 4_000)
        if folder is None
        else st.read(folder / "movielens-1m/ratings.tsv.xz", duplicates="last")
    )
    values = np.asarray(data.values, np.float64)
    return name, (np.asarray(data.rows, np.int64), np.asarray(data.cols, np.int64), values - values.mean()), data.shape


def _mark(curve: list[float], epoch: int) -> str:
    return f"{curve[epoch]:.4f}" if len(curve) > epoch and curve[epoch] < 10 else "diverged"


def _lost(curves: dict[int, list[float]]) -> list[int]:
    """The numbers of workers that ended no better than they began."""
    return [workers for workers, curve in curves.items() if len(curve) <= EPOCHS or not curve[EPOCHS] < curve[0]]


def fig6() -> tuple[str, str]:
    """RMSE on the ratings learned from, by epoch, at 1 to 64 workers."""
    name, part, shape = ratings()
    serial = {step: epochs(Bsp(part, shape, 1, step))[-1] for step in STEPS}
    step = min(serial, key=lambda one: serial[one])
    ways: dict[str, Callable[[int], Bsp | Rotated]] = {
        "BSP, a barrier an epoch": lambda workers: Bsp(part, shape, workers, step),
        f"BSP, a barrier every {BATCH:,} ratings of a worker": lambda workers: Bsp(part, shape, workers, step, BATCH),
        "rotation": lambda workers: Rotated(part, shape, workers, step),
    }
    curves = {way: {workers: epochs(make(workers)) for workers in WORKERS} for way, make in ways.items()}
    rows = [
        [way, workers, *(_mark(curve, at) for at in MARKS)] for way in ways for workers, curve in curves[way].items()
    ]

    def draw(way: str) -> Any:
        def lines(axes: Any) -> None:
            for workers, curve in curves[way].items():
                shown = [value for value in curve if value < 5]
                axes.plot(range(len(shown)), shown, label=f"{workers} workers")
            axes.set_ylim(0.5, 2.5)

        return lines

    figure(
        "smpframe-fig6.png",
        [(way[0].upper() + way[1:], "epoch", "RMSE on the ratings learned from", draw(way)) for way in ways],
    )
    found = []
    for way in ways:
        lost = _lost(curves[way])
        ends = [curve[EPOCHS] for workers, curve in curves[way].items() if workers not in lost]
        failed = f"fails at {', '.join(map(str, lost))} workers" if lost else "never fails"
        found.append(f"{way}: {failed}, else RMSE {min(ends):.4f}–{max(ends):.4f} after {EPOCHS} epochs")
    scanned = ", ".join(f"{one:g}: {end:.4f}" for one, end in serial.items())
    body = f"{name}, rank {RANK}, step {step:g} (serial RMSE after {EPOCHS} epochs by step: {scanned}).\n\n"
    columns = ["way", "workers", *(f"RMSE after {at}" for at in MARKS)]
    return "; ".join(found), body + report.table(columns, rows)
