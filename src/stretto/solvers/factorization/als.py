"""Matrix factorisation by alternating least squares (ALS): solve each row, then each column, as a small least-squares
problem.

Explicit ratings minimise the objective of `solvers.factorization.problem`. Implicit feedback (counts of
interactions) minimises

    Σ c_ij (q_ij − w_i·h_j)² over *every* pair  +  reg·Σ c_ij (‖w_i‖² + ‖h_j‖²) over the entries

with q = 1 and confidence c = 1 + alpha·value / mean |value| where the value is positive, q = 0 and c = 1 for a
missing value: an average entry counts 1 + alpha times as much as a missing one, in any unit of the values. A negative
value is evidence against the pair: q = 0, c = 1 + alpha·|value| / mean |value|. Biases are an additional column: see
`kernels/factorization/als.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition, straight
from stretto.kernels.factorization import als
from stretto.kernels.numeric.lanes import padded
from stretto.plan.cost import Cost
from stretto.plan.plan import Logical, Plan, PlanSettings
from stretto.runtime.blocks.compressed import Compressed, compress, compress_on_disk, with_weights
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.blocks.source import EntryArrays, EntrySource, InMemory
from stretto.runtime.blocks.step import BlockStep, make_step
from stretto.runtime.blocks.survey import Survey
from stretto.runtime.files.mapped_arrays import Disk, pieces_of
from stretto.schedule.orders.rotation import independent
from stretto.state.rows import BlockedRows

from .held_out import HeldOut
from .ndcg import HeldRanking
from .penalties import bias_penalty, factor_reg
from .prior_means import NO_PRIOR, PriorMeans
from .problem import FactorizationProblem, Factors, new_factors, units
from .rated_items import RatedItems
from .row_arrays import SIDES, specs_als, specs_ccd

_FLOAT, _INT, _LONG = 4, 4, 8
_NO_GRAM = np.zeros((0, 0), np.float32)
_NO_BIAS = np.zeros(0, np.float32)


def row_blocks(entries: int, width: int) -> int:
    """Number of blocks for rows that are solved independently: enough to balance, with little overhead per block."""
    return max(1, min(16 * width, entries // 1024))


def plan_rows(
    program: str,
    problem: FactorizationProblem,
    seen: Survey,
    settings: PlanSettings,
) -> Plan:
    """The plan of a solver that works row by row, then column by column. seen: the survey of the ratings."""
    blocks = row_blocks(seen.entries, settings.width)
    names = ["rank", "reg", "biases", "init_scale"]
    cg = problem.solver == "als" and problem.linear_solver == "cg"
    names += ["implicit", "linear_solver"] * (problem.solver == "als") + ["alpha"] * problem.implicit
    names += ["inner"] * (problem.solver == "ccd" or cg) + ["features"] * bool(problem.features)
    names += ["weights"] * bool(problem.weights)
    rows, cols = straight(seen.row_counts, blocks), straight(seen.col_counts, blocks)
    order, parameters = independent(blocks), problem.parameters(*names)
    seed, profile, width = settings.seed, settings.profile, settings.width
    logical = Logical(program, parameters, seen.digest, seed, profile, width, order, rows, cols)
    per_row = _FLOAT * padded(problem.rank + problem.biases) + _LONG
    rank = padded(problem.rank)
    if problem.solver == "ccd":
        work, bytes_kept, bytes_moved = 8 * rank * problem.inner, 2 * _FLOAT, 2 * rank * (_FLOAT + _INT) * problem.inner
    else:
        work, bytes_kept, bytes_moved = 4 * rank * (problem.inner + 1) if cg else rank * rank, 0, 2 * _FLOAT * rank
    running = np.concatenate([[0], np.cumsum(seen.row_counts)])
    cost = Cost(
        seen.entries,
        entry_bytes=seen.entries * (2 * (_INT + _FLOAT) + bytes_kept),
        state_bytes=(len(rows) + len(cols)) * per_row,
        moved_bytes=seen.entries * (2 * (_INT + _FLOAT) + bytes_moved),
        flops=2 * (seen.entries * work + (len(rows) + len(cols)) * rank**3 // 3),
    )
    specs = specs_ccd if problem.solver == "ccd" else specs_als
    steps = tuple(specs(problem, logical, (seen.row_counts, seen.col_counts)).values())
    return Plan(logical, steps, np.diff(running[rows.bounds]).astype(np.int64), cost, settings.physical)


class AlsJob:
    """ALS over compressed rows and columns."""

    def __init__(
        self,
        problem: FactorizationProblem,
        plan: Plan,
        by_row: Compressed,
        by_col: Compressed,
        factors: Factors,
        crew: Crew,
        held: HeldOut | HeldRanking | None,
    ) -> None:
        self.problem, self.plan, self.factors, self.crew, self.held = problem, plan, factors, crew, held
        self.items, self.repeats = len(by_row.values), by_row.repeats
        weights = by_row.weights
        self._total = float(weights.sum(dtype=np.float64)) if len(weights) else float(self.items)
        self._sides = (by_row, by_col)
        self.means: PriorMeans | None = None  # of side features
        width = factors.W.array.shape[1]
        self._scratch = als.scratch(crew.workers, width)
        size = width if problem.implicit else 0
        self._grams = (np.zeros((size, size), np.float32), np.zeros((size, size), np.float32))
        self._partial = np.zeros((plan.order.rows if size else 0, size, size), np.float32)
        self._specs = {step.name: step for step in plan.steps}
        self._grams_of = [step for step in plan.steps if step.name == "gram"]

    def _states(self, side: int) -> tuple[BlockedRows, BlockedRows, NDArray[np.float32], NDArray[np.float32]]:
        """(solved, fixed, bias of the solved, bias of the fixed) when rows (0) or columns (1) are solved."""
        f = self.factors
        return (f.W, f.H, f.b.array, f.c.array) if side == 0 else (f.H, f.W, f.c.array, f.b.array)

    def _cut(self, side: int) -> BlockPartition:
        return self.plan.logical.rows if side == 0 else self.plan.logical.cols

    def _gram(self, side: int) -> BlockStep:
        """Yᵀ Y of the side that is fixed in the next step."""
        array, partial, gram = self._states(side)[0].array, self._partial, self._grams[side]
        cut = self._cut(side)
        fold: Callable[[], None] = lambda: als.fold_gram(partial, gram)  # noqa: E731
        args, spec = (cut.bounds, array, partial), self._grams_of[side]
        step = make_step("gram", als.gram_worker, self.plan.order, cut.sizes, *args, after=fold, spec=spec)
        return replace(step, kept=False)  # parts of the sum are in no checkpoint

    def _solve(self, side: int, epoch: int) -> BlockStep:
        problem, data, cut = self.problem, self._sides[side], self._cut(side)
        solved, fixed, bias, offset = self._states(side)
        rank = problem.rank

        means, biased = self.means, problem.biases

        def borrow(fresh: bool) -> None:
            if means is not None:
                means.refresh(side)
            if fresh and biased:
                solved.array[:, rank] = bias
                fixed.array[:, rank] = 1.0

        def give_back() -> None:
            if biased:
                bias[:] = solved.array[:, rank]
                solved.array[:, rank] = 0.0
                fixed.array[:, rank] = 0.0
            if means is not None:
                means.learn(side, epoch)

        gram = self._grams[1 - side] if problem.implicit else _NO_GRAM
        args: tuple[Any, ...] = (
            cut.bounds,
            data.indptr,
            data.indices,
            data.values,
            data.weights,
            solved.array,
            fixed.array,
            gram,
            offset,
        )
        own = problem.rank if problem.biases else -1
        args += (
            np.float32(0.0),  # values are centred already
            np.float32(factor_reg(problem, self.factors.scale)),
            own,
            np.float32(bias_penalty(problem)),
            np.float32(self.factors.confidence),
            NO_PRIOR if means is None else means.priors[side],
        )
        weight = np.diff(data.indptr[cut.bounds])
        name = f"solve {SIDES[side]}"
        cg = problem.linear_solver == "cg"
        kernel = als.cg_worker if cg else als.cholesky_worker
        args += (problem.inner, self._scratch) if cg else (np.float32(0.0), np.float32(0.0), self._scratch)
        hooked = biased or means is not None
        around: dict[str, Any] = {"before": borrow, "after": give_back, "gathers": True} if hooked else {}
        return make_step(name, kernel, self.plan.order, weight, *args, spec=self._specs[name], **around)

    def _measure(self) -> BlockStep:
        f, data, cut = self.factors, self._sides[0], self._cut(0)
        weight = np.diff(data.indptr[cut.bounds])
        entries = (cut.bounds, data.indptr, data.indices, data.values)
        around: dict[str, Any] = {"spec": self._specs["loss"]}
        if self.means is not None:
            around |= {"after": self.means.fill, "gathers": True}
        if self.problem.implicit:
            args: tuple[Any, ...] = (f.W.array, f.H.array, self._grams[1], np.float32(f.confidence), self._scratch)
            return make_step("loss", als.implicit_worker, self.plan.order, weight, *entries, *args, **around)
        args = (*entries, data.weights, f.W.array, f.H.array, f.b.array, f.c.array, np.float32(0.0))
        return make_step("loss", als.squared_worker, self.plan.order, weight, *args, **around)

    def steps(self, epoch: int) -> Sequence[BlockStep]:
        """Solve rows, solve columns, measure."""
        if not self.problem.implicit:
            return [self._solve(0, epoch), self._solve(1, epoch), self._measure()]
        first = [self._gram(1)] if epoch == 0 else []
        return [*first, self._solve(0, epoch), self._gram(0), self._solve(1, epoch), self._gram(1), self._measure()]

    def report(self, epoch: int, steps: Sequence[BlockStep]) -> EpochReport:
        """Loss and penalty after the epoch."""
        penalty = math.fsum(step.total() for step in steps if step.name.startswith("solve"))
        total, unit = steps[-1].total(), self.factors.scale
        if self.problem.implicit:
            found = EpochReport(total + penalty, {"train_loss": total / self.items})
        else:
            rmse = math.sqrt(total / self._total) * unit
            found = EpochReport((total + penalty) / self._total * unit**2, {"train_rmse": rmse})
        if self.held is not None:
            found.metrics.update(self.held.metrics(self.factors, "squared", self.crew))
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Factors, biases, Gramians and maps of features: the live arrays, not copies."""
        grams = {"gram_w": self._grams[0], "gram_h": self._grams[1]} if self.problem.implicit else {}
        return self.factors.arrays() | grams | ({} if self.means is None else self.means.arrays())


