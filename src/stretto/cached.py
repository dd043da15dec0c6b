"""`cached_property`: an attribute computed on first use and kept, without a lock.

It works as functools.cached_property does from Python 3.12 on. The older one takes a lock that all objects of a class
share. A Ctrl-C at the wrong moment leaves that lock taken, and every other thread hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """An attribute computed on first use. Two threads may both compute it; the first result is kept.

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
        kept: dict[str, T] = instance.__dict__  # Python finds the value in it before it calls this again
        return kept.setdefault(self._name, self._compute(instance))
