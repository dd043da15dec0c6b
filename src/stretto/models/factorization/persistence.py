"""Keeping a fitted model: one safetensors file, arrays and a JSON description, no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.models.renamed import under_current_names
from stretto.solvers.factorization.factors import Seen
from stretto.solvers.factorization.problem import Problem

from .fold_in import Learned

_FORMAT = "stretto/matrix-factorization/2"
_FORMER = "stretto/matrix-factorization/1"
_ARRAYS = {  # attribute → its name in the file, which is the one that the first version gave it
    "user_factors_": "row_factors_",
    "item_factors_": "col_factors_",
    "user_bias_": "row_bias_",
    "item_bias_": "col_bias_",
}
_IDS = {"user_ids_": "row_ids/", "item_ids_": "col_ids/"}
_PLAIN = ("mean_", "scale_", "confidence_", "n_ratings_", "n_iter_", "n_features_in_", "fingerprint_", "history_")
# Of the problem that was learned, what using the model needs.
_PROBLEM = ("rank", "solver", "loss", "reg", "bias_reg", "biases", "implicit", "alpha")


def plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON can hold them; others as text."""
    bare = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
    return {k: v if isinstance(v, str | int | float | bool | None) else repr(v) for k, v in bare.items()}


def save(model: Any, path: str | Path) -> None:
    """Write the model; the file appears whole or not at all."""
    arrays = {stored: np.ascontiguousarray(getattr(model, name)) for name, stored in _ARRAYS.items()}
    arrays |= {f"squares/{name}": np.ascontiguousarray(a) for name, a in model.squares_.items()}
    seen: Seen = model.seen()
    arrays |= {"seen/indptr": seen.indptr, "seen/indices": seen.indices}
    for attribute, prefix in _IDS.items():
        ids: IdMap | None = getattr(model, attribute)
        if ids is not None:
            arrays |= {f"{prefix}{name}": np.ascontiguousarray(a) for name, a in ids.to_arrays().items()}
    parameters = model.get_params(deep=False)
    parameters["runtime"] = None
    problem = {name: getattr(model._learned.problem, name) for name in _PROBLEM}
    fitted = {name: getattr(model, name) for name in _PLAIN}
    about = {"parameters": plain(parameters), "problem": plain(problem), "fitted": fitted}
    write_model(path, arrays, {"format": _FORMAT, "model": json.dumps(about)})


def write_model(path: str | Path, arrays: dict[str, Any], notes: dict[str, str]) -> None:
    """Write arrays and notes to one file, which appears whole or not at all."""
    from safetensors.numpy import save_file

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        save_file(arrays, str(part), metadata=notes)
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)  # the writer makes it private; a model is read by others as any file is
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def read_model(path: str | Path, trainer: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(arrays, notes) of a file written by `write_model`; trainer: the command that makes one."""
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    if not source.is_file():
        raise DataError(f"{source}: no such model file; train one with fit and save, or {trainer}")
    try:
        with safe_open(str(source), framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return arrays, file.metadata() or {}
    except SafetensorError as error:
        raise DataError(f"{source}: not a model file, or damaged ({error}); train and save it again") from error


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def load(kind: Any, path: str | Path) -> Any:
    """A model of class `kind` from a file written by `save`."""
    source = Path(path)
    arrays, notes = read_model(source, "`stretto train mf`")
    if notes.get("format") == _FORMER:
        raise DataError(f"{source}: saved by an earlier version, whose penalties were others; train and save it again")
    if notes.get("format") != _FORMAT:
        found = notes.get("format")
        what = "it is a topic model: `stretto topics` and LatentDirichletAllocation.load read it"
        remedy = (
            what if str(found).startswith("stretto/latent") else "name one that `stretto train mf` or save has written"
        )
        raise DataError(f"{source}: not a matrix factorisation saved by Stretto (format {found!r}); {remedy}")
    about = json.loads(notes["model"])
    model = kind(**under_current_names(about["parameters"]))
    for name, stored in _ARRAYS.items():
        setattr(model, name, arrays[stored])
    for name, value in about["fitted"].items():
        setattr(model, name, value)
    model.squares_ = _under(arrays, "squares/")
    for attribute, prefix in _IDS.items():
        own = _under(arrays, prefix)
        setattr(model, attribute, IdMap.from_arrays(own) if own else None)
    problem = Problem(**about["problem"])
    model._learned = Learned(problem, model.mean_, model.scale_, model.confidence_)
    model._seen, model._trained_on, model._scratch = Seen(arrays["seen/indptr"], arrays["seen/indices"]), None, None
    return model