def lay_out_als(
    problem: FactorizationProblem,
    plan: Plan,
    seen: Survey,
    source: EntrySource,
    crew: Crew,
    *,
    seed: int,
    test: EntryArrays | None = None,
    disk: Disk | None = None,
    weights: NDArray[np.float32] | None = None,
) -> AlsJob:
    """Compress the ratings both ways and draw the initial factors; the ratings are in files if a disk is given.

    weights : [n] of ratings in memory
    """
    rows, cols = plan.logical.rows, plan.logical.cols
    (by_row, by_col), mean, scale = standardised(problem, plan, seen, source, disk)
    if weights is not None:
        assert isinstance(source, InMemory)
        by_row, by_col = with_weights((by_row, by_col), source.data, weights)
    width = problem.rank + problem.biases
    factors = new_factors(problem, rows, cols, seen.empty, seed, crew, mean=mean, scale=scale, columns=width)
    held: HeldOut | HeldRanking | None = None
    if problem.implicit:
        unit = mean_size(by_row.values, disk)
        factors = replace(factors, confidence=problem.alpha / unit if unit > 0 else 0.0)
        held = None if test is None else HeldRanking.out(test, RatedItems(by_row.indptr, by_row.indices), cols)
    elif test is not None:
        held = HeldOut.out(test, rows, cols)
    return AlsJob(problem, plan, by_row, by_col, factors, crew, held)


