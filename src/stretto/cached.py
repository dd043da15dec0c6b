"""A property that is computed once and kept.

functools.cached_property, as it is from Python 3.12 on: until then it takes a lock that all objects of a class share,
and a Ctrl-C at the wrong moment leaves that lock taken, so that every other thread hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """Two threads that ask at the same time may both compute it; either result is kept.

    >>> class Square:
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return 4
    >>> square = Square()
    >>> square.area, square.area
    computed
    (4, 4)
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        kept: dict[str, T] = instance.__dict__  # which Python looks into before it comes here again
        return kept.setdefault(self._name, self._compute(instance))
