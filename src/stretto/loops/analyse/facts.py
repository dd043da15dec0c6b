"""Value types of the loop analysis: dimensions, subscripts, accesses, dependence vectors and strategies.

`space` and `access` create them, `dependence` and `strategy` use them, `explain` prints them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of the iteration space."""

    name: str  # of the index
    start: int  # its first value
    stop: int  # its end, exclusive
    step: int = 1  # between two values

    @property
    def extent(self) -> int:
        """Number of values of the index."""
        return max(0, -(-(self.stop - self.start) // self.step))


@dataclass(frozen=True, slots=True)
class Subscript:
    """What is known of one position of a subscript. Its kind is one of

    'index'   index of dimension `dim` plus `offset`
    'number'  the constant `offset`
    'span'    the constants `offset` to `stop` (exclusive)
    'whole'   every element along this axis
    'record'  the number of the record: no two iterations share it
    'any'     may be any element
    """

    kind: str  # see above
    dim: int = -1  # dimension of the index
    offset: int = 0  # constant
    stop: int = 0  # end of a span
    why: str = ""  # why it is unknown, in words


@dataclass(frozen=True, slots=True)
class Access:
    """One reference to an array. Its mode is one of

    'read'
    'write'   a plain store
    'update'  read and write: +=
    'buffer'  a write through a buffer
    'fold'    into an accumulator
    """

    array: str  # name
    mode: str  # see above
    subscripts: tuple[Subscript, ...]  # one for each axis of the array, missing ones filled up with 'whole'
    line: int  # in the user's file
    text: str  # as the user wrote it

    @property
    def reads(self) -> bool:
        return self.mode in ("read", "update")

    @property
    def writes(self) -> bool:
        return self.mode in ("write", "update")


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """One entry of a dependence vector: every integer from low to high, −∞ and ∞ allowed.

    >>> str(VectorEntry(0, 0)), str(VectorEntry(1, math.inf)), str(VectorEntry(-math.inf, math.inf))
    ('0', '+∞', '∞')
    """

    low: float
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def zero(self) -> bool:
        return self.low == 0 == self.high

    def __str__(self) -> str:
        if self.exact:
            return str(int(self.low))
        if self.low == -math.inf:
            return "∞" if self.high == math.inf else "-∞"
        return "+∞" if self.high == math.inf else f"{int(self.low)}..{int(self.high)}"


@dataclass(frozen=True, slots=True)
class Vector:
    """A dependence between iterations p and p + entries, lexicographically positive."""

    entries: tuple[VectorEntry, ...]  # one for each dimension
    kind: str  # 'flow' (write, then read), 'anti' (read, then write) or 'output' (write, then write)
    first: Access  # of iteration p
    second: Access  # of iteration p + entries

    def __str__(self) -> str:
        return f"({', '.join(str(entry) for entry in self.entries)})"


@dataclass(frozen=True, slots=True)
class ArrayExtent:
    """The size of an array, for the choice of a strategy."""

    name: str  # of the array
    shape: tuple[int, ...]  # its shape
    itemsize: int  # bytes of an element


@dataclass(frozen=True, slots=True)
class RejectedStrategy:
    """A strategy that does not apply."""

    strategy: str  # its name
    why: str  # the reason, in words


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a loop runs in parallel.

    The matrix of '2d transformed' maps the numbers of an iteration along `dims`, in the order of the loop, to new
    numbers, time first and space second. Index x has number (x - start) / step.
    """

    # 'independent', '1d', '2d unordered', '2d ordered', '2d transformed', 'buffered', 'chain' or 'inspected'
    name: str
    dims: tuple[int, ...]  # dimensions that are cut, space first; () for 'buffered', which cuts records in their order
    why: str  # why it applies, in words
    rejected: tuple[RejectedStrategy, ...] = ()  # strategies that were tried before
    transform: tuple[tuple[int, ...], ...] = ()  # rows of the unimodular matrix of '2d transformed'
    tiled: bool = True  # whether both new dimensions may be cut; else one value of the first is one time step
    waves: bool = False  # whether visits run in waves because some writes are buffered
    moved: tuple[tuple[str, int], ...] = ()  # for explain(): (candidate, elements that move between parts in an epoch)
