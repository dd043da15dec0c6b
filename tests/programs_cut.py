"""Programs whose data are cut into parts, with and without state, for tests on every runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import stretto as st
from programs_made import regression
from stretto.programs.program import Program

BLOCK = 3


class Cut(Program):
    """Gradient steps on least squares over rows in parts; a job is a block of coordinates."""

    schedule: Any = st.schedule.random(width=3)
    size = 8

    def __init__(self, parts: Any = 5, seed: int = 0) -> None:
        X, y = regression(50, BLOCK * self.size, seed)
        self.params = {"beta": np.zeros(BLOCK * self.size), "steps": np.zeros((), np.int64)}
        self.data, self.parts = (X, y), parts

    def update(self, job: int, part: Any, params: Any) -> Any:
        X, y = part
        where = np.zeros(self.size)
        where[job] = 1.0
        return where, X[:, BLOCK * job : BLOCK * (job + 1)].T @ (y - X @ params["beta"]), len(y)

    def aggregate(self, results: Any, params: Any) -> NDArray[Any]:
        for where, gradient, rows in results:
            job = int(where.argmax())
            params["beta"][BLOCK * job : BLOCK * (job + 1)] += 0.3 * gradient / rows
        params["steps"] += 1
        return np.array([np.abs(gradient).max() for _, gradient, _ in results])

    def objective(self, data: Any, params: Any) -> float:
        X, y = data
        return float(np.square(y - X @ params["beta"]).sum())


class Remembering(Cut):
    """Each part keeps a running mean of its gradients: what an update gives depends on those before it."""

    def local(self, part: Any) -> dict[str, Any]:
        return {"mean": np.zeros(BLOCK), "rounds": 0}

    def update(self, job: int, part: Any, params: Any, local: Any = None) -> Any:
        where, gradient, rows = super().update(job, part, params)
        local["mean"] = 0.7 * local["mean"] + 0.3 * gradient
        local["rounds"] += 1
        return where, gradient + 0.1 * local["mean"], rows


class Own(Cut):
    """A schedule of its own that remembers things."""

    def schedule(self, state: Any) -> Any:
        state.memory["seen"] = state.memory.get("seen", 0) + len(state.last.jobs if state.last else ())
        first = state.memory["seen"] + state.round
        return [first % self.size, (first + 3) % self.size, int(state.random.integers(self.size))]


class OwnRemembering(Own, Remembering):
    """Both."""
