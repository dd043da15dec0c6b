"""Matrix factorisation by stochastic gradient descent on a rotating schedule.

Ratings are standardised first (mean 0, standard deviation 1), so one learning rate suits stars, percentages and counts;
`reg` is in the units of the ratings and converted. The step size falls from learning_rate to learning_rate / epochs. By
default the step of a row or column also falls with the number n of its ratings that were used, about as 1 / √(1 +
n / 30), and that of its bias as 1 / (1 + n / 30): the factors of an item with thousands of ratings have converged after
one epoch, and steps as large as those of an item with ten would keep them noisy. AdaGrad divides it by the root of
each row's accumulated squared gradients. AdaRevision divides by a root for each element and needs no decay. A rotating
schedule delivers every gradient at once, so AdaRevision's delay corrections are zero, and it is AdaGrad by element with
initial sum 1 (`kernels/factorization/adarevision_sgd.py`). If ratings are more than `OUTLIER` standard deviations from
the mean, the gradient of one error is clipped, so that a single count of a million does not ruin its row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition, choose_blocks, cut
from stretto.kernels.factorization.adarevision_sgd import adarevision_worker
from stretto.kernels.factorization.loss_codes import CODES
from stretto.kernels.factorization.ranking import ranking_worker
from stretto.kernels.factorization.sgd import adagrad_worker, sgd_worker
from stretto.kernels.numeric.lanes import padded, unrolled
from stretto.plan.arrays import Array, Reader, StepSpec, by_cols, by_rows, by_visits, constant, number
from stretto.plan.cost import Cost
from stretto.plan.kernel_reference import named_kernel
from stretto.plan.plan import Logical, Physical, Plan, PlanSettings
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.blocks.layout import Blocks, Tally, index_type, lay_out, lay_out_on_disk
from stretto.runtime.blocks.source import EntryArrays, EntrySource, InMemory
from stretto.runtime.blocks.step import BlockStep, make_step
from stretto.runtime.blocks.survey import Survey
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import rotation

from .held_out import HeldOut, mean_cost, named
from .ndcg import HeldRanking
from .penalties import (
    NO_SHARES,
    REG_OF_NOISE,
    RIDGE_OF_NOISE,
    NoiseEstimate,
    Shares,
    follows_noise,
    penalties,
    shares_of,
)
from .prior_means import PriorMeans, shrinkage
from .problem import FactorizationProblem, Factors, new_factors, squares_of, units
from .ranking import Ranked, cut_columns, ranked_side, ranking_arguments, ranking_step
from .rated_items import RatedItems

_FLOAT = 4
_BY_ROW = ("ridge", "ridge_bias", "decay", "bias_step", "bias_decay")  # numbers of plain SGD alone
# Floating-point operations per rating and latent factor.
_FLOPS = {"sgd": 8, "adagrad": 16, "adarevision": 34}
# Rows and columns of an average block, at least: with fewer of them each entry waits for the one before it, which has
# changed the same column.
NARROWEST = 5
# In standard deviations: if a rating is farther than OUTLIER from the mean, errors are clipped at LIMIT.
OUTLIER, LIMIT = 8.0, 5.0


def logical_sgd(problem: FactorizationProblem, seen: Survey, settings: PlanSettings) -> Logical:
    """Everything that decides the numbers of an SGD run."""
    sides = (max(1, seen.shape[0] // NARROWEST), max(1, seen.shape[1] // NARROWEST))
    sides = (sides[0], ranked_side(seen.shape[1])) if problem.ranking else sides
    blocks, seed = choose_blocks(seen.entries, sides, settings.width), settings.seed
    names = ["rank", "loss", "reg", "biases", "optimizer", "learning_rate", "schedule", "init_scale"]
    names += ["implicit", "alpha", "negatives"] * problem.ranking + ["features"] * bool(problem.features)
    once = penalties(problem, 1.0)
    by_row: tuple[tuple[str, float], ...] = (
        (("ridge", once.ridge), ("bias_ridge", once.bias_ridge)) if once.by_row else ()
    )
    if follows_noise(problem):
        by_row = (("reg_of_noise", REG_OF_NOISE), ("ridge_of_noise", RIDGE_OF_NOISE), ("bias_ridge", once.bias_ridge))
    return Logical(
        program="mf/sgd/2",
        parameters=problem.parameters(*names, *([] if problem.fall == "constant" else ["epochs"])) + by_row,
        data=seen.digest,
        seed=seed,
        profile=settings.profile,
        width=settings.width,
        order=rotation(blocks),
        rows=cut(seen.row_counts, blocks, seed=seed, axis=0),
        cols=(cut_columns if problem.ranking else partial(cut, axis=1))(seen.col_counts, blocks, seed=seed),
    )


def limit_of(problem: FactorizationProblem, seen: Survey) -> float:
    """The error, in standard deviations, at which gradients are clipped; infinity for data without outliers."""
    return LIMIT if problem.loss == "squared" and seen.farthest > OUTLIER * units(problem, seen)[1] else math.inf


def row_bytes(problem: FactorizationProblem) -> int:
    """Bytes stored for one row or column."""
    squares = sum(wide for axis, wide in squares_of(problem).values() if axis == 0)
    return _FLOAT * (padded(problem.rank) + problem.biases + squares)


def entry_bytes(logical: Logical) -> int:
    """Bytes of one entry in its block."""
    return sum(np.dtype(index_type(cut)).itemsize for cut in (logical.rows, logical.cols)) + _FLOAT


def plan_sgd(problem: FactorizationProblem, logical: Logical, weight: Ints, physical: Physical) -> Plan:
    """The plan of an SGD run whose visit v has weight[v] entries; nothing is allocated yet."""
    rows, cols, order = logical.rows, logical.cols, logical.order
    entries = int(weight.sum())
    per_row, per_entry = row_bytes(problem), entry_bytes(logical)
    touched = rows.sizes[order.row_block].sum() + cols.sizes[order.col_block].sum()
    return Plan(
        logical,
        (spec_sgd(problem, logical, weight),),
        weight,
        Cost(
            entries,
            entry_bytes=entries * per_entry,
            state_bytes=(len(rows) + len(cols)) * per_row,
            moved_bytes=entries * per_entry + 2 * int(touched) * per_row,
            flops=entries * problem.rank * _FLOPS[problem.optimizer],
        ),
        physical,
    )


class SgdJob:
    """SGD over blocks held in memory."""

    def __init__(
        self,
        problem: FactorizationProblem,
        plan: Plan,
        blocks: Blocks,
        factors: Factors,
        shares: Shares,
        limit: float,
        crew: Crew,
        held: HeldOut | HeldRanking | None,
        reader: Reader | None = None,
        ranked: Ranked | None = None,
    ) -> None:
        if ranked is not None:
            factors = replace(factors, confidence=ranked.confidence, mean_weight=ranked.mean_weight)
        self.plan, self.blocks, self.factors, self.limit = plan, blocks, factors, limit
        self._problem, self.shares, self.ranked = problem, shares, ranked
        measured = follows_noise(problem) and problem.noise is None  # an earlier fit may have done it
        self._noise = NoiseEstimate() if measured else None
        self.crew, self.held = crew, held
        self.items, self.repeats = len(blocks.r), blocks.repeats
        self.steps_ahead = held is None
        self.means: PriorMeans | None = None  # of side features
        self.spec = plan.steps[0] if reader is None else replace(plan.steps[0], reader=reader)

    @property
    def problem(self) -> FactorizationProblem:
        """The problem, with the noise that was measured so far."""
        return self._problem if self._noise is None else replace(self._problem, noise=self._noise.last())

    def steps(self, epoch: int) -> Sequence[BlockStep]:
        """One pass over the grid."""
        blocks, factors, problem = self.blocks, self.factors, self._problem
        if self._noise is not None:
            problem = replace(problem, noise=self._noise.at(epoch))
        arrays = (blocks.ptr, blocks.u, blocks.i, blocks.r, blocks.row_base, blocks.col_base)
        states = (factors.W.array, factors.H.array, factors.b.array, factors.c.array)
        if self.ranked is not None:
            step = ranking_step(problem, self.plan.order, epoch, arrays, states, self.ranked)
            return [replace(step, spec=self.spec, **self._after(problem, epoch))]
        squares = tuple(state.array for state in factors.squares.values())
        units_ = (factors.scale, self.limit)
        step = sgd_step(problem, self.plan.order, epoch, *units_, arrays, states, squares, self.shares)
        return [replace(step, spec=self.spec, **self._after(problem, epoch))]

    def _after(self, problem: FactorizationProblem, epoch: int) -> dict[str, Any]:
        """What follows the pass of an epoch, with side features."""
        means = self.means
        if means is None:
            return {}
        lost = shrinkage(problem, epoch, self.factors.scale, means.counts)

        def pull() -> None:
            means.restore(lost)
            for side in (0, 1):
                means.learn(side, epoch)
            means.fill()

        return {"after": pull, "gathers": True}

    def report(self, epoch: int, steps: Sequence[BlockStep]) -> EpochReport:
        """The training loss during the epoch, and the held-out error after it."""
        loss, total = self._problem.loss, steps[0].total()
        cost = mean_cost(total, self.items, loss, self.factors.scale)
        if self._noise is not None:
            self._noise.add(epoch, total / self.items)
        metrics = named("train", cost, loss)
        if self.held is not None:
            metrics |= self.held.metrics(self.factors, loss, self.crew)
        return EpochReport(cost, metrics)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Factors, biases, squared gradients, measured noise and maps of features: the live arrays, not copies."""
        noise = {} if self._noise is None else {"noise": self._noise.errors}
        return self.factors.arrays() | noise | ({} if self.means is None else self.means.arrays())


