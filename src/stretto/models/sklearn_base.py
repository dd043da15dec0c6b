"""scikit-learn base classes, imported without the slow imports that scikit-learn seldom needs.

`sklearn.utils.fixes` imports scipy.stats and, if installed, pandas: two thirds of the time of importing scikit-learn.
It uses them inside functions only. While this module imports scikit-learn, lazy modules replace them. A lazy module
imports the real module at the first attribute access.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from stretto.errors import PlanError

F = TypeVar("F", bound=Callable[..., Any])


class _LazyModule(types.ModuleType):
    """A module that is imported at the first attribute access."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def put_off(*names: str) -> Iterator[None]:
    """Make imports of these modules inside the block lazy."""
    made = []
    for name in names:
        if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0]) is not None:
            made.append(_LazyModule(name))
            made[-1].__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = made[-1]
    try:
        yield
    finally:
        for module in made:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]


with put_off("scipy.stats", "pandas"):
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
        clone,
    )
    from sklearn.callback import CallbackSupportMixin, with_callbacks
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight as check_sample_weight
    from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, validate_data

__all__ = [
    "BaseEstimator",
    "CallbackSupportMixin",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "ConvergenceWarning",
    "RegressorMixin",
    "TransformerMixin",
    "check_X_y",
    "check_array",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "check_sample_weight",
    "clone",
    "compute_class_weight",
    "put_off",
    "takes_sample_weight",
    "validate_data",
    "with_callbacks",
]


def takes_sample_weight(method: F) -> F:
    """Decorate a method that takes `weights`: `sample_weight` is the same, for callers of scikit-learn's name.

    Signatures show `weights` alone, because a sample of a matrix is a row, and these are weights of ratings.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if "sample_weight" in named:
            if named.get("weights") is not None:
                raise PlanError("weights and sample_weight are two names of one argument; give one of them")
            named["weights"] = named.pop("sample_weight")
        return method(self, *args, **named)

    return call  # type: ignore[return-value]
