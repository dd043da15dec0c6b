"""Build the job of a factorisation: plan the solver and lay out ratings and initial factors, in memory or on disk."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.data.records.duplicates import settle
from stretto.errors import DataError
from stretto.kernels.numeric.lanes import padded
from stretto.plan.plan import Plan, PlanSettings
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import Job
from stretto.runtime.blocks.layout import Tally, tally, tally_parts
from stretto.runtime.blocks.parted import in_parts
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.blocks.survey import survey
from stretto.runtime.blocks.tiles import side_within
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints
from stretto.solvers.factorization.als import lay_out_als, plan_rows
from stretto.solvers.factorization.ccd import CcdJob, lay_out_ccd
from stretto.solvers.factorization.cost import peak_memory, refuse_cost, refuse_rank, refuse_time
from stretto.solvers.factorization.counted_plan import CountedRatings
from stretto.solvers.factorization.node_ratings import FileSource, lay_out_from_file
from stretto.solvers.factorization.prior_means import PriorMeans
from stretto.solvers.factorization.problem import FactorizationProblem, Factors, Moments, squares_of
from stretto.solvers.factorization.sgd import lay_out_sgd, logical_sgd, plan_sgd
from stretto.state.rows import BlockedRows

from .input import RatingsInput
from .weights import weighted_survey


class FactorJob(Job, Protocol):
    """Interface of a job that learns factors."""

    held: Any  # what is measured after each epoch, or None
    means: PriorMeans | None  # of side features

    @property
    def problem(self) -> FactorizationProblem: ...

    @property
    def factors(self) -> Factors: ...

    @property
    def repeats(self) -> int:
        """Pairs that were rated more than once."""
        ...


@dataclass(frozen=True, eq=False)
class EarlierFit:
    """Result of an earlier fit, in the ratings' units, to start the next one from."""

    row_factors: NDArray[np.float32]
    col_factors: NDArray[np.float32]
    row_bias: NDArray[np.float32]
    col_bias: NDArray[np.float32]
    squares: dict[str, NDArray[np.float32]]  # sums of squared gradients
    moments: Moments
    noise: float | None  # noise of the ratings that the fit has measured
    epochs: int  # epochs trained
    rows: NDArray[Any]  # [m] index in the next fit, −1 for a row that it does not have
    cols: NDArray[Any]  # [n] the same for columns


def count(
    problem: FactorizationProblem,
    feed: RatingsInput,
    crew: Crew,
    settings: PlanSettings,
    *,
    stream: bool = False,
) -> CountedRatings:
    """Plan the problem's solver from counts of the ratings; no ratings are laid out.

    stream : whether data beyond the budget may be streamed from disk
    """
    physical = settings.physical
    counted = _plan(problem, feed, crew, settings)
    plan, by_nodes = counted.plan, feed.by_nodes and problem.solver == "sgd"
    if stream and physical.memory is not None and (feed.data is None or plan.cost.memory > physical.memory):
        refuse_time(problem, plan)
        if not by_nodes:  # there every node decides for its own part
            remedy = "raise the budget, lower the rank, or raise width= for smaller blocks"
            side = side_within(plan, physical.memory, kept_bytes(problem, plan), remedy)
            plan = replace(plan, physical=replace(physical, tile=side))
        return replace(counted, plan=plan)
    refuse_cost(problem, plan, "stream it from disk with memory='2GiB', or lower rank")
    return counted


def _plan(problem: FactorizationProblem, feed: RatingsInput, crew: Crew, settings: PlanSettings) -> CountedRatings:
    seen, source = survey(feed.source, crew), feed.source
    if feed.weights is not None:
        seen = weighted_survey(seen, feed.weights)
    refuse_rank(problem, seen.shape)
    if problem.solver != "sgd":
        program = f"mf/{problem.solver}/2"
        return CountedRatings(plan_rows(program, problem, seen, settings), seen)
    logical, physical = logical_sgd(problem, seen, settings), settings.physical
    parts = in_parts(source) if feed.by_nodes else None
    if parts is not None:
        counts = tally_parts(parts, logical.rows, logical.cols, logical.order, crew)
        return CountedRatings(plan_sgd(problem, logical, counts.sum(axis=0), physical), seen, parts=counts)
    tallies = [tally(chunk, logical.rows, logical.cols, logical.order, crew) for chunk in source.chunks()]
    weight: Ints = sum((one.weight for one in tallies), np.zeros(len(logical.order), np.int64))
    plan = plan_sgd(problem, logical, weight, physical)
    return CountedRatings(plan, seen, tallies[0] if len(tallies) == 1 else None)


def lay_out_factors(
    problem: FactorizationProblem,
    counted: CountedRatings,
    feed: RatingsInput,
    crew: Crew,
    *,
    scratch: Path | None = None,
    once: bool = False,
) -> FactorJob:
    """The job that runs a plan: lay out the ratings in memory or on disk, and draw the initial factors.

    scratch : the folder for streamed data
    once : nodes that read the ratings refuse pairs that are rated twice
    """
    plan, disk = counted.plan, None
    if feed.by_nodes and problem.solver == "sgd":
        assert isinstance(feed.source, FileSource)
        return lay_out_from_file(problem, counted, feed.source, crew, test=feed.test, once=once, scratch=scratch)
    if plan.physical.tile is not None:
        assert scratch is not None
        disk = Disk(scratch, max(1, (plan.physical.memory or 0) - kept_bytes(problem, plan)))
        crew.stream(disk)
    source = feed.source if disk is not None or feed.data is None else InMemory(feed.data)
    args = (problem, plan, counted.seen, source)
    rest: dict[str, Any] = {"seed": plan.logical.seed, "test": feed.test, "disk": disk}
    job: FactorJob
    if problem.solver == "sgd":
        tallied = counted.tallied if disk is not None or counted.tallied is not None else _tally(plan, feed, crew)
        job = lay_out_sgd(*args, tallied, crew, **rest)
    else:
        if feed.weights is not None:
            rest["weights"] = feed.weights.weights
        job = lay_out_als(*args, crew, **rest) if problem.solver == "als" else lay_out_ccd(*args, crew, **rest)
    if feed.features is not None:
        job.means = PriorMeans(problem, job.factors, feed.features.matrices, counted.seen, crew)
    return job


