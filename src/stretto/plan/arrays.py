"""The arrays of a plan: what every argument of a step is, by name, so that an executor needs to know nothing else.

A step is one kernel over the visits of an order; a visit has a row block and a column block. What a visit may touch of
an array follows from how the array is cut:

    sgd_worker(pass_, worker, out,  ptr, u, i, r,  row_base, col_base,  W, H, b, c,  step, …)
                                    |    by_visits |                    |  |         numbers
                                    constant       constant             |  by_cols(H, c): rotating
                                                                        by_rows(W, b): owned

An executor reads this and nothing else. In memory all arrays are simply there. From disk, the ranges of the next visits
are read ahead. On a cluster, what is cut by rows stays with the node of the row block, what is cut by columns travels
with the visits, and what is not cut is everywhere. An array has the same shape and the same subscripts wherever it is,
so the compiled worker is the same; pages of memory that no visit touches take no space.

Where an argument of the kernel is a named tuple of arrays, the description is the same named tuple, of descriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError
from stretto.plan.kernel_reference import KernelReference
from stretto.schedule.orders.order import Ints

if TYPE_CHECKING:
    from .served import Touched, Waves

PLACEMENTS = ("owned", "rotating", "served", "replicated", "shared")
CUTS = ("rows", "cols", "visits")

Span = tuple[int, int]


class Piece(NamedTuple):
    """A part of an array: where it begins along the axis that is cut, and its elements."""

    at: int
    values: NDArray[Any]


Pieces = list[Piece]


@dataclass(frozen=True, eq=False)
class Ranges:
    """How an array is cut along `axis`: block b has elements first[b] to last[b].

    by: what the blocks are, "rows", "cols" or "visits". Ranges of different blocks overlap only where the array is
    read alone.
    """

    by: str
    first: Ints
    last: Ints
    axis: int = 0

    def spans(self, blocks: Sequence[int] | Ints) -> list[Span]:
        """The ranges of some blocks, in order, neighbours joined.

        >>> by_rows("W", [0, 4, 6, 9]).ranges.spans([0, 1])
        [(0, 6)]
        """
        which = np.asarray(blocks, np.int64)
        found: list[Span] = []
        for lo, hi in sorted(zip(self.first[which].tolist(), self.last[which].tolist(), strict=True)):
            if lo >= hi:
                continue
            if found and lo <= found[-1][1]:
                found[-1] = (found[-1][0], max(hi, found[-1][1]))
            else:
                found.append((lo, hi))
        return found

    def view(self, array: NDArray[Any], span: Span) -> NDArray[Any]:
        """That part of an array, live."""
        return array[(slice(None),) * self.axis + (slice(*span),)]

    def pieces(self, array: NDArray[Any], blocks: Sequence[int] | Ints) -> Pieces:
        """What some blocks hold."""
        return [Piece(span[0], self.view(array, span)) for span in self.spans(blocks)]

    def fill(self, array: NDArray[Any], pieces: Iterable[tuple[int, NDArray[Any]]]) -> None:
        """Write what `pieces` gave."""
        for at, piece in pieces:
            self.view(array, (at, at + piece.shape[self.axis]))[...] = piece


@dataclass(frozen=True, eq=False)
class Array:
    """One argument of a step.

    name : in the plan, unique
    kind : "cut" (see `ranges`), or of what is not cut
        "number"      no array; may differ from run to run
        "constant"    the same in every run
        "replicated"  every visit may read all of it; it may change between runs
        "per visit"   [V, …] a visit writes its own element; all begin as the first one
        "per worker"  [workers, …] working memory
        "fault"       what a visit that fails writes
        "served", "numbering", "per slot", "flat view"      see `served`
    placement : where it is while the plan runs
    ranges : how it is cut
    written : whether visits change it
    fresh : zeros whenever an epoch begins
    dtype, shape : as far as they are known when the plan is made
    touched, merged, of : see `served`
    """

    name: str
    kind: str
    placement: str = "replicated"
    ranges: Ranges | None = None
    written: bool = False
    fresh: bool = False
    dtype: str = ""
    shape: tuple[int, ...] = ()
    touched: Touched | None = None
    merged: bool = False
    of: str = ""

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise PlanError(f"{self.name}: no placement {self.placement!r}; there are {', '.join(PLACEMENTS)}")

    @property
    def nbytes(self) -> int:
        """Bytes of all of it, as far as its shape is known."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize if self.dtype else 0

    @property
    def cut(self) -> str:
        """What it is cut by: "rows", "cols", "visits", or "" """
        return "" if self.ranges is None else self.ranges.by


def number(name: str) -> Array:
    """A number, which may be another in every run."""
    return Array(name, "number")


def constant(name: str) -> Array:
    """The same in every run."""
    return Array(name, "constant")


def replicated(name: str, **known: Any) -> Array:
    """Read by all visits; it may change between runs."""
    return Array(name, "replicated", **known)


def per_visit(name: str) -> Array:
    """[V, …] one element for each visit, which writes it."""
    return Array(name, "per visit", written=True)


def per_worker(name: str) -> Array:
    """[workers, …] working memory."""
    return Array(name, "per worker", "owned")


def fault(name: str) -> Array:
    """Where a visit that fails says why."""
    return Array(name, "fault")


