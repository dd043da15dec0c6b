"""`ServiceListener`: what listeners of other services share. A service that fails ends no run."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Mapping
from typing import Any

from stretto.errors import RunError
from stretto.observe.events import EpochDone, Event, RunEnded

_LONGEST = 500  # characters of a setting: some services refuse longer ones


class ServiceListener:
    """A listener that hands events to `_take`, until that fails once: then it warns and hands over nothing more."""

    _title = "the service"

    def __init__(self) -> None:
        self._lost = False

    def __call__(self, event: Event, /) -> None:
        if self._lost:
            return
        try:
            self._take(event)
            if isinstance(event, RunEnded):
                self.close()
        except Exception as error:
            self._lost = True
            warnings.warn(
                f"{self._title} gets nothing more of this run ({type(error).__name__}: {error}); the run itself "
                "continues",
                RuntimeWarning,
                stacklevel=2,
            )

    def _take(self, event: Event) -> None:
        """Send what the service should have of an event."""
        raise NotImplementedError

    def close(self) -> None:
        """The run is over."""


def needed(module: str, package: str, extra: str, title: str) -> Any:
    """A module of an optional package; an error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RunError(
            f"{title} needs the package {package}, which is not installed; "
            f"install it with: pip install 'stretto[{extra}]'"
        ) from error


def scalars(event: EpochDone) -> dict[str, float]:
    """The numbers of an epoch: the objective, metrics, seconds and items per second; only those that are finite.

    >>> sorted(scalars(EpochDone(0.0, 1, 2, 0.5, 100, 7.0, {"test_rmse": float("nan"), "gap": 0.1})).items())
    [('gap', 0.1), ('items_per_second', 200.0), ('objective', 7.0), ('seconds', 0.5)]
    """
    found = {"objective": event.objective, **event.metrics, "seconds": event.seconds}
    if event.seconds > 0:
        found["items_per_second"] = event.items / event.seconds
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def settings(config: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """The configuration of a run as text by name; names inside of a mapping are joined with dots.

    >>> settings({"estimator": "Lasso", "recipe": {"parameters": {"alpha": 0.1}}})
    {'estimator': 'Lasso', 'recipe.parameters.alpha': '0.1'}
    """
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= settings(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = str(value)[:_LONGEST]
    return found
