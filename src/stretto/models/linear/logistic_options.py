"""Options of `LogisticRegression` that a fit would not use: refused when they were changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.errors import PlanError

_SGD = ("optimizer", "learning_rate")


def refuse_unused(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """PlanError for an option that this fit would ignore and that is not at its default."""
    if given["solver"] == "sgd":
        return
    for name in _SGD:
        if given[name] != defaults[name]:
            raise PlanError(
                f"{name}={given[name]!r} has no effect with solver={given['solver']!r}: it belongs to solver='sgd'; "
                f"leave it at its default ({defaults[name]!r})"
            )
