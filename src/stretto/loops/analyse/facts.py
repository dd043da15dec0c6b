"""Value types of the loop analysis: dimensions, subscripts, accesses, dependence vectors and strategies.

`space` and `access` create them, `dependence` and `strategy` use them, `explain` prints them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .linear import Linear


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
    'affine'  the linear form `form` of indices, such as 2 i + j
    'number'  the constant `offset`
    'span'    the constants `offset` to `stop` (exclusive)
    'whole'   every element along this axis
    'record'  the number of the record: no two iterations share it
    'any'     may be any element; with a form that has counters of inner loops, any that it takes
    """

    kind: str  # see above
    dim: int = -1  # dimension of the index
    offset: int = 0  # constant
    stop: int = 0  # end of a span
    why: str = ""  # why it is unknown, in words
    form: Linear | None = None  # the linear form, if it is one of several indices or of counters of inner loops


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
    domain: tuple[Linear, ...] = ()  # forms that are ≥ 0 wherever it runs: bounds and tests around it

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
    corners: tuple[tuple[float, ...], ...] = field(default=(), repr=False)  # of the hull of all distances, if known

    def least(self, dims: Sequence[int], row: Sequence[int]) -> float:
        """A lower bound of Σ row[k] · entry dims[k] over all distances, exact over the rationals where corners are."""
        low, terms = 0.0, [(factor, d) for factor, d in zip(row, dims, strict=True) if factor]
        for factor, d in terms:  # 0 times ∞ must be 0; floating point gives NaN
            low += factor * (self.entries[d].low if factor > 0 else self.entries[d].high)
        if not self.corners or len(terms) < 2:
            return low
        return max(low, math.ceil(min(sum(factor * c[d] for factor, d in terms) for c in self.corners) - 1e-6))

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

    # 'independent', '1d', '2d unordered', 'nd unordered', '2d ordered', '2d transformed', 'stepped', 'buffered',
    # 'chain' or 'inspected'
    name: str
    dims: tuple[int, ...]  # dimensions that are cut, space first; () for 'buffered', which cuts records in their order
    why: str  # why it applies, in words
    rejected: tuple[RejectedStrategy, ...] = ()  # strategies that were tried before
    transform: tuple[tuple[int, ...], ...] = ()  # rows of the unimodular matrix of '2d transformed'
    # Whether the turns of blocks are enough to keep the order. Otherwise, of '2d transformed', one value of the first
    # new dimension is one time step; of 'stepped' all blocks wait for those before them.
    tiled: bool = True
    waves: bool = False  # whether visits run in waves because some writes are buffered
    outer: int = 0  # of 'stepped': number of outer dimensions whose values follow one another
    moved: tuple[tuple[str, int], ...] = ()  # for explain(): (candidate, elements that move between parts in an epoch)
    clashes: tuple[str, ...] = ()  # of a 'chain' that nothing runs in parallel: accesses that together rule it out
    ways: tuple[str, ...] = ()  # of the same: changes of the loop that would make it run in parallel
