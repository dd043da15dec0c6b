"""What a unit is given: data that its parts share out, states that it reads and adds to, and plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from stretto.checks import shown
from stretto.errors import PlanError
from stretto.state.state import SparseRows, State

_numbers = count()


@dataclass(frozen=True, eq=False)
class Argument:
    """One argument of a unit. kind: "data" (cut by rows), "source" (read by its part), "whole", "state" or "value"."""

    kind: str
    value: Any
    name: str

    @property
    def nbytes(self) -> int:
        """Bytes of memory, as far as they are known."""
        return nbytes_of(self.value)


@dataclass(frozen=True, eq=False)
class Whole:
    """Data that every part gets whole. Made by `st.whole`."""

    value: Any


@dataclass(frozen=True, eq=False)
class Source:
    """Data that each part reads where it runs. Made by `st.source`."""

    read: Callable[[int, int], Any]
    number: int


def whole(value: Any) -> Whole:
    """Data that every part of a unit gets whole, instead of the rows of its part.

    Parameters
    ----------
    value : object
        The data.

    Returns
    -------
    Whole

    Examples
    --------
    >>> import stretto as st
    >>> def size(worker, table):
    ...     return len(table)
    >>> st.run(st.unit(size, st.whole([1, 2, 3]), parts=2), runtime=st.Serial()).value
    6
    """
    return Whole(value)


def source(read: Callable[[int, int], Any]) -> Source:
    """Data that each part reads where it runs, once: later stages on that node find them there.

    Parameters
    ----------
    read : callable
        function(part, parts) -> data of the part.

    Returns
    -------
    Source

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> numbers = st.source(lambda part, parts: np.arange(part, 100, parts))
    >>> def total(worker, mine):
    ...     return int(mine.sum())
    >>> st.run(st.unit(total, numbers, parts=4), runtime=st.Serial()).value
    4950
    """
    if not callable(read):
        raise PlanError(f"source: {shown(read)} cannot be called; give a function(part, parts) that returns its data")
    return Source(read, next(_numbers))


def argument_of(owner: str, given: Any, name: str) -> Argument:
    """Recognise an argument of `st.unit`."""
    if isinstance(given, SparseRows):
        raise PlanError(f"{owner}: {name!r} is a state of sparse rows, which units cannot use; give st.zeros(shape)")
    if isinstance(given, State):
        if given.array.dtype.names or given.array.dtype.kind not in "fi" or given.array.ndim not in (1, 2):
            raise PlanError(
                f"{owner}: state {name!r} is {given.array.dtype} {list(given.shape)}; a unit reads and adds rows of "
                "numbers: give one or two dimensions of f4, f8, i4 or i8"
            )
        return Argument("state", given, name)
    if isinstance(given, Whole):
        return Argument("whole", given.value, name)
    if isinstance(given, Source):
        return Argument("source", given, name)
    if given is None or isinstance(given, str | bytes | bool | int | float | complex | np.generic) or callable(given):
        return Argument("value", given, name)
    return Argument("data", given, name)


def nbytes_of(value: Any) -> int:
    """Bytes of arrays, sparse matrices, data and tuples of them; 0 where that is not known."""
    if isinstance(value, tuple | list):
        return sum(map(nbytes_of, value))
    if isinstance(value, State):
        return int(value.array.nbytes)
    if hasattr(value, "indptr") and hasattr(value, "indices"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 0) or 0)