def build(
    problem: FactorizationProblem,
    feed: RatingsInput,
    crew: Crew,
    *,
    scratch: Path | None = None,
    once: bool = False,
    **settings: Any,
) -> FactorJob:
    """Plan and lay out. settings: the fields of `PlanSettings`."""
    counted = count(problem, feed, crew, PlanSettings(**settings), stream=scratch is not None)
    return lay_out_factors(problem, counted, feed, crew, scratch=scratch, once=once)


def build_in_memory(problem: FactorizationProblem, data: Data, crew: Crew, **settings: Any) -> Any:
    """The job for ratings in memory; settings as of `build`."""
    return build(problem, RatingsInput(InMemory(data), data, None, data.shape, None, None), crew, **settings)


def _tally(plan: Plan, feed: RatingsInput, crew: Crew) -> Tally:
    """Entries of each visit, for ratings in memory that were counted in several chunks."""
    assert feed.data is not None
    chunk = (feed.data.rows, feed.data.cols, feed.data.values)
    return tally(chunk, plan.logical.rows, plan.logical.cols, plan.order, crew)


# Stored for every row and column besides the factors: its count, position and block.
_PER_INDEX = 24


def kept_bytes(problem: FactorizationProblem, plan: Plan) -> int:
    """Bytes that stay in memory while a plan runs from disk."""
    rows, cols = len(plan.logical.rows), len(plan.logical.cols)
    kept = (rows + cols) * _PER_INDEX
    if problem.solver == "sgd":
        return kept
    # Every visit may read any row of the fixed side: the factors of both sides stay in memory.
    width = padded(problem.rank + problem.biases)
    return kept + 4 * (rows + cols) * (width + 8) + peak_memory(problem, plan, beside=True)


def going_on(problem: FactorizationProblem, earlier: EarlierFit, *, joined: bool) -> FactorizationProblem:
    """The problem of a fit that starts from earlier factors: the start is part of the plan.

    joined : the ratings are additional; their mean and spread are combined with the earlier ones
    """
    digest = hashlib.blake2b(digest_size=8)
    factors = (earlier.row_factors, earlier.col_factors, earlier.row_bias, earlier.col_bias)
    moments = np.array([earlier.moments.mean, earlier.moments.scale, earlier.moments.entries * joined])
    for array in (*factors, *earlier.squares.values(), moments, earlier.rows, earlier.cols):
        digest.update(np.ascontiguousarray(array).tobytes())
    if earlier.noise is not None:
        digest.update(np.float64(earlier.noise).tobytes())
    before = earlier.moments if joined else None
    start = digest.hexdigest()
    return replace(problem, epochs_before=earlier.epochs, start=start, before=before, noise=earlier.noise)


def put_factors(job: FactorJob, earlier: EarlierFit) -> None:
    """Overwrite the initial factors with those of an earlier fit; new rows and columns keep the drawn factors.

    If the mean differs from the earlier one, the columns' biases compensate, so that predictions do not change. Squared
    gradients of an earlier fit with the same optimizer are copied too, so that step sizes do not grow.
    """
    factors = job.factors
    root = np.float32(1.0 / math.sqrt(factors.scale))
    for state, values, to in (
        (factors.W, earlier.row_factors, earlier.rows),
        (factors.H, earlier.col_factors, earlier.cols),
    ):
        _put(state, values * root, to)
    if factors.biased:
        shift = np.float32(earlier.moments.mean - factors.mean)
        _put(factors.b, earlier.row_bias / np.float32(factors.scale), earlier.rows)
        _put(factors.c, (earlier.col_bias + shift) / np.float32(factors.scale), earlier.cols)
    for name, state in factors.squares.items():
        if name in earlier.squares and len(state.array):
            _put(state, earlier.squares[name], (earlier.rows, earlier.cols)[squares_of(job.problem)[name][0]])
    if isinstance(job, CcdJob):
        job.put(factors)


def _put(state: BlockedRows, values: NDArray[Any], to: NDArray[Any]) -> None:
    """Write values, [n, width] or [n], into the rows `to` of the user's numbering; −1 is skipped."""
    kept = np.flatnonzero(to >= 0)
    places = state.cut.place[to[kept]]
    if values.ndim > 1:
        state.array[places, : values.shape[1]] = values[kept]
    else:
        state.array[places] = values[kept]


def refuse_duplicates(job: FactorJob, feed: RatingsInput) -> None:
    """Raise an error if a pair was rated twice, with its ids if found.

    Laying out the blocks has already counted such pairs.
    """
    if job.repeats and feed.data is not None:
        settle(feed.data, "error")
    if job.repeats:
        raise DataError(
            f"{job.repeats} pairs are rated more than once; settle them in the file (`stretto info` lists them) "
            "or pass duplicates='keep' to learn from every one"
        )
