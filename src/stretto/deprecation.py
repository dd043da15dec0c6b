"""Old public names that still work and warn: parameters, attributes and names of modules.

The policy is in CONTRIBUTING.md. Each helper takes the old name, the new one and the version that removes the old one.
It warns with a `FutureWarning` at the user's own line, however deep inside Stretto it is called. Python shows such a
warning once for each line.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CALLBACKS = os.path.join("sklearn", "callback", "")  # what scikit-learn wraps around `fit`


class Renamed(NamedTuple):
    """What replaces an old parameter."""

    new: str
    removed_in: str


def warn_deprecated(old: str, new: str, *, removed_in: str) -> None:
    """Warn that `old` is deprecated, at the line of the user's code that led here.

    Parameters
    ----------
    old : str
        What the user wrote, as code.
    new : str
        What to write instead, as code.
    removed_in : str
        The version that removes the old form.
    """
    message = f"{old} is deprecated and will be removed in Stretto {removed_in}; use {new} instead"
    frame = _users_frame()
    registry = frame.f_globals.setdefault("__warningregistry__", {})  # where Python notes what was shown for a line
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(message, FutureWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _users_frame() -> FrameType:
    """The innermost frame outside Stretto, Python's import machinery and scikit-learn's callbacks, or the outermost."""
    frame = sys._getframe()
    while frame.f_back is not None and _is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_internal(file: str) -> bool:
    return file.startswith((_PACKAGE, "<frozen importlib")) or _CALLBACKS in file


def deprecated_parameter(old: str, new: str, *, removed_in: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function or a constructor whose parameter `old` is now called `new`.

    The old keyword still works. Signatures, and with them the `get_params` and `clone` of scikit-learn, show the new
    one only. Several of these decorators can be stacked.

    Parameters
    ----------
    old, new : str
        Names of the parameter. The function itself takes `new` alone.
    removed_in : str
        The version that removes `old`.

    Examples
    --------
    >>> @deprecated_parameter("rank", "n_components", removed_in="9.0")
    ... def fit(n_components=8):
    ...     return n_components
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     fit(rank=3)
    3
    >>> print(caught[0].message)
    fit(rank=…) is deprecated and will be removed in Stretto 9.0; use n_components=… instead
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if old in kwargs:
                kwargs.update(current_parameters(call, {name: kwargs.pop(name) for name in list(kwargs)}))
            return function(*args, **kwargs)

        renamed = getattr(function, "__deprecated_parameters__", {})
        call.__deprecated_parameters__ = {**renamed, old: Renamed(new, removed_in)}  # type: ignore[attr-defined]
        return call

    return decorate


def current_parameters(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the deprecated ones among keyword arguments of a decorated function, and warn of each.

    For an estimator's `set_params`: `super().set_params(**current_parameters(type(self).__init__, params))`.

    Parameters
    ----------
    function : callable
        Decorated with `deprecated_parameter`, or not: then `given` comes back as it is.
    given : mapping
        Keyword arguments, under old and new names.

    Returns
    -------
    dict
        The same values under the new names.

    Raises
    ------
    TypeError
        If a parameter is given under both names.
    """
    renamed: Mapping[str, Renamed] = getattr(function, "__deprecated_parameters__", {})
    owner = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]
    found: dict[str, Any] = {name: value for name, value in given.items() if name not in renamed}
    for old in (name for name in given if name in renamed):
        new, removed_in = renamed[old]
        if new in found:
            raise TypeError(f"{owner}() got both {old}= and {new}=, which are the same parameter; give {new}= only")
        warn_deprecated(f"{owner}({old}=…)", f"{new}=…", removed_in=removed_in)
        found[new] = given[old]
    return found


class deprecated_attribute:
    """An attribute of a class that is now called `new`; the old name can still be read and set.

    Parameters
    ----------
    new : str
        The attribute that has the value.
    removed_in : str
        The version that removes the old name.

    Examples
    --------
    >>> class Model:
    ...     user_factors_ = 5
    ...     row_factors_ = deprecated_attribute("user_factors_", removed_in="9.0")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     Model().row_factors_
    5
    >>> print(caught[0].message)
    Model.row_factors_ is deprecated and will be removed in Stretto 9.0; use user_factors_ instead
    """

    def __init__(self, new: str, *, removed_in: str) -> None:
        self._new, self._removed_in = new, removed_in

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        value = getattr(instance, self._new)  # before the warning: an estimator that is not fitted has neither
        warn_deprecated(f"{owner.__name__}.{self._old}", self._new, removed_in=self._removed_in)
        return value

    def __set__(self, instance: object, value: Any) -> None:
        warn_deprecated(f"{type(instance).__name__}.{self._old}", self._new, removed_in=self._removed_in)
        setattr(instance, self._new, value)


def deprecated_names(module: str, moved: Mapping[str, str], *, removed_in: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module some of whose public names have moved.

    Parameters
    ----------
    module : str
        The module that had the names, as users write it.
    moved : mapping
        Old name to where the thing is now, as `"package.module:name"`.
    removed_in : str
        The version that removes the old names.

    Returns
    -------
    callable
        Takes a name, warns and gives what it stood for; raises AttributeError for other names.

    Examples
    --------
    >>> lookup = deprecated_names("stretto", {"tau": "math:tau"}, removed_in="9.0")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     round(lookup("tau"), 2)
    6.28
    >>> print(caught[0].message)
    stretto.tau is deprecated and will be removed in Stretto 9.0; use math.tau instead
    """

    def lookup(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new = moved[name].partition(":")
        value = getattr(importlib.import_module(place), new)
        warn_deprecated(f"{module}.{name}", f"{place}.{new}", removed_in=removed_in)
        return value

    return lookup