def by_visits(name: str, ptr: Any, last: Any = None, *, written: bool = False, **known: Any) -> Array:
    """Entries of visit v: ptr[v] to ptr[v + 1], or ptr[v] to last[v] when those are given."""
    return Array(name, "cut", "owned", _ranges("visits", ptr, last, 0), written, **known)


def by_rows(name: str, bounds: Any, last: Any = None, *, axis: int = 0, written: bool = True, **known: Any) -> Array:
    """Of row block b: bounds[b] to bounds[b + 1], or to last[b]."""
    return Array(name, "cut", "owned", _ranges("rows", bounds, last, axis), written, **known)


def by_cols(name: str, bounds: Any, last: Any = None, *, axis: int = 0, written: bool = True, **known: Any) -> Array:
    """Of column block b: bounds[b] to bounds[b + 1], or to last[b]."""
    return Array(name, "cut", "rotating", _ranges("cols", bounds, last, axis), written, **known)


def _ranges(by: str, first: Any, last: Any, axis: int) -> Ranges:
    first = np.asarray(first, np.int64)
    first, last = (first[:-1], first[1:]) if last is None else (first, np.asarray(last, np.int64))
    return Ranges(by, first, last, axis)


class Reader(Protocol):
    """Where a node gets entries from that the driver does not have. It is pickled, and called on every node."""

    def fill(
        self,
        visits: Ints,
        arrays: dict[str, NDArray[Any]],
        threads: int,
        disk: Any,
        exchange: Any = None,
        owner: Ints | None = None,
    ) -> None:
        """Write what these visits read into the arrays of `StepSpec.entries`, which have their full shape.

        disk: where the arrays are, None where they are in memory. exchange: with the nodes that read other parts, None
        where a node reads all of them (`runtime.blocks.parted`). owner: the node of each row block.
        """


@dataclass(frozen=True, eq=False)
class StepSpec:
    """One kernel over the visits of an order, and what its arguments are, in the kernel's order.

    Steps with one and the same `StepSpec` have the same order, and the same arrays where they are constant. reader: who
    has the entries; None: the driver's arrays have them. waves: the order, where each step makes some visits of it.
    """

    name: str
    kernel: KernelReference
    arguments: tuple[Array | tuple[Any, ...], ...]
    reader: Reader | None = None
    waves: Waves | None = None

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Every argument by name; those in named tuples too."""
        found: dict[str, Array] = {}
        for argument in self.arguments:
            for array in argument if isinstance(argument, tuple) else (argument,):
                if array.name in found:
                    raise PlanError(f"step {self.name!r}: two arguments are called {array.name!r}")
                found[array.name] = array
        return found

    def flat(self, args: Sequence[Any]) -> dict[str, Any]:
        """Arguments of the kernel by name."""
        values: list[Any] = []
        for argument, value in zip(self.arguments, args, strict=True):
            values += value if isinstance(argument, tuple) else [value]
        return dict(zip(self.arrays, values, strict=True))

    def nested(self, flat: dict[str, Any]) -> list[Any]:
        """The other way round: arguments as the kernel takes them."""
        return [
            type(argument)(*(flat[array.name] for array in argument))
            if isinstance(argument, tuple)
            else flat[argument.name]
            for argument in self.arguments
        ]

    def cut(self, by: str = "", *, written: bool = False) -> list[str]:
        """Arrays that are cut: by what, and only those that are written."""
        return [
            name
            for name, array in self.arrays.items()
            if array.ranges is not None and by in ("", array.ranges.by) and (array.written or not written)
        ]

    def of(self, kind: str) -> list[str]:
        """Arguments of a kind."""
        return [name for name, array in self.arrays.items() if array.kind == kind]

    def ranges(self, name: str) -> Ranges:
        """How an array is cut."""
        found = self.arrays[name].ranges
        assert found is not None
        return found

    def touched(self, name: str) -> Touched:
        """What visits touch of a served array."""
        found = self.arrays[name].touched
        assert found is not None
        return found

    def for_node(self, visits: Ints) -> StepSpec:
        """As a node needs it that makes these visits: without the lists of others."""
        if self.waves is None:
            return self

        def own(argument: Array | tuple[Any, ...]) -> Array | tuple[Any, ...]:
            if isinstance(argument, tuple) or argument.touched is None:
                return argument
            return replace(argument, touched=argument.touched.part(visits) if argument.written else None)

        return replace(self, arguments=tuple(own(argument) for argument in self.arguments), waves=None)

    @cached_property
    def states(self) -> list[str]:
        """Arrays cut by rows or columns, or written by visits: what is learned, and what it is learned from by
        index."""
        return [*self.cut("rows"), *self.cut("cols"), *self.cut("visits", written=True)]

    @cached_property
    def entries(self) -> list[str]:
        """Arrays cut by visits that are only read: sent once."""
        return [name for name in self.cut("visits") if not self.arrays[name].written]

    def fresh(self, by: str = "") -> list[str]:
        """Arrays that are zeros when an epoch begins."""
        return [name for name in self.cut(by) if self.arrays[name].fresh]

    @cached_property
    def rotating(self) -> list[str]:
        """Arrays whose blocks travel with the visits."""
        return self.cut("cols")
