"""Refuse options that were changed from their defaults but have no effect on a fit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
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
    kind: Any = type(estimator)
    defaults = _defaults(kind)
    for name, reason in unused.items():
        given = getattr(estimator, name)
        if not _equal(given, defaults[name]):
            raise PlanError(
                f"{name}={shown(given)} has no effect with {chosen}: {reason}; "
                f"leave it at its default ({defaults[name]!r})"
            )


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The parameters of an estimator that was given none."""
    return dict(kind().get_params(deep=False))


def _equal(given: Any, default: Any) -> bool:
    if isinstance(given, np.ndarray) and given.ndim:
        return False  # no default is an array
    return bool(given is default or given == default)