def ranked_of(problem: FactorizationProblem, plan: Plan, seen: Survey) -> Ranked | None:
    """What a ranking loss draws from; None for other losses."""
    logical = plan.logical
    return Ranked.of(problem, seen, logical.cols, logical.order, logical.seed) if problem.ranking else None


def held_out(
    problem: FactorizationProblem,
    test: EntryArrays | None,
    source: EntrySource,
    rows: BlockPartition,
    cols: BlockPartition,
) -> HeldOut | HeldRanking | None:
    """What is measured after each epoch. source: the ratings that are learned from."""
    if test is None:
        return None
    return HeldRanking.of(test, RatedItems.of(source), rows, cols) if problem.ranking else HeldOut.out(test, rows, cols)


def sgd_step(
    problem: FactorizationProblem,
    order: Order,
    epoch: int,
    scale: float,
    limit: float,
    arrays: tuple[Any, ...],
    states: tuple[Any, ...],
    squares: tuple[Any, ...],
    shares: Shares = NO_SHARES,
) -> BlockStep:
    """One pass of SGD.

    arrays : (ptr, u, i, r, row_base, col_base)
    states : (W, H, b, c)
    squares : those of `squares_of`
    shares : those of `shares_of`
    """
    step, reg = problem.step_at(epoch), penalties(problem, scale)
    # A step shrinks a number at most to zero: a penalty above 1 / step would make it grow.
    lam, lam_bias = (np.float32(min(each, 1.0 / step)) for each in (reg.factors, reg.biases))
    once: tuple[np.float32, ...] = ()
    if problem.optimizer == "sgd":
        once = (np.float32(reg.ridge), np.float32(reg.bias_ridge), np.float32(problem.decay_at(epoch)))
        once += tuple(np.float32(each) for each in problem.bias_step_at(epoch))
    settings = (np.float32(step), lam, lam_bias, *once, CODES[problem.loss], np.float32(limit))
    name, weight, count = problem.optimizer, np.diff(arrays[0]), unrolled(states[0].shape[1])
    if name == "adagrad":
        tail = (*squares, *settings, problem.rank, count)
        return make_step(name, adagrad_worker, order, weight, *arrays, *states, *tail)
    if name == "adarevision":
        return make_step(name, adarevision_worker, order, weight, *arrays, *states, *squares, *settings, count)
    return make_step(name, sgd_worker, order, weight, *arrays, *states, *shares, *settings, count)


