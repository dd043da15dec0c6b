"""What the analysis knows of a loop: its space, the accesses of its body, the dependence vectors between iterations.

Pure values; `space` and `access` make them, `dependence` and `strategy` work on them, `explain` prints them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of the iteration space: the index `name` runs over start, start + step, … below stop."""

    name: str
    start: int
    stop: int
    step: int = 1

    @property
    def extent(self) -> int:
        """How many values the index takes."""
        return max(0, -(-(self.stop - self.start) // self.step))


@dataclass(frozen=True, slots=True)
class Subscript:
    """One position of a subscript, as far as it is known.

    kind: 'index'   index of dimension `dim` plus `offset`
          'number'  the constant `offset`
          'span'    the constants `offset` to `stop` (exclusive)
          'whole'   every element along this axis
          'record'  the number of the record itself: no two iterations share it
          'any'     may be any element; `why` says what made it unknown, in words
    """

    kind: str
    dim: int = -1
    offset: int = 0
    stop: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """One reference to an array, whichever statement it is in.

    mode: 'read', 'write' (a plain store), 'update' (read and write: +=), 'buffer' (a write that the user exempted),
    'fold' (into an accumulator). subscripts: one for each axis of the array, missing ones filled up with 'whole'.
    """

    array: str
    mode: str
    subscripts: tuple[Subscript, ...]
    line: int
    text: str  # as the user wrote it

    @property
    def reads(self) -> bool:
        return self.mode in ("read", "update")

    @property
    def writes(self) -> bool:
        return self.mode in ("write", "update")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a dependence vector: every integer from low to high, −∞ and ∞ allowed.

    >>> str(Entry(0, 0)), str(Entry(1, math.inf)), str(Entry(-math.inf, math.inf))
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
    """A dependence between iterations p and p + entries, lexicographically positive, and the two accesses behind it.

    kind: 'flow' (write, then read), 'anti' (read, then write) or 'output' (write, then write).
    """

    entries: tuple[Entry, ...]
    kind: str
    first: Access
    second: Access

    def __str__(self) -> str:
        return f"({', '.join(str(entry) for entry in self.entries)})"


@dataclass(frozen=True, slots=True)
class Extent:
    """What the strategy needs to know of an array: its shape and bytes for each element."""

    name: str
    shape: tuple[int, ...]
    itemsize: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A strategy that does not apply, and why, in words."""

    strategy: str
    why: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a loop runs.

    name: 'independent', '1d', '2d unordered', '2d ordered', '2d transformed', 'buffered', 'chain', 'inspected'
    dims: dimensions that are cut, space dimension first (none for 'buffered': the records are cut as they come).
    transform: rows of the unimodular matrix, for '2d transformed'. It maps the numbers of an iteration along `dims`,
    here in the order of the loop, to new ones, time first and space second; index x has number (x - start) / step.
    tiled: whether both new dimensions may be cut into ranges, otherwise one value of the first is one time step.
    waves: visits run in waves because some writes are buffered.
    moved: elements that change hands in an epoch, for each candidate, in words for `explain`.
    """

    name: str
    dims: tuple[int, ...]
    why: str
    rejected: tuple[Rejected, ...] = ()
    transform: tuple[tuple[int, ...], ...] = ()
    tiled: bool = True
    waves: bool = False
    moved: tuple[tuple[str, int], ...] = ()