def standardised(
    problem: FactorizationProblem, plan: Plan, seen: Survey, source: EntrySource, disk: Disk | None
) -> tuple[tuple[Compressed, Compressed], float, float]:
    """(by row, by column) with standardised ratings, and the mean and the scale that were taken off."""
    sides = compress_source(source, plan, seen, disk)
    mean, scale = units(problem, seen)
    standardise(sides, mean, scale, disk)
    return sides, mean, scale


def compress_source(source: EntrySource, plan: Plan, seen: Survey, disk: Disk | None) -> tuple[Compressed, Compressed]:
    """(by row, by column): in memory, or in files."""
    if disk is None:
        assert isinstance(source, InMemory)
        return compress(source.data, seen.row_counts, seen.col_counts)
    rows, cols = plan.logical.rows, plan.logical.cols
    return (
        compress_on_disk(source, seen.row_counts, rows, disk, by_column=False),
        compress_on_disk(source, seen.col_counts, cols, disk, by_column=True),
    )


def mean_size(values: NDArray[np.float32], disk: Disk | None) -> float:
    """The mean of |values|, bit for bit that of NumPy's `mean` in double precision."""
    if disk is None:
        return float(np.abs(values).mean(dtype=np.float64))
    total, at_once = np.float64(0.0), np.getbufsize()  # elements that NumPy converts at a time
    for part in pieces_of(disk, values):
        for first in range(part.start, part.stop, at_once):
            total += np.add.reduce(np.abs(values[first : min(first + at_once, part.stop)]), dtype=np.float64)
    return float(total / max(1, len(values)))


def standardise(sides: tuple[Compressed, Compressed], mean: float, scale: float, disk: Disk | None = None) -> None:
    """Replace the values of both sides by (value − mean) / scale, in place."""
    if (mean, scale) == (0.0, 1.0):
        return
    for side in sides:
        for part in pieces_of(disk, side.values):
            some = side.values[part]
            np.subtract(some, np.float32(mean), out=some)
            np.divide(some, np.float32(scale), out=some)
