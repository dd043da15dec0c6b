"""Save and load estimators: one safetensors file with arrays and a JSON description, no pickle.

A file names its format, such as "stretto/lasso/1": the kind of model and the version of its layout.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stretto.atomic import replacing
from stretto.errors import DataError, PlanError
from stretto.runtime.files import array_file

# Format, without its version → the class that reads it, and the commands that train and use such a model, if any.
_KINDS = {
    "matrix-factorization": ("MatrixFactorization", "`stretto train mf`", "`stretto recommend`"),
    "latent-dirichlet-allocation": ("LatentDirichletAllocation", "`stretto train lda`", "`stretto topics`"),
    "factorization-machine": ("FactorizationMachine", "", ""),
    "lasso": ("Lasso", "", ""),
    "elastic-net": ("ElasticNet", "", ""),
    "group-lasso": ("GroupLasso", "", ""),
    "huber-elastic-net": ("HuberElasticNet", "", ""),
    "multi-task-elastic-net": ("MultiTaskElasticNet", "", ""),
    "multi-task-lasso": ("MultiTaskLasso", "", ""),
    "poisson-regressor": ("PoissonRegressor", "", ""),
    "elastic-net-cv": ("ElasticNetCV", "", ""),
    "lasso-cv": ("LassoCV", "", ""),
    "linear-svc": ("LinearSVC", "", ""),
    "logistic-regression-cv": ("LogisticRegressionCV", "", ""),
    "logistic-regression": ("LogisticRegression", "", ""),
}


def plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters in a form that JSON can hold; others as text."""
    bare = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
    return {k: v if isinstance(v, str | int | float | bool | None) else repr(v) for k, v in bare.items()}


def write_model(path: str | Path, arrays: dict[str, Any], format_: str, about: dict[str, Any]) -> None:
    """Write arrays and a description atomically to one file. Equal models give equal bytes."""
    target = Path(path)
    notes = {"format": format_, "model": json.dumps(about)}
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not by safetensors itself, which writes the notes in random order.
    with replacing(target) as fresh, fresh.open("wb") as file:
        array_file.write(file.write, arrays, notes)


def read_model(
    path: str | Path, format_: str, former: tuple[str, ...] = (), leave_out: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arrays, description) of a file written by `write_model`.

    Parameters
    ----------
    path : str or Path
        The file.
    format_ : str
        Its format; DataError says what it is instead.
    former : tuple of str
        Formats of earlier versions that mean something else by now, and are refused.
    leave_out : str, default ""
        Arrays whose names begin with this are not read.
    """
    from safetensors import SafetensorError, safe_open

    source, (owner, trainer, _) = Path(path), _KINDS[_kind(format_)]
    if not source.is_file():
        made = f", or {trainer}" if trainer else ""
        raise DataError(f"{source}: no such model file; train one with fit and save{made}")
    try:
        with safe_open(str(source), framework="numpy") as file:
            wanted = [name for name in file.keys() if not (leave_out and name.startswith(leave_out))]  # noqa: SIM118
            arrays = {name: file.get_tensor(name) for name in wanted}
            notes = file.metadata() or {}
    except SafetensorError as error:
        raise DataError(f"{source}: not a model file, or damaged ({error}); train and save it again") from error
    found = notes.get("format")
    if found in former:
        raise DataError(f"{source}: saved by an earlier version, whose penalties were others; train and save it again")
    if found != format_:
        raise DataError(
            f"{source}: not a model of {owner} saved by Stretto (format {found!r}); {_remedy(found, format_)}"
        )
    try:
        about = json.loads(notes["model"])
    except (KeyError, ValueError) as error:
        raise DataError(f"{source}: damaged: its description cannot be read; train and save it again") from error
    return arrays, about


def _kind(format_: str) -> str:
    """The kind of model of a format: "lasso" of "stretto/lasso/1"."""
    return format_.split("/")[1]


def _remedy(found: str | None, wanted: str) -> str:
    kind = "" if found is None or found.count("/") != 2 else _kind(found)
    if kind == _kind(wanted):
        return "it was saved by another version of Stretto; read it with that one, or train and save it again"
    if kind in _KINDS:
        owner, _, user = _KINDS[kind]
        return f"it is a model of {owner}: {owner}.load reads it" + (f", and {user}" if user else "")
    trainer = _KINDS[_kind(wanted)][1]
    return f"name one that {trainer} or save has written" if trainer else "name one that save has written"


def savable(owner: str, parameters: dict[str, Any], **instead: Any) -> dict[str, Any]:
    """Parameters for a file, without those of this process: runtime and random number generators.

    instead : values for parameters that JSON cannot hold
    """
    found = parameters | {name: value for name, value in ({"runtime": None} | instead).items() if name in parameters}
    if not isinstance(found.get("random_state"), int | np.integer | None):
        found["random_state"] = None
    held: dict[str, Any] = {}
    for name, value in found.items():
        held[name] = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        try:
            json.dumps(held[name])
        except (TypeError, ValueError):
            raise PlanError(
                f"{owner}.save: {name}={type(value).__name__} cannot be stored in a model file; set it to None first, "
                "with set_params: a fitted model does not need it"
            ) from None
    return held
