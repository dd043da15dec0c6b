"""Save and load a fitted `MatrixFactorization`: one safetensors file with arrays and a JSON description, no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stretto.data.records.ids import IdMap
from stretto.models.persistence import plain, read_model, write_model
from stretto.models.renamed import under_current_names
from stretto.solvers.factorization.factors import RatedItems
from stretto.solvers.factorization.problem import FactorizationProblem

from .fold_in import FittedProblem
from .side_features import FeatureMap

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
)
_MAPS = {"user_feature_map_": "user_features/", "item_feature_map_": "item_features/"}


def save(model: Any, path: str | Path) -> None:
    """Write the model atomically to one file."""
    arrays = {stored: np.ascontiguousarray(getattr(model, name)) for name, stored in _ARRAYS.items()}
    arrays |= {f"squares/{name}": np.ascontiguousarray(a) for name, a in model.squares_.items()}
    seen: RatedItems = model.seen()
    arrays |= {"seen/indptr": seen.indptr, "seen/indices": seen.indices}
    for attribute, prefix in _IDS.items():
        ids: IdMap | None = getattr(model, attribute)
        if ids is not None:
            arrays |= {f"{prefix}{name}": np.ascontiguousarray(a) for name, a in ids.to_arrays().items()}
    parameters = model.get_params(deep=False)
    parameters["runtime"] = None
    if not isinstance(parameters["random_state"], int | np.integer | None):
        parameters["random_state"] = None
    problem = {name: getattr(model._learned.problem, name) for name in _PROBLEM}
    fitted = {name: getattr(model, name) for name in _PLAIN}
    maps = {attribute: getattr(model, attribute) for attribute in _MAPS}
    for attribute, prefix in _MAPS.items():
        if maps[attribute] is not None:
            arrays |= {f"{prefix}{name}": array for name, array in maps[attribute].arrays().items()}
    about = {"parameters": plain(parameters), "problem": plain(problem), "fitted": fitted}
    about["features"] = {name: one.about() for name, one in maps.items() if one is not None}
    write_model(path, arrays, _FORMAT, about)


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def load(kind: Any, path: str | Path) -> Any:
    """A model of class `kind` from a file written by `save`."""
    arrays, about = read_model(path, _FORMAT, former=(_FORMER,))
    model = kind(**under_current_names(about["parameters"]))
    for name, stored in _ARRAYS.items():
        setattr(model, name, arrays[stored])
    for name, value in about["fitted"].items():
        setattr(model, name, value)
    model.squares_ = _under(arrays, "squares/")
    for attribute, prefix in _IDS.items():
        own = _under(arrays, prefix)
        setattr(model, attribute, IdMap.from_arrays(own) if own else None)
    for attribute, prefix in _MAPS.items():
        stored = about.get("features", {}).get(attribute)
        setattr(model, attribute, None if stored is None else FeatureMap.loaded(_under(arrays, prefix), stored))
    problem = FactorizationProblem(**about["problem"])
    model._learned = FittedProblem(problem, model.mean_, model.scale_, model.confidence_)
    model._seen, model._trained_on, model._scratch = (
        RatedItems(arrays["seen/indptr"], arrays["seen/indices"]),
        None,
        None,
    )
    return model
