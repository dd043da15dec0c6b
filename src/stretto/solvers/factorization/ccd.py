"""Matrix factorisation by coordinate descent in rank-one sweeps (CCD++).

Each latent column in turn is fitted to the residual of the others; see `kernels/factorization/ccd.py`. A row bias is an
additional column whose other side is fixed at one; so is a column bias. The objective is that of
`solvers.factorization.problem`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.factorization import ccd
from stretto.plan.plan import Plan
from stretto.runtime.blocks.compressed import Compressed
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.blocks.source import EntryArrays, EntrySource
from stretto.runtime.blocks.step import BlockStep, make_step
from stretto.runtime.blocks.survey import Survey
from stretto.runtime.files.mapped_arrays import Disk
from stretto.state.rows import BlockedRows

from .als import standardised
from .held_out import HeldOut
from .penalties import bias_penalty, factor_reg
from .problem import FactorizationProblem, Factors, new_factors

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RankOneTerm:
    """One rank-one term u vᵀ."""

    u: Floats  # [m]
    v: Floats  # [n]
    reg: float  # L2 penalty
    fit_u: bool = True  # whether u is fitted; else it stays as it is
    fit_v: bool = True  # the same for v


class CcdJob:
    """CCD++ over compressed rows and columns."""

    means: Any = None  # side features are refused

    def __init__(
        self,
        problem: FactorizationProblem,
        plan: Plan,
        by_row: Compressed,
        by_col: Compressed,
        first: Factors,
        crew: Crew,
        held: HeldOut | None,
    ) -> None:
        self.problem, self.plan, self.crew, self.held = problem, plan, crew, held
        self.items, self.repeats = len(by_row.values), by_row.repeats
        self._sides = by_row, by_col
        self._mean, self._scale = first.mean, first.scale
        self._U = np.zeros((problem.rank, len(first.W.array)), np.float32)
        self._V = ccd.to_columns(first.H.array, problem.rank)
        self._b, self._c = first.b.array, first.c.array
        # The values are not needed later: the residual replaces them, in row order and in column order.
        self._residuals = by_row.values, by_col.values
        m, n = len(first.W.array), len(first.H.array)
        self._ones = np.ones(m, np.float32), np.ones(n, np.float32)
        self._last = np.zeros(m, np.float32), np.zeros(n, np.float32)
        self._old = np.zeros(m, np.float32)
        self._dummy = np.ones(m, np.float32), np.ones(n, np.float32)
        self._specs = {step.name: step for step in plan.steps}

    @property
    def factors(self) -> Factors:
        """The factors, row by row."""
        rows, cols = self.plan.logical.rows, self.plan.logical.cols
        return Factors(
            BlockedRows("W", ccd.to_rows(self._U), self.problem.rank, rows),
            BlockedRows("H", ccd.to_rows(self._V), self.problem.rank, cols),
            BlockedRows("b", self._b, 1, rows),
            BlockedRows("c", self._c, 1, cols),
            self._mean,
            self._scale,
        )

    def put(self, now: Factors) -> None:
        """Continue from other factors; recompute the residual."""
        rank = self.problem.rank
        self._U[:], self._V[:] = now.W.array[:, :rank].T, now.H.array[:, :rank].T
        self._b[:], self._c[:] = now.b.array, now.c.array
        rows, cols = (now.W.array, now.b.array), (now.H.array, now.c.array)
        for side, ((own, own_bias), (other, other_bias)) in enumerate(((rows, cols), (cols, rows))):
            data, cut, residual = self._sides[side], self._cut(side), self._residuals[side]
            # Before the first sweep the residual is the standardised value.
            args = (cut.bounds, data.indptr, data.indices, residual, own, other, own_bias, other_bias, np.float32(0.0))
            weight = np.diff(data.indptr[cut.bounds])
            self.crew.run(make_step("residual", ccd.residual_worker, self.plan.order, weight, *args, residual), "exact")

    def _cut(self, side: int) -> Any:
        return self.plan.logical.rows if side == 0 else self.plan.logical.cols

    def _pairs(self) -> list[RankOneTerm]:
        (ones_u, ones_v), reg, bias_reg = self._ones, factor_reg(self.problem, self._scale), bias_penalty(self.problem)
        biases = [
            RankOneTerm(self._b, ones_v, bias_reg, fit_v=False),
            RankOneTerm(ones_u, self._c, bias_reg, fit_u=False),
        ]
        factors = [RankOneTerm(self._U[t], self._V[t], reg) for t in range(self.problem.rank)]
        return (biases if self.problem.biases else []) + factors

    def _step(
        self, name: str, kernel: Any, side: int, *args: Any, before: Callable[[bool], None] | None = None
    ) -> BlockStep:
        data, cut = self._sides[side], self._cut(side)
        common = (cut.bounds, data.indptr, data.indices, self._residuals[side])
        weight = np.diff(data.indptr[cut.bounds])
        around: dict[str, Any] = {"before": before, "gathers": before is not None, "spec": self._specs[name]}
        return make_step(name, kernel, self.plan.order, weight, *common, *args, **around)

    def _fit_pair(self, pair: RankOneTerm) -> list[BlockStep]:
        """Subtract the last pair's new term from the residual, add this pair's old term, and fit this pair."""
        reg, last_u, last_v = np.float32(pair.reg), *self._last
        # A side that is not fitted is computed on a temporary copy that starts, like it, at one.
        u = pair.u if pair.fit_u else self._dummy[0]
        v = pair.v if pair.fit_v else self._dummy[1]

        def keep_old(fresh: bool) -> None:
            if fresh:
                self._old[:] = pair.u
                self._dummy[0][:], self._dummy[1][:] = 1.0, 1.0

        steps = [
            self._step("turn rows", ccd.turn_worker, 0, u, pair.v, pair.v, last_u, last_v, reg, True, before=keep_old),
            self._step("turn columns", ccd.turn_worker, 1, v, pair.u, self._old, last_v, last_u, reg, True),
        ]
        if pair.fit_u and pair.fit_v:
            for _ in range(self.problem.inner - 1):
                steps.append(self._step("sweep rows", ccd.sweep_worker, 0, pair.u, pair.v, reg, True))
                steps.append(self._step("sweep columns", ccd.sweep_worker, 1, pair.v, pair.u, reg, True))
        return steps

    def _settle_pair(self, steps: list[BlockStep], pair: RankOneTerm) -> list[BlockStep]:
        """Finish a pair: store it as the pair whose term is subtracted next."""

        def remember() -> None:
            self._last[0][:], self._last[1][:] = pair.u, pair.v

        return [*steps[:-1], replace(steps[-1], after=remember, gathers=True)]

    def steps(self, epoch: int) -> Sequence[BlockStep]:
        """Fit every pair once, then subtract the last one's term."""
        steps = [step for pair in self._pairs() for step in self._settle_pair(self._fit_pair(pair), pair)]

        def forget() -> None:
            self._last[0][:], self._last[1][:] = 0.0, 0.0

        last_u, last_v = self._last
        steps.append(self._step("settle columns", ccd.settle_worker, 1, last_v, last_u))
        return [*steps, replace(self._step("settle rows", ccd.settle_worker, 0, last_u, last_v), after=forget)]

    def report(self, epoch: int, steps: Sequence[BlockStep]) -> EpochReport:
        """Loss and penalty after the epoch; the loss is the squared residual."""
        total, unit = steps[-1].total(), self._scale
        metrics = {"train_rmse": math.sqrt(total / self.items) * unit}
        reg, bias_reg = factor_reg(self.problem, unit), bias_penalty(self.problem)
        penalty = 0.0
        for data, columns, bias in ((self._sides[0], self._U, self._b), (self._sides[1], self._V, self._c)):
            counts = data.counts.astype(np.float64)
            squares = reg * np.einsum("kn,kn->n", columns, columns, dtype=np.float64)
            if len(bias):
                squares += bias_reg * np.square(bias, dtype=np.float64)
            penalty += math.fsum(counts * squares)
        if self.held is not None:
            metrics |= self.held.metrics(self.factors, "squared", self.crew)
        return EpochReport((total + penalty) / self.items * unit**2, metrics)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Factors, biases, residuals and the last pair."""
        biases = {"b": self._b, "c": self._c} if self.problem.biases else {}
        at = {"last_u": self._last[0], "last_v": self._last[1], "old_u": self._old}
        residuals = {"residual_rows": self._residuals[0], "residual_cols": self._residuals[1]}
        return {"U": self._U, "V": self._V, **biases, **at, **residuals}


def lay_out_ccd(
    problem: FactorizationProblem,
    plan: Plan,
    seen: Survey,
    source: EntrySource,
    crew: Crew,
    *,
    seed: int,
    test: EntryArrays | None = None,
    disk: Disk | None = None,
) -> CcdJob:
    """Compress the ratings both ways and draw the initial factors; the ratings are in files if a disk is given."""
    rows, cols = plan.logical.rows, plan.logical.cols
    (by_row, by_col), mean, scale = standardised(problem, plan, seen, source, disk)
    first = new_factors(problem, rows, cols, seen.empty, seed, crew, mean=mean, scale=scale)
    held = None if test is None else HeldOut.out(test, rows, cols)
    return CcdJob(problem, plan, by_row, by_col, first, crew, held)
