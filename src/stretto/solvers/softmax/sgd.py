"""Softmax regression by SGD, AdaGrad or AdaRevision over weights in shared memory.

Sixteen logical workers take a mini-batch each, all at the same weights. Their gradients are applied one after another
(`kernels/linear/softmax_sgd.py`). Threads only divide the work, so the bits depend on the seed and not on the number of
threads. An epoch ends with a pass over all samples, which gives the objective and the duality gap.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged
from stretto.kernels.linear import softmax_sgd as kernels
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.epoch_widths import EpochWidths
from stretto.solvers.linear.fit_saving import FitSaving

from .passes import Passes
from .point import SoftmaxPoint, SoftmaxProblem
from .solver import SoftmaxFit

Floats = NDArray[np.float64]

OPTIMIZERS = tuple(kernels.CODES)
WORKERS = 16
_BATCH = 32
_SHARDS = 16
_ARRAYS = "W", "square", "past", "seen", "most", "due"
_FIRST = 1e-6  # of squared gradients: AdaGrad's initial sum


def solve_sgd(
    problem: SoftmaxProblem,
    crew: Crew,
    *,
    optimizer: str,
    learning_rate: float | None,
    gap: float,
    epochs: int,
    profile: str = "exact",
    seed: int = 0,
    start: Floats | None = None,
    look: Callable[[dict[str, Any]], bool] | None = None,
    saved: FitSaving | None = None,
    widths: EpochWidths | None = None,
) -> SoftmaxFit:
    """Run epochs until the duality gap is `gap`, at most `epochs`; return the best weights at the end of an epoch.

    saved : saves the state between epochs, and provides that of a fit to resume
    widths : sets the number of threads of each epoch
    """
    passes = Passes(problem.rows, problem.y, problem.weight, problem.classes, crew, profile)
    point = SoftmaxPoint(problem, passes)
    if start is not None:
        point.start(start)
    walk = _SgdState(problem, passes, optimizer, learning_rate, point.W)
    draw = np.random.default_rng(seed)
    best, least, done = point.W, point.plain, 0
    saved = saved or FitSaving()
    if (found := saved.take("sgd")) is not None:
        walk.restore(found)
        best, (least, dual), done = np.array(found["best"]), found["numbers"].tolist(), int(found["done"][0])
        for _ in range(done):
            draw.permutation(len(problem.y))
        point.start(walk.W.astype(np.float64), dual=dual)

    def now() -> dict[str, NDArray[Any]]:
        return {**walk.state(), "best": best, "numbers": np.array([least, point.dual]), "done": np.array([done])}

    with saved.level("sgd", now):
        for epoch in range(done, epochs):
            if widths is not None:
                widths.begin(epoch)
            began = time.perf_counter()
            walk.epoch(draw.permutation(len(problem.y)), epoch)
            if widths is not None:
                widths.end(time.perf_counter() - began)
            if not np.all(np.isfinite(walk.W)):
                raise Diverged(
                    f"weights became infinite in epoch {epoch + 1}; take a learning_rate below {walk.step:.3g}, "
                    "standardize=True, or solver='auto'"
                )
            done = epoch + 1
            point.start(walk.W.astype(np.float64))
            if point.plain < least:
                best, least = point.W, point.plain
            state = {"round": done, "objective": point.plain, "gap": point.gap, "W": point.W, "phase": "sgd"}
            if look is not None and look(state):
                break
            if point.gap <= gap or crew.asked:
                break
            if saved.ended is not None and done < epochs:
                saved.ended()
    if least < point.plain:
        point.start(best)
    return SoftmaxFit(point.W, point.gap, point.plain, done, 2 * done, point.gap <= gap)


class _SgdState:
    """The weights and the optimiser's state."""

    def __init__(
        self, problem: SoftmaxProblem, passes: Passes, optimizer: str, learning_rate: float | None, W: Floats
    ) -> None:
        self.problem, self.passes, self.kind = problem, passes, kernels.CODES[optimizer]
        n, p = problem.rows.shape
        shape = passes.shape
        self.W = W.astype(np.float32)
        self.mass = float(problem.weight.sum())
        grown = self.kind != kernels.SGD
        self.square = np.full(shape, _FIRST if grown else 1.0, np.float32)
        revised = shape if self.kind == kernels.ADAREVISION else (1, 1)
        self.past, self.seen = np.zeros(revised, np.float32), np.zeros(revised, np.float32)
        self.most = np.full(revised, _FIRST, np.float32)
        self.due = np.zeros(p + 1, np.int64)
        self.update = 0
        self.l1, self.ridge = problem.l1 / self.mass, problem.ridge / self.mass
        self.step = self._first_step() if learning_rate is None else float(learning_rate)
        self.batch = max(1, min(_BATCH, n // WORKERS))
        if problem.rows.sparse:
            longest = int(np.max(np.diff(problem.rows.parts[0]), initial=0))
            room = min(p, self.batch * longest) + 1
            self.mark = np.full((WORKERS, p), -1, np.int32)
            self.names = np.empty((WORKERS, room), np.int64)
            self.counts = np.zeros(WORKERS, np.int64)
        else:
            room = p + 1
            self.names = np.tile(np.arange(p + 1), (WORKERS, 1))
            self.counts = np.full(WORKERS, p + 1, np.int64)
        self.G = np.zeros((WORKERS, room, passes.width))

    def state(self) -> dict[str, NDArray[Any]]:
        """The state that the next epoch starts from, for a checkpoint."""
        return {name: getattr(self, name) for name in _ARRAYS} | {"update": np.array([self.update])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a saved `state`."""
        for name in _ARRAYS:
            getattr(self, name)[...] = state[name]
        self.update = int(state["update"][0])

    def _first_step(self) -> float:
        """SGD: one over the curvature of an average sample; the others divide by accumulated gradients."""
        if self.kind != kernels.SGD:
            return 0.3
        return 2.0 * self.mass / max(float(self.passes.squares().sum()), 1e-300)

    def epoch(self, order: NDArray[np.int64], number: int) -> None:
        """Process every sample once, in this order."""
        problem, passes = self.problem, self.passes
        n = len(order)
        given = (*problem.rows.parts, problem.y, problem.weight, order, self.W, problem.classes, passes.strip)
        step = self.step / math.sqrt(1.0 + number) if self.kind == kernels.SGD else self.step
        for first in range(0, n, WORKERS * self.batch):
            last = min(first + WORKERS * self.batch, n)
            bounds = np.unique(np.append(np.arange(first, last, self.batch), last))
            workers = len(bounds) - 1
            if problem.rows.sparse:
                passes.run(
                    "batch", kernels.batch_sparse_worker, bounds, *given, self.mark, self.names, self.counts, self.G
                )
            else:
                passes.run("batch", kernels.batch_dense_worker, bounds, *given, self.G)
            scale = n / (self.mass * self.batch)
            passes.run(
                "apply", kernels.apply_worker, np.arange(_SHARDS + 1), self.kind, step, scale, self.update, 0, workers,
                self.names, self.counts, self.G, self.W, self.square, self.past, self.seen, self.most, self.due,
                self.l1, self.ridge, problem.intercept, _SHARDS,
            )  # fmt: skip
            self.update += workers
        every = np.unique(np.linspace(0, len(self.due), 33).astype(np.int64))
        square = self.most if self.kind == kernels.ADAREVISION else self.square
        passes.run(
            "pay",
            kernels.pay_worker,
            every,
            self.kind,
            step,
            self.update,
            self.W,
            square,
            self.due,
            self.l1,
            self.ridge,
        )
