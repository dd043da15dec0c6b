"""`FeatureMap`: what a fitted model has learned from side features. Importing this imports no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.solvers.factorization.features import FeatureMatrix

Floats = NDArray[np.float32]
MAPS = {"user_feature_map_": "user_features/", "item_feature_map_": "item_features/"}  # attributes, prefixes in files
_ARRAYS = ("coef", "level", "mean", "spread", "penalty")


@dataclass(frozen=True)
class FeatureColumns:
    """What the columns of the features are.

    Attributes
    ----------
    count : int
        Number of features.
    names : tuple of (str, tuple of str or None)
        Columns of a table, with the values of those that hold text; empty for a matrix.
    """

    count: int
    names: tuple[tuple[str, tuple[str, ...] | None], ...] = ()

    def feature_names(self) -> list[str]:
        """One name for each feature: of a table `column` or `column=value`, of a matrix its position."""
        if not self.names:
            return [str(k) for k in range(self.count)]
        return [name for column, values in self.names for name in _names_of(column, values)]


def _names_of(column: str, values: tuple[str, ...] | None) -> list[str]:
    return [column] if values is None else [f"{column}={value}" for value in values]


def plain_columns(columns: FeatureColumns) -> dict[str, Any]:
    """The columns as JSON."""
    return {"count": columns.count, "names": [[name, values] for name, values in columns.names]}


def columns_from(stored: dict[str, Any]) -> FeatureColumns:
    """The inverse of `plain_columns`."""
    names = tuple((name, None if values is None else tuple(values)) for name, values in stored["names"])
    return FeatureColumns(stored["count"], names)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A linear map from features to factors and bias: what a row is expected to be before its ratings are seen.

    Attributes
    ----------
    coef : [p, n_components + 1] float64
        What one standard deviation of each feature adds to the factors and, in the last column, to the bias.
    level : [n_components + 1] float64
        Factors and bias of average features.
    mean, spread : [p] float64
        Mean and standard deviation of the features; the spread of one that does not vary is infinite.
    penalty : [2] float64
        Penalties of the maps to factors and to biases for each row; infinite where features do not help.
    columns : FeatureColumns
        What the features are; `columns.feature_names()` has a name for each.
    """

    coef: NDArray[np.float64]
    level: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    penalty: NDArray[np.float64]
    columns: FeatureColumns

    def __repr__(self) -> str:
        return f"FeatureMap({len(self.coef)} features to {self.coef.shape[1] - 1} factors and a bias)"

    def means(self, X: FeatureMatrix, crew: Crew) -> tuple[Floats, Floats]:
        """([m, n_components] factors, [m] biases) that features stand for; average ones where they are not known."""
        from stretto.solvers.factorization.features import Standard

        found = Standard(self.mean, self.spread).means(X, self.coef, self.level, crew).astype(np.float32)
        return np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, -1])

    def average(self, rows: int) -> tuple[Floats, Floats]:
        """`means` of rows whose features are not known."""
        found = np.tile(self.level.astype(np.float32), (rows, 1))
        return np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, -1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a saved model has of it, besides `about`."""
        return {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}

    def about(self) -> dict[str, Any]:
        """The rest, as JSON."""
        return plain_columns(self.columns)

    @classmethod
    def loaded(cls, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> FeatureMap:
        """The inverse of `arrays` and `about`."""
        return cls(**{name: arrays[name] for name in _ARRAYS}, columns=columns_from(about))
