"""From a problem and ratings to a job: the solver, its plan, its first factors, in memory or on disk."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.data.duplicates import settle
from stretto.errors import DataError
from stretto.plan.plan import Physical
from stretto.runtime.crew import Crew
from stretto.runtime.job import Job
from stretto.runtime.layout import survey, tally
from stretto.state.rows import Rows

from .mf_als import count_rows, lay_out_als
from .mf_base import Factors, Moments, Problem, squares_of
from .mf_ccd import CcdJob, lay_out_ccd
from .mf_cost import refuse_rank, refuse_time
from .mf_counted import Counted
from .mf_feed import Feed
from .mf_measure import Held
from .mf_nodes import FileSource, count_from_file, lay_out_from_file
from .mf_sgd import count_sgd, entry_bytes, lay_out_sgd, logical_sgd, plan_sgd, row_bytes
from .mf_stream import choose_side, stream_sgd


class FactorJob(Job, Protocol):
    """A job that learns factors."""

    @property
    def problem(self) -> Problem: ...

    @property
    def factors(self) -> Factors: ...

    @property
    def repeats(self) -> int:
        """Pairs that were rated more than once."""
        ...


@dataclass(frozen=True, eq=False)
class Earlier:
    """What an earlier fit learned, in the ratings' units, and where its rows and columns are in the next one."""

    row_factors: NDArray[np.float32]
    col_factors: NDArray[np.float32]
    row_bias: NDArray[np.float32]
    col_bias: NDArray[np.float32]
    squares: dict[str, NDArray[np.float32]]
    moments: Moments
    epochs: int
    rows: NDArray[Any]  # [m] index in the next fit, −1 for a row that it does not have
    cols: NDArray[Any]  # [n]


def count(
    problem: Problem,
    feed: Feed,
    crew: Crew,
    *,
    seed: int,
    profile: str,
    width: int,
    physical: Physical,
    stream: bool = False,
) -> Counted:
    """Plan the problem's solver from counts of the ratings; nothing is laid out.

    stream : whether what exceeds the budget may be streamed from disk
    """
    common: dict[str, Any] = {"seed": seed, "profile": profile, "width": width, "physical": physical}
    if feed.by_nodes and problem.solver == "sgd":
        assert isinstance(feed.source, FileSource)
        return count_from_file(problem, feed.source, crew, **common)
    if stream and problem.solver == "sgd" and physical.memory is not None:
        streamed = _count_streamed(problem, feed, crew, **common)
        if streamed is not None:
            return streamed
    if feed.data is None:
        raise DataError(f"solver={problem.solver!r} cannot learn from disk; use solver='sgd', or fit without memory=")
    counting = count_sgd if problem.solver == "sgd" else count_rows
    return counting(problem, feed.data, crew, **common)


def _count_streamed(problem: Problem, feed: Feed, crew: Crew, *, physical: Physical, **common: Any) -> Counted | None:
    """The plan of a streamed job, or None when everything fits in memory anyway."""
    seen = survey(feed.source, crew)
    logical = logical_sgd(problem, seen, **common)
    weight = np.zeros(len(logical.order), np.int64)
    for chunk in feed.source.chunks():
        weight += tally(chunk, logical.rows, logical.cols, logical.order, crew).weight
    plan = plan_sgd(problem, logical, weight, physical)
    refuse_rank(problem, feed.shape)
    refuse_time(problem, plan)
    if feed.data is not None and plan.cost.memory <= (physical.memory or 0):
        return None
    side = choose_side(plan, entry_bytes(logical), row_bytes(problem))
    return Counted(replace(plan, physical=replace(physical, tile=side)), seen)


def lay_out_factors(
    problem: Problem,
    counted: Counted,
    feed: Feed,
    crew: Crew,
    *,
    scratch: Path | None = None,
    once: bool = False,
) -> FactorJob:
    """The job that runs a plan: the ratings laid out in memory or on disk, the first factors drawn.

    scratch : the folder of what is streamed
    once : nodes that read the ratings refuse pairs that are rated twice
    """
    plan = counted.plan
    if feed.by_nodes:
        assert isinstance(feed.source, FileSource)
        return lay_out_from_file(problem, counted, feed.source, crew, test=feed.test, once=once)
    if plan.physical.tile is not None:
        assert scratch is not None
        job = stream_sgd(problem, plan, feed.source, counted.seen, scratch, crew, seed=plan.logical.seed)
        job.held = None if feed.test is None else Held.out(feed.test, plan.logical.rows, plan.logical.cols)
        return job
    makers: dict[str, Callable[..., FactorJob]] = {"sgd": lay_out_sgd, "als": lay_out_als, "ccd": lay_out_ccd}
    return makers[problem.solver](problem, counted, feed.data, crew, test=feed.test)


def build(
    problem: Problem, feed: Feed, crew: Crew, *, scratch: Path | None = None, once: bool = False, **settings: Any
) -> FactorJob:
    """Plan and lay out. settings: those of `count`."""
    counted = count(problem, feed, crew, stream=scratch is not None, **settings)
    return lay_out_factors(problem, counted, feed, crew, scratch=scratch, once=once)


def going_on(problem: Problem, earlier: Earlier, *, joined: bool) -> Problem:
    """The problem of a fit that starts from earlier factors: another start is another plan.

    joined: the ratings are further ones, whose mean and spread join those of before.
    """
    digest = hashlib.blake2b(digest_size=8)
    factors = (earlier.row_factors, earlier.col_factors, earlier.row_bias, earlier.col_bias)
    moments = np.array([earlier.moments.mean, earlier.moments.scale, earlier.moments.entries * joined])
    for array in (*factors, *earlier.squares.values(), moments, earlier.rows, earlier.cols):
        digest.update(np.ascontiguousarray(array).tobytes())
    before = earlier.moments if joined else None
    return replace(problem, epochs_before=earlier.epochs, start=digest.hexdigest(), before=before)


def put_factors(job: FactorJob, earlier: Earlier) -> None:
    """Overwrite the first factors with those of an earlier fit; rows and columns it did not have stay as drawn.

    Where the mean differs from the earlier one, the columns' biases make up for it, so that predictions stay what they
    were. The squared gradients of an earlier fit with the same optimizer come along, so that its steps stay as small as
    they were.
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


def _put(state: Rows, values: NDArray[Any], to: NDArray[Any]) -> None:
    """Write values, [n, width] or [n], into the rows `to` of the user's numbering; −1 is left out."""
    kept = np.flatnonzero(to >= 0)
    places = state.cut.place[to[kept]]
    if values.ndim > 1:
        state.array[places, : values.shape[1]] = values[kept]
    else:
        state.array[places] = values[kept]


def refuse_duplicates(job: FactorJob, feed: Feed) -> None:
    """Raise, naming the pair when it can be found, if one was rated twice. Laying out the blocks has counted them
    already.
    """
    if job.repeats and feed.data is not None:
        settle(feed.data, "error")
    if job.repeats:
        raise DataError(
            f"{job.repeats} pairs are rated more than once; settle them in the file (`stretto info` lists them) "
            "or pass duplicates='keep' to learn from every one"
        )
