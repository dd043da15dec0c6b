"""Weights of ratings: what the squared error of each counts in a fit by als, or how often an action was done.

Ratings of weight 0 are left out and weights that are all 1 are dropped, so that neither changes a bit of a plain fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.convert import plain_array
from stretto.data.convert.scipy_entries import is_sparse
from stretto.data.records.data import Data
from stretto.data.records.digest import digest_of
from stretto.errors import DataError, PlanError
from stretto.runtime.blocks.survey import Survey
from stretto.solvers.factorization.problem import FactorizationProblem

from .align import entries_of

Floats = NDArray[np.float32]
_READ = "read the ratings first, with st.read(path), whose records have an order"


@dataclass(frozen=True, eq=False)
class Weighted:
    """Ratings in memory, and their weights."""

    data: Data
    weights: Floats | None  # [n]; None: all are 1, or they are in the values

    def digest(self) -> str:
        """What the fingerprint of a plan has of the weights; it does not depend on the order of the ratings."""
        if self.weights is None:
            return ""
        return digest_of(self.weights[np.lexsort((self.data.cols, self.data.rows))])


def weighted(X: Any, y: Any, weights: Any, problem: FactorizationProblem, duplicates: str, memory: Any) -> Weighted:
    """Ratings with weights, as `fit` takes them; an error says which fits cannot have weights.

    Weights of implicit feedback multiply its values, which are counts of actions.
    """
    if not problem.implicit and problem.solver != "als":
        raise PlanError(
            f"fit: weights of ratings need solver='als', got {problem.solver!r}; or implicit=True, where they multiply "
            "the counts"
        )
    if duplicates != "error":
        raise PlanError(f"fit: weights need duplicates='error', got {duplicates!r}; merge repeated pairs beforehand")
    if memory is not None:
        raise PlanError("fit: weights need the ratings in memory; leave memory= out")
    if isinstance(X, str) or hasattr(X, "__fspath__"):
        raise DataError(f"fit: weights belong to ratings in memory, and X is a file; {_READ}")
    data = entries_of(X, y, "keep")
    given = _of_ratings(X, data, weights)
    kept = given > 0
    if not kept.any():
        raise DataError("fit: every weight is zero, so there is nothing to learn from")
    if not kept.all():
        data, given = data.take(kept), given[kept]
    if problem.implicit:
        with np.errstate(over="ignore"):
            values = data.values * given
        if not np.isfinite(values).all():
            raise DataError("fit: a count times its weight is too large for 32-bit floats; divide the weights first")
        return Weighted(replace(data, values=values), None)
    return Weighted(data, None if (given == 1).all() else given)


def _of_ratings(X: Any, data: Data, weights: Any) -> Floats:
    """[n] weights in the order of the ratings of data, checked."""
    found = weights.tocsr() if is_sparse(weights) else plain_array(weights, "weights")
    if found.ndim == 2:
        if found.shape != data.shape:
            raise DataError(f"weights have shape {found.shape}, and the ratings are a matrix of {data.shape}")
        found = np.asarray(found[data.rows, data.cols]).ravel()
    elif is_sparse(X) and not getattr(X, "has_canonical_format", False):
        raise DataError(
            "weights [n] follow the stored numbers of a sparse matrix, and these have no fixed order; call "
            "X.sum_duplicates() first, or give the weights as a sparse matrix"
        )
    if found.shape != (len(data),):
        raise DataError(
            f"weights has shape {found.shape}; sample_weight and weights need one number for each of the {len(data):,} "
            "ratings"
        )
    if found.dtype.kind not in "biuf":
        raise DataError(f"weights are numbers, got dtype {found.dtype}")
    with np.errstate(over="ignore"):
        given = np.ascontiguousarray(found, dtype=np.float32)
    bad = np.flatnonzero(~(np.isfinite(given) & (given >= 0)))
    if len(bad):
        raise DataError(f"a weight is a finite number from 0 on; weight {bad[0]} is {found[bad[0]]}")
    return given


def weighted_survey(seen: Survey, ratings: Weighted) -> Survey:
    """The survey with mean and standard deviation of the weighted ratings.

    Products of two 32-bit floats are exact in 64 bits and their sum is rounded once, so the order does not matter.
    """
    if ratings.weights is None:
        return seen
    weights, values = ratings.weights.astype(np.float64), ratings.data.values.astype(np.float64)
    total = math.fsum(weights.tolist())
    mean = float(np.float32(math.fsum((weights * values).tolist()) / total))
    std = float(np.float32(math.sqrt(math.fsum((weights * (values - mean) ** 2).tolist()) / total)))
    return replace(seen, mean=mean, std=std)
