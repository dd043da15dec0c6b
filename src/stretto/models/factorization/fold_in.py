"""Fold-in: factors and biases of rows that were not in training, from their ratings and the learned columns.

Each row minimises the objective of training with the columns fixed: half of an ALS epoch for squared loss and implicit
feedback, Newton steps for the other losses, steps of SGD for those that rank. Everything is computed in the
standardised units of training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import straight
from stretto.errors import DataError
from stretto.kernels.factorization import als
from stretto.kernels.factorization.fold_in import newton_worker
from stretto.kernels.factorization.fold_in_ranking import fold_in_ranking_worker
from stretto.kernels.factorization.loss_codes import CODES
from stretto.kernels.factorization.ranking import METHODS
from stretto.kernels.numeric.lanes import padded
from stretto.runtime.blocks.compressed import Compressed
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent
from stretto.solvers.factorization import factors as mf_serve
from stretto.solvers.factorization.factors import PaddedFactors
from stretto.solvers.factorization.penalties import penalties
from stretto.solvers.factorization.prior_means import NO_PRIOR
from stretto.solvers.factorization.problem import RANKING_RATES
from stretto.solvers.factorization.ranking import ranking_penalties

from .fitted_problem import FittedProblem

Array = NDArray[Any]
Floats = NDArray[np.float32]
_PARTS = 64
_PASSES = 30  # over the values of a row that is folded in by SGD
_NO_GRAM = np.zeros((0, 0), np.float32)
_NO_BIAS = np.zeros(0, np.float32)
Means = tuple[Floats, Floats]  # [m, rank] factors and [m] biases
_UNTRACED = (np.zeros((0, 0)), np.zeros((0, 2)))


@dataclass(frozen=True, eq=False)
class StandardColumns:
    """The learned columns in the standardised units of training, with a column of ones where there are biases."""

    Y: Floats  # [n, padded(rank + 1)] or [n, padded(rank)]
    offset: Floats  # [n] biases, or length 0
    own: int  # the column of ones, which belongs to a row's bias; −1 without biases
    root: np.float32  # the unit of factors
    scale: np.float32  # the unit of ratings

    @classmethod
    def of(cls, model: PaddedFactors, learned: FittedProblem) -> StandardColumns:
        """From factors in the units of the ratings."""
        rank, biased = learned.problem.rank, learned.problem.biases and not learned.problem.implicit
        root, scale = np.float32(math.sqrt(learned.scale)), np.float32(learned.scale)
        Y = np.zeros((len(model.H), padded(rank + biased)), np.float32)
        np.divide(model.H[:, :rank], root, out=Y[:, :rank])
        if biased:
            Y[:, rank] = 1.0
        return cls(Y, model.c / scale if biased else _NO_BIAS, rank if biased else -1, root, scale)

    def values(self, values: Floats, learned: FittedProblem) -> Floats:
        """Ratings in these units; counts as they are."""
        if learned.problem.implicit:
            return values
        return np.asarray((values - np.float32(learned.mean)) / self.scale)


def fold_in(
    model: PaddedFactors, rows: Compressed, learned: FittedProblem, crew: Crew, means: Means | None = None
) -> tuple[Floats, Floats]:
    """([m, rank] factors, [m] biases) of new rows; those of `means`, or 0, for a row without ratings.

    means : what the rows are expected to be before their ratings are seen, in the same form
    """
    W, b = _folded_in(model, rows, learned, crew, means)
    if means is not None:
        empty = np.diff(rows.indptr) == 0
        W[empty], b[empty] = means[0][empty], means[1][empty]
    return W, b


def _folded_in(
    model: PaddedFactors, rows: Compressed, learned: FittedProblem, crew: Crew, means: Means | None
) -> tuple[Floats, Floats]:
    problem = learned.problem
    if problem.ranking:
        return fold_in_ranking(model, rows, learned, crew, means=means)
    rank, implicit = problem.rank, problem.implicit
    columns = StandardColumns.of(model, learned)
    Y, offset, own, root, scale = columns.Y, columns.offset, columns.own, columns.root, columns.scale
    width, biased = Y.shape[1], own >= 0
    X = np.zeros((len(rows.counts), width), np.float32)
    prior = NO_PRIOR if means is None else np.zeros_like(X)
    if means is not None:
        np.divide(means[0], root, out=prior[:, :rank])
        if biased:
            np.divide(means[1], scale, out=prior[:, rank])
    values = columns.values(rows.values, learned)
    reg = penalties(problem, learned.scale)
    per_rating = (np.float32(reg.factors), own, np.float32(reg.biases))
    cut = straight(rows.counts, max(1, min(256, len(values) // 1024)))
    data: tuple[Any, ...] = (cut.bounds, rows.indptr, rows.indices, values)
    weight = np.diff(rows.indptr[cut.bounds])
    if problem.loss == "squared":
        gram = gramian(Y, crew) if implicit else _NO_GRAM
        data += (rows.weights, X, Y, gram, offset, np.float32(0.0), *per_rating, np.float32(learned.confidence), prior)
        data += (np.float32(reg.ridge), np.float32(reg.bias_ridge), als.scratch(crew.workers, width))
        kernel = als.cholesky_worker
    else:
        data += (X, Y, offset, *per_rating, prior, CODES[problem.loss])
        kernel = newton_worker
    mf_serve.run(crew, make_step("fold in", kernel, independent(cut.blocks), weight, *data))
    W = np.ascontiguousarray(X[:, :rank]) * root
    b = X[:, rank] * scale if biased else np.zeros(len(X), np.float32)
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
        raise DataError(
            "fold in: the factors of a row do not fit 32-bit floats; its values are too far from those of training"
        )
    return W, b


def fold_in_ranking(
    model: PaddedFactors,
    rows: Compressed,
    learned: FittedProblem,
    crew: Crew,
    *,
    means: Means | None = None,
    traced: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> tuple[Floats, Floats]:
    """`fold_in` of a ranking loss: steps of SGD on the new rows alone.

    means : as of `fold_in`
    traced : (along, parts) of the kernel, to find what each value contributes to a score
    """
    problem, biased = learned.problem, learned.problem.biases
    cut = straight(rows.counts, max(1, min(256, len(rows.values) // 1024)))
    X, b = np.zeros((len(rows.counts), model.H.shape[1]), np.float32), np.zeros(len(rows.counts), np.float32)
    prior = NO_PRIOR
    if means is not None:
        X[:, : problem.rank], b[:] = means
        prior = X.copy()
    pool = np.flatnonzero(model.H.any(axis=1)).astype(np.int32)
    rate = RANKING_RATES[problem.loss]
    numbers = (rate, *ranking_penalties(problem, rate), learned.confidence, learned.mean_weight)
    step = make_step(
        "fold in",
        fold_in_ranking_worker,
        independent(cut.blocks),
        np.diff(rows.indptr[cut.bounds]),
        cut.bounds,
        rows.indptr,
        rows.indices,
        rows.values,
        X,
        model.H,
        b if biased else _NO_BIAS,
        model.c if biased else _NO_BIAS,
        pool,
        prior,
        *(np.float32(each) for each in numbers),
        METHODS[problem.loss],
        problem.draws,
        _PASSES,
        *(traced or _UNTRACED),
    )
    mf_serve.run(crew, step)
    return np.ascontiguousarray(X[:, : problem.rank]), b


def gramian(Y: Floats, crew: Crew) -> Floats:
    """Yᵀ Y, summed in fixed blocks."""
    bounds = parts(len(Y), _PARTS, 1024)
    width = Y.shape[1]
    partial, gram = np.zeros((len(bounds) - 1, width, width), np.float32), np.zeros((width, width), np.float32)
    mf_serve.run(
        crew, make_step("gram", als.gram_worker, independent(len(bounds) - 1), np.diff(bounds), bounds, Y, partial)
    )
    als.fold_gram(partial, gram)
    return gram
