"""Find options of `MatrixFactorization` that have no effect on a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.solvers.factorization.problem import PAIRWISE

_SGD = ("learning_rate", "schedule", "optimizer")
_STOPPING = ("validation_fraction", "n_iter_no_change", "tol")


def unused_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Option → what it would need to have an effect."""
    solver, loss = given["solver"], given["loss"]
    implicit = given["implicit"] or loss in PAIRWISE
    ranking = implicit and solver == "sgd"
    found: dict[str, str] = {}
    if solver != "sgd":
        found |= dict.fromkeys(_SGD, "it belongs to solver='sgd'")
    if solver != "als":
        found["linear_solver"] = "it belongs to solver='als'"
    if solver != "ccd" and not (solver == "als" and given["linear_solver"] == "cg"):
        found["inner"] = "it belongs to solver='ccd', and to solver='als' with linear_solver='cg'"
    if not implicit:
        found["alpha"] = "it belongs to implicit=True"
    if not ranking:
        found["negatives"] = "it belongs to ranking losses of solver='sgd'"
    if implicit and not ranking:
        found["bias_l2_regularization"] = "implicit feedback has no biases"
    elif not given["biases"]:
        found["bias_l2_regularization"] = "it belongs to biases=True"
    if not given["early_stopping"]:
        found |= dict.fromkeys(_STOPPING, "it belongs to early_stopping=True")
    return found
