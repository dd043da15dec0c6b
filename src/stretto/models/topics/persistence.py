"""Save and load a fitted topic model: one safetensors file with arrays and a JSON description, no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stretto.models.persistence import plain as plain_parameters
from stretto.models.persistence import read_model, write_model
from stretto.models.renamed import under_current_names

from .seeding.seeds import Seeds
from .topics import Topics

_FORMAT = "stretto/latent-dirichlet-allocation/1"
_PLAIN = ("n_iter_", "n_features_in_", "fingerprint_", "history_", "vocabulary_", "text_options_", "seed_names_")


def plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters in a form that JSON can hold; priors given as arrays become lists."""
    prior = parameters.get("doc_topic_prior")
    found = plain_parameters(parameters)
    if prior is not None and np.ndim(prior):
        found["doc_topic_prior"] = np.asarray(prior, np.float64).tolist()
    if parameters.get("seeds") is not None:
        found["seeds"] = Seeds.of(parameters["seeds"], int(parameters["n_components"])).plain()
    return found


def save(model: Any, path: str | Path) -> None:
    """Write the model atomically to one file."""
    topics: Topics = model.topics_
    arrays = {name: np.ascontiguousarray(getattr(topics, name)) for name in ("indptr", "topic", "count", "totals")}
    if topics.given is not None:
        arrays["given"] = np.ascontiguousarray(topics.given)
    arrays["priors"] = np.array([*topics.alpha, topics.beta])
    parameters = model.get_params(deep=False)
    parameters["runtime"] = None
    if not isinstance(parameters["random_state"], int | None):
        parameters["random_state"] = None
    about: dict[str, Any] = {
        "parameters": plain(parameters),
        "fitted": {name: getattr(model, name) for name in _PLAIN},
        "named": hasattr(model, "feature_names_in_"),
    }
    write_model(path, arrays, _FORMAT, about)


def load(kind: Any, path: str | Path) -> Any:
    """A model of class `kind` from a file written by `save`."""
    arrays, about = read_model(path, _FORMAT)
    model = kind(**under_current_names(about["parameters"]))
    priors = arrays["priors"]
    counts = {name: arrays[name] for name in ("indptr", "topic", "count", "totals")}
    model.topics_ = Topics(**counts, alpha=priors[:-1].copy(), beta=float(priors[-1]), given=arrays.get("given"))
    model.text_options_ = model.seed_names_ = None  # files of earlier versions have none
    for name, value in about["fitted"].items():
        setattr(model, name, value)
    if about.get("named") and model.vocabulary_ is not None:  # learned from a data frame: compare column names
        model.feature_names_in_ = np.array(model.vocabulary_, object)
    return model
