"""Save and load a fitted linear model: one safetensors file with arrays and a JSON description, no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stretto.errors import DataError
from stretto.models.persistence import read_model, savable, write_model

_FORMATS = {
    "ElasticNet": "stretto/elastic-net/1",
    "GroupLasso": "stretto/group-lasso/1",
    "HuberElasticNet": "stretto/huber-elastic-net/1",
    "MultiTaskElasticNet": "stretto/multi-task-elastic-net/1",
    "MultiTaskLasso": "stretto/multi-task-lasso/1",
    "PoissonRegressor": "stretto/poisson-regressor/1",
    "ElasticNetCV": "stretto/elastic-net-cv/1",
    "FactorizationMachine": "stretto/factorization-machine/1",
    "Lasso": "stretto/lasso/1",
    "LassoCV": "stretto/lasso-cv/1",
    "LinearSVC": "stretto/linear-svc/1",
    "LogisticRegressionCV": "stretto/logistic-regression-cv/1",
    "LogisticRegression": "stretto/logistic-regression/1",
}
# Attributes of all linear models; each has some of them, unless its class lists others in `_saved_arrays`.
_ARRAYS = ("coef_", "intercept_", "dual_gap_", "objective_", "n_iter_", "alphas_", "mse_path_",
    "Cs_", "l1_ratios_", "scores_", "coefs_paths_",)  # fmt: skip
_PLAIN = ("n_features_in_", "fingerprint_", "alpha_", "l1_ratio_", "C_", "l2_", "l2_factors_", "history_")


def _format(kind: type) -> str:
    """The file format of an estimator class or of a class derived from it."""
    return next(_FORMATS[base.__name__] for base in kind.__mro__ if base.__name__ in _FORMATS)


def save(model: Any, path: str | Path) -> None:
    """Write the model atomically to one file."""
    parameters = savable(type(model).__name__, _weights(model.get_params(deep=False)), schedule=None)
    names = getattr(model, "_saved_arrays", _ARRAYS)
    arrays = {name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)}
    about: dict[str, Any] = {
        "parameters": parameters,
        "fitted": {name: getattr(model, name) for name in _PLAIN if hasattr(model, name)},
        "numbers": [name for name in arrays if not isinstance(getattr(model, name), np.ndarray)],
    }
    if hasattr(model, "feature_names_in_"):
        about["feature_names_in_"] = [str(name) for name in model.feature_names_in_]
    if hasattr(model, "classes_"):
        about["classes_"] = {"values": model.classes_.tolist(), "dtype": _dtype(model.classes_)}
    write_model(
        path, {name: np.ascontiguousarray(array) for name, array in arrays.items()}, _format(type(model)), about
    )


def load(kind: Any, path: str | Path) -> Any:
    """A model of class `kind` from a file written by `save`."""
    arrays, about = read_model(path, _format(kind))
    try:
        parameters = dict(about["parameters"])
        if isinstance(weights := parameters.get("class_weight"), list):
            parameters["class_weight"] = dict(weights)
        model = kind(**parameters)
        for name, array in arrays.items():
            setattr(model, name, array.item() if name in about["numbers"] else array)
        for name, value in about["fitted"].items():
            setattr(model, name, value)
        if "feature_names_in_" in about:
            model.feature_names_in_ = np.array(about["feature_names_in_"], object)
        if "classes_" in about:
            model.classes_ = np.array(about["classes_"]["values"], about["classes_"]["dtype"])
        model.coef_, model.intercept_  # noqa: B018
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: damaged, or of another version ({error}); train and save the model again") from error
    return model


def _weights(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with a mapping {class: weight} as pairs, because JSON keys are text, and groups of bare numbers."""
    if isinstance(groups := parameters.get("groups"), list | tuple):
        parameters = parameters | {"groups": [_bare(one) for one in groups]}
    weights = parameters.get("class_weight")
    if weights is None or isinstance(weights, str):
        return parameters
    pairs = [[_bare(label), _bare(weight)] for label, weight in weights.items()]
    return parameters | {"class_weight": pairs}


def _bare(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_bare(one) for one in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _dtype(classes: Any) -> str:
    return "object" if classes.dtype.kind == "O" else str(classes.dtype.str)
