"""Side features in a fit: joined with the ratings before it, and as fitted maps after it."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.data.records.digest import digest_of
from stretto.data.records.ids import IdMap
from stretto.errors import DataError, PlanError
from stretto.models.factorization.align import entries_of, is_matrix
from stretto.models.factorization.continue_fit import grown
from stretto.solvers.factorization.features import FeatureMatrix
from stretto.solvers.factorization.prior_means import PriorMeans
from stretto.solvers.factorization.problem import FactorizationProblem, Factors

from .feature_map import FeatureColumns, FeatureMap
from .tables import FeatureTable, read_features

OPTIONS = ("user_features", "item_features")
_AXES = ("row", "column")


@dataclass(frozen=True, eq=False)
class SideFeatures:
    """Features of rows and of columns in the numbering of the ratings; None for a side without them."""

    matrices: tuple[FeatureMatrix | None, FeatureMatrix | None]
    columns: tuple[FeatureColumns | None, FeatureColumns | None]

    def digest(self) -> str:
        """What the fingerprint of a plan has of the features."""
        parts: list[Any] = []
        for one in self.matrices:
            parts += [np.zeros(0)] if one is None else [one.indptr, one.indices, one.values, one.known, one.columns]
        return digest_of(*parts)

    def fitted(self, means: PriorMeans | None, factors: Factors) -> tuple[FeatureMap | None, FeatureMap | None]:
        """The maps of a fit, in the units of the ratings."""
        assert means is not None
        root, rank = math.sqrt(factors.scale), factors.W.width
        unit = np.append(np.full(rank, root), factors.scale)
        found: list[FeatureMap | None] = []
        for side, columns in enumerate(self.columns):
            own, standard = means.maps[side], means.standard_of(side)
            if own is None or standard is None or columns is None:
                found.append(None)
                continue
            coef, level, penalty = own["coef"], own["level"], own["penalty"]
            if not factors.biased:
                coef, level = np.hstack([coef, np.zeros((len(coef), 1))]), np.append(level, 0.0)
                penalty = np.append(penalty, np.inf)
            scaled = coef * unit, level * unit
            found.append(FeatureMap(*scaled, standard.mean, standard.spread, penalty.copy(), columns))
        return found[0], found[1]


def refuse_features(problem: FactorizationProblem, *, memory: Any, one_memory: bool, warm_start: bool) -> None:
    """PlanError if a fit cannot have side features."""
    why = None
    if problem.solver == "ccd":
        why = "solver='als' or 'sgd', got 'ccd', which learns one factor of all rows after another"
    elif problem.solver == "sgd" and problem.optimizer != "sgd":
        why = f"optimizer='sgd', got {problem.optimizer!r}, whose steps do not say how far a penalty has shrunk a row"
    elif memory is not None:
        why = "the factors in memory; leave memory= out"
    elif not one_memory:
        why = "the factors in one memory, and those of a cluster are on its nodes; fit on this machine"
    elif warm_start:
        why = "a fit from the start; set warm_start=False"
    if why is not None:
        raise PlanError(f"fit: user_features and item_features need {why}")


def join(X: Any, y: Any, given: tuple[Any, Any], policy: str) -> tuple[Data, SideFeatures]:
    """The ratings, with a row or column for each id that has features but no ratings, and the features."""
    data = entries_of(X, y, policy)
    positions = is_matrix(X, data)
    tables = tuple(
        None if one is None else read_features(one, option) for one, option in zip(given, OPTIONS, strict=True)
    )
    sides = list(zip(tables, data.ids, data.shape, strict=True))
    ids = tuple(own if table is None else _more_ids(table, own) for table, own, _ in sides)
    shape = tuple(
        size if table is None or table.ids is not None or own is not None or positions else max(size, len(table.matrix))
        for table, own, size in sides
    )
    if any(new is not own for new, own in zip(ids, data.ids, strict=True)) or shape != data.shape:
        data = grown(data, ids, shape)  # type: ignore[arg-type]
    matrices = tuple(
        None if table is None else table.aligned(own, size)
        for table, own, size in zip(tables, data.ids, data.shape, strict=True)
    )
    for table, matrix, index, axis in zip(tables, matrices, (data.rows, data.cols), _AXES, strict=True):
        if table is not None and matrix is not None:
            _warn_unknown(table.option, matrix, index, axis)
    return data, SideFeatures(matrices, tuple(None if one is None else one.columns for one in tables))  # type: ignore[arg-type]


def _more_ids(table: FeatureTable, own: IdMap | None) -> IdMap | None:
    """The ids of the ratings and those of the features; those of the ratings if there are no others."""
    more = table.id_map()
    if own is None or more is None:
        return own
    if own.is_text != more.is_text:
        kinds = ("text", "integers") if own.is_text else ("integers", "text")
        raise DataError(f"{table.option} has ids that are {kinds[1]}, and those of the ratings are {kinds[0]}")
    union = IdMap.of(np.concatenate([own.ids, more.ids]))
    return own if len(union) == len(own) else union


def _warn_unknown(option: str, matrix: FeatureMatrix, index: NDArray[Any], axis: str) -> None:
    rated = np.zeros(len(matrix), np.bool_)
    rated[index] = True
    lacking = int(np.count_nonzero(rated & ~matrix.known))
    if lacking == np.count_nonzero(rated):
        raise DataError(f"{option} describes no {axis} that has ratings; give it the ids of the ratings")
    if lacking:
        warnings.warn(
            f"{option} has nothing about {lacking} of {int(rated.sum())} {axis}s with ratings; they are treated as "
            "average ones",
            UserWarning,
            stacklevel=2,
        )
