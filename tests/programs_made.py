"""Small programs, and a small schedule that learns, for the tests of programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.programs.choosing import Situation
from stretto.programs.program import Program
from stretto.programs.values import ProgramResult
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.schedule.spec import Chooser, Floats, Ints, Schedule

RUNTIMES: tuple[Runtime, ...] = (Serial(), Threads(1), Threads(2), Threads(3), Threads(4))


class Lasso(Program):
    """½‖y − Xβ‖² + λ‖β‖₁ by coordinates drawn at random, `width` at a time."""

    def __init__(self, X: NDArray[Any], y: NDArray[Any], lam: float = 5.0, width: int = 6) -> None:
        self.data = X, (X * X).sum(axis=0)
        self.params = {"beta": np.zeros(X.shape[1]), "r": y.copy()}
        self.lam, self.width = lam, width

    def schedule(self, state: Situation) -> Any:
        return state.random.choice(len(state.params["beta"]), self.width, replace=False)

    def update(self, job: int, data: Any, params: Any) -> tuple[int, float]:
        X, squares = data
        z = X[:, job] @ params["r"] + squares[job] * params["beta"][job]
        return job, float(np.sign(z) * max(abs(z) - self.lam, 0.0) / squares[job] - params["beta"][job])

    def aggregate(self, results: list[tuple[int, float]], params: Any) -> NDArray[Any]:
        for job, step in results:
            params["beta"][job] += step
            params["r"] -= self.data[0][:, job] * step
        return np.array([step for _, step in results])

    def objective(self, data: Any, params: Any) -> float:
        return float(0.5 * params["r"] @ params["r"] + self.lam * np.abs(params["beta"]).sum())


def regression(n: int = 60, p: int = 40, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((n, p))
    return X, X[:, :4].sum(axis=1) + 0.1 * draw.standard_normal(n)


@dataclass(frozen=True)
class Greedy(Schedule):
    """Those that moved farthest last time; never tried counts as farthest. Nobody in flight is chosen again."""

    width: int

    def start(self, size: int, seed: int, data: Any = None) -> Chooser:
        return GreedyChooser(self.width, size)


class GreedyChooser(Chooser):
    def __init__(self, width: int, size: int) -> None:
        self.width = width
        self.size = size
        self.far: Floats = np.full(size, np.inf)
        self.log: list[tuple[str, list[Any]]] = []

    def choose(self) -> Ints:
        jobs = np.lexsort((np.arange(self.size), -self.far))[: self.width].astype(np.int64)
        self.far[jobs] = -1.0
        return jobs

    def learn(self, jobs: Ints, change: Floats) -> None:
        assert (self.far[jobs] == -1.0).all(), "only what was chosen, and once"
        assert change.shape == jobs.shape
        self.far[jobs] = np.abs(change)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"far": self.far}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self.far[:] = arrays["far"]


def bits(result: ProgramResult) -> bytes:
    """Everything learned and evaluated, bit for bit, times apart."""
    looks = np.array([(look.round, look.objective, look.updates, look.samples) for look in result.history])
    return b"".join([*(array.tobytes() for array in result.params.values()), looks.tobytes()])