def spec_sgd(problem: FactorizationProblem, logical: Logical, weight: Ints) -> StepSpec:
    """The pass of an epoch: entries belong to their visits, row factors are owned, column factors rotate."""
    worker = {"sgd": sgd_worker, "adagrad": adagrad_worker, "adarevision": adarevision_worker}[problem.optimizer]
    worker = ranking_worker if problem.ranking else worker
    plain = problem.optimizer == "sgd"
    more = ("rank",) if problem.optimizer == "adagrad" else ()
    rows, cols, ptr = logical.rows, logical.cols, np.concatenate([[0], np.cumsum(weight)])
    entries, kinds = int(ptr[-1]), {"u": index_type(rows), "i": index_type(cols), "r": np.float32}

    def state(name: str, axis: int, wide: int) -> Array:
        """A state with `wide` numbers per row; an unused state has no rows and no blocks."""
        if not wide:
            return constant(name)
        make, cut = ((by_rows, rows), (by_cols, cols))[axis]
        shape = (len(cut), wide) if wide > 1 else (len(cut),)
        return make(name, cut.bounds, dtype="f4", shape=shape)

    wide, bias = padded(problem.rank), int(problem.biases)
    arguments: tuple[Array, ...] = (
        constant("ptr"),
        *(by_visits(name, ptr, dtype=np.dtype(kind).str, shape=(entries,)) for name, kind in kinds.items()),
        constant("row_base"),
        constant("col_base"),
        *(state(name, axis, width) for name, axis, width in (("W", 0, wide), ("H", 1, wide))),
        *(state(name, axis, bias) for name, axis in (("b", 0), ("c", 1))),
        *(state(name, axis, width) for name, (axis, width) in squares_of(problem).items()),
    )
    if problem.ranking:
        return StepSpec(problem.loss, named_kernel(worker), arguments + ranking_arguments())
    arguments += (
        *(constant(name) for name in ("row_share", "col_share") if plain),
        *(number(name) for name in ("step", "lam", "lam_bias", *(_BY_ROW if plain else ()))),
        *(number(name) for name in ("loss", "limit", *more, "count")),
    )
    return StepSpec(problem.optimizer, named_kernel(worker), arguments)


def lay_out_sgd(
    problem: FactorizationProblem,
    plan: Plan,
    seen: Survey,
    source: EntrySource,
    tallied: Tally | None,
    crew: Crew,
    *,
    seed: int,
    test: EntryArrays | None = None,
    disk: Disk | None = None,
) -> SgdJob:
    """Divide the ratings into blocks and draw the initial factors; in files if a disk is given."""
    rows, cols, order = plan.logical.rows, plan.logical.cols, plan.order
    mean, scale = units(problem, seen)
    if disk is not None:
        blocks = lay_out_on_disk(source, rows, cols, order, plan.weight, crew, disk, mean=mean, scale=scale)
    else:
        assert isinstance(source, InMemory)
        assert tallied is not None
        blocks = lay_out(source.data, rows, cols, order, tallied, crew, mean=mean, scale=scale)
    factors = new_factors(problem, rows, cols, seen.empty, seed, crew, mean=mean, scale=scale, disk=disk)
    shares = shares_of(problem, seen, rows, cols)
    ranked = ranked_of(problem, plan, seen)
    held = held_out(problem, test, source, rows, cols)
    return SgdJob(problem, plan, blocks, factors, shares, limit_of(problem, seen), crew, held, ranked=ranked)
