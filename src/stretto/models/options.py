"""Refuse options that were changed from their defaults but have no effect on a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stretto.checks import shown
from stretto.errors import PlanError


def refuse_unused(estimator: Any, unused: Mapping[str, str], *, chosen: str) -> None:
    """PlanError for an option that this fit would ignore and that is not at its default.

    Parameters
    ----------
    estimator : estimator
        What is to be fitted; the defaults are those of its class.
    unused : mapping
        Parameters that this fit ignores, and what they would need to have an effect.
    chosen : str
        The choice that makes it ignore them, such as "solver='als'".
    """
    given = estimator.get_params(deep=False)
    defaults = type(estimator)().get_params(deep=False)
    for name, reason in unused.items():
        if not _equal(given[name], defaults[name]):
            raise PlanError(
                f"{name}={shown(given[name])} has no effect with {chosen}: {reason}; "
                f"leave it at its default ({defaults[name]!r})"
            )


def _equal(given: Any, default: Any) -> bool:
    if isinstance(given, np.ndarray) and given.ndim:
        return False  # no default is an array
    return bool(given is default or given == default)
