"""What a file of a fitted `MatrixFactorization` holds: one safetensors file with arrays and a JSON description.

Reading it imports neither a compiler nor scikit-learn: ids and the problem of the fit are built when they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.models.persistence import plain, read_model, write_model

from .side.feature_map import MAPS, FeatureMap

if TYPE_CHECKING:
    from stretto.data.records.ids import IdMap
    from stretto.solvers.factorization.rated_items import RatedItems

    from .fitted_problem import FittedProblem

_FORMAT = "stretto/matrix-factorization/2"
_FORMER = "stretto/matrix-factorization/1"
_ARRAYS = {  # attribute → its name in the file, unchanged since the first version
    "user_factors_": "row_factors_",
    "item_factors_": "col_factors_",
    "user_bias_": "row_bias_",
    "item_bias_": "col_bias_",
}
_IDS = {"user_ids_": "row_ids/", "item_ids_": "col_ids/"}
_PLAIN = ("mean_", "scale_", "confidence_", "n_ratings_", "n_iter_", "n_features_in_", "fingerprint_", "history_")
_SEEN, _VALUES, _STATE = ("seen/indptr", "seen/indices"), "seen/values", "squares/"
# Fields of the problem that a fitted model needs.
_PROBLEM = (
    "rank",
    "solver",
    "optimizer",
    "loss",
    "reg",
    "bias_reg",
    "biases",
    "implicit",
    "alpha",
    "negatives",
    "noise",
    "features",
    "weights",
)


@dataclass(eq=False)
class FittedFile:
    """A fitted model as a file holds it.

    Attributes
    ----------
    parameters : dict
        Those of the estimator, in plain types.
    problem : dict
        Fields of the problem of the fit.
    attributes : dict
        Fitted attributes: arrays, plain values and maps of features, by name.
    id_arrays : dict
        Arrays of `user_ids_` and `item_ids_`; none for a side without ids.
    seen_arrays : (array, array)
        Where each row begins, and the columns that it rated.
    values : array or None
        The ratings, in the order of those columns.
    squares : dict of ndarray
        Squared gradients.
    mean_weight : float
        Mean confidence of a value in training, for ranking losses.
    """

    parameters: dict[str, Any]
    problem: dict[str, Any]
    attributes: dict[str, Any]
    id_arrays: dict[str, dict[str, NDArray[Any]]]
    seen_arrays: tuple[NDArray[np.int64], NDArray[np.int32]]
    values: NDArray[np.float32] | None
    squares: dict[str, NDArray[np.float32]]
    mean_weight: float = 1.0
    _built: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, *, values: bool = False) -> FittedFile:
        """A fitted estimator. values: with its ratings."""
        parameters = model.get_params(deep=False)
        parameters["runtime"] = None
        if not isinstance(parameters["random_state"], int | np.integer | None):
            parameters["random_state"] = None
        attributes = {name: np.ascontiguousarray(getattr(model, name)) for name in _ARRAYS}
        attributes |= {name: getattr(model, name) for name in (*_PLAIN, *MAPS)}
        ids = {name: getattr(model, name) for name in _IDS}
        seen: RatedItems = model.seen()
        problem = {name: getattr(model._learned.problem, name) for name in _PROBLEM}
        return cls(
            plain(parameters),
            plain(problem),
            attributes,
            {name: {} if own is None else own.to_arrays() for name, own in ids.items()},
            (seen.indptr, seen.indices),
            _values_by_row(model) if values else None,
            {name: np.ascontiguousarray(a) for name, a in model.squares_.items()},
            model._learned.mean_weight,
        )

    def ids(self, name: str) -> IdMap | None:
        """`user_ids_` or `item_ids_`."""
        if name not in self._built:
            from stretto.data.records.ids import IdMap

            own = self.id_arrays[name]
            self._built[name] = IdMap.from_arrays(own) if own else None
        found: IdMap | None = self._built[name]
        return found

    def learned(self) -> FittedProblem:
        """The problem of the fit, and its units."""
        if "problem" not in self._built:
            from stretto.solvers.factorization.problem import FactorizationProblem

            from .fitted_problem import FittedProblem

            mean, scale, confidence = (float(self.attributes[name]) for name in ("mean_", "scale_", "confidence_"))
            units = mean, scale, confidence, self.mean_weight
            self._built["problem"] = FittedProblem(FactorizationProblem(**self.problem), *units)
        found: FittedProblem = self._built["problem"]
        return found

    def seen(self) -> RatedItems:
        """What each row rated."""
        from stretto.solvers.factorization.rated_items import RatedItems

        return RatedItems(*self.seen_arrays)

    def write(self, path: str | Path) -> None:
        """Write the model atomically to one file."""
        arrays = {stored: self.attributes[name] for name, stored in _ARRAYS.items()}
        arrays |= {f"{_STATE}{name}": array for name, array in self.squares.items()}
        arrays |= dict(zip(_SEEN, self.seen_arrays, strict=True))
        if self.values is not None:
            arrays[_VALUES] = self.values
        for name, prefix in _IDS.items():
            arrays |= {f"{prefix}{part}": np.ascontiguousarray(a) for part, a in self.id_arrays[name].items()}
        about = {"parameters": self.parameters, "problem": self.problem, "mean_weight": self.mean_weight}
        about["fitted"] = {name: self.attributes[name] for name in _PLAIN}
        maps = {name: self.attributes[name] for name in MAPS if self.attributes[name] is not None}
        for name, one in maps.items():
            arrays |= {f"{MAPS[name]}{part}": array for part, array in one.arrays().items()}
        write_model(path, arrays, _FORMAT, about | {"features": {name: one.about() for name, one in maps.items()}})


def _values_by_row(model: Any) -> NDArray[np.float32]:
    """The ratings of the fit, in the order of `seen`."""
    seen, source = model.seen(), model._values()
    parts = list(source.chunks())
    rows, cols, values = (np.concatenate([part[k] for part in parts]) for k in range(3))
    order = np.lexsort((values, cols, rows))  # repeated pairs in the order of their values
    assert np.array_equal(cols[order], seen.indices)
    return np.ascontiguousarray(values[order], np.float32)


def read_fitted(path: str | Path, *, state: bool = True) -> FittedFile:
    """A file that `MatrixFactorization.save` wrote. state: also what only further training reads."""
    arrays, about = read_model(path, _FORMAT, former=(_FORMER,), leave_out="" if state else _STATE)
    attributes = {name: arrays[stored] for name, stored in _ARRAYS.items()} | about["fitted"]
    described = about.get("features", {})
    for name, prefix in MAPS.items():
        own = described.get(name)
        attributes[name] = None if own is None else FeatureMap.loaded(_under(arrays, prefix), own)
    ids = {name: _under(arrays, prefix) for name, prefix in _IDS.items()}
    seen = arrays[_SEEN[0]], arrays[_SEEN[1]]
    # Files of earlier versions lack the mean weight; this is it where all counts are alike.
    weight = about.get("mean_weight", 1.0 + about["problem"]["alpha"])
    return FittedFile(
        about["parameters"],
        about["problem"],
        attributes,
        ids,
        seen,
        arrays.get(_VALUES),
        _under(arrays, _STATE),
        weight,
    )


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
