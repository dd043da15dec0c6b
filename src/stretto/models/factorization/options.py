"""Options that a fit would not use: refused when they were changed, so that nobody tunes what has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.errors import PlanError

_SGD = ("learning_rate", "schedule", "optimizer")
_STOPPING = ("validation_fraction", "n_iter_no_change", "tol")


def _unused(given: Mapping[str, Any]) -> dict[str, str]:
    """Option → what it would need to have an effect."""
    solver, implicit = given["solver"], given["implicit"]
    found: dict[str, str] = {}
    if solver != "sgd":
        found |= dict.fromkeys(_SGD, "it belongs to solver='sgd'")
    if solver != "als":
        found["linear_solver"] = "it belongs to solver='als'"
    if solver != "ccd" and not (solver == "als" and given["linear_solver"] == "cg"):
        found["inner"] = "it belongs to solver='ccd', and to solver='als' with linear_solver='cg'"
    if not implicit:
        found["alpha"] = "it belongs to implicit=True"
    if implicit:
        found["bias_l2_regularization"] = "implicit feedback has no biases"
    elif not given["biases"]:
        found["bias_l2_regularization"] = "it belongs to biases=True"
    if not given["early_stopping"]:
        found |= dict.fromkeys(_STOPPING, "it belongs to early_stopping=True")
    return found


def refuse_unused(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """PlanError for an option that this fit would ignore and that is not at its default."""
    for name, reason in _unused(given).items():
        if given[name] != defaults[name]:
            raise PlanError(
                f"{name}={given[name]!r} has no effect with solver={given['solver']!r}: {reason}; "
                f"leave it at its default ({defaults[name]!r})"
            )
