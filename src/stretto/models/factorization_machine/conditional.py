"""`LogisticOnly`: methods that a `FactorizationMachine` has with the logistic loss alone."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from stretto.errors import NotOffered


class LogisticOnly:
    """Descriptor of a method that exists only with loss="logistic"."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is not None and estimator.loss != "logistic":
            raise NotOffered(
                f"{self.method.__name__} needs loss='logistic', got {estimator.loss!r}, which learns numbers; "
                "predict gives them"
            )
        return self.method if estimator is None else MethodType(self.method, estimator)
