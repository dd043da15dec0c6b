"""Array descriptions of a plan: name, kind, placement and partitioning of every kernel argument (`StepSpec`, `Array`).

A step is one kernel over the visits of an order; a visit has a row block and a column block. The elements of an array
that a visit may access follow from how the array is cut:

    sgd_worker(pass_, worker, out,  ptr, u, i, r,  row_base, col_base,  W, H, b, c,  step, …)
                                    |    by_visits |                    |  |         numbers
                                    constant       constant             |  by_cols(H, c): rotating
                                                                        by_rows(W, b): owned

An executor needs only this description. In memory, all arrays are present. From disk, the ranges of the next visits are
read ahead. On a cluster, an array cut by rows stays with the node of the row block, an array cut by columns moves with
the visits, and an array that is not cut is copied to every node. An array has the same shape and the same subscripts on
every node, so the compiled worker is the same; pages that no visit writes take no memory.

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
    from .touched import Touched, Waves

PLACEMENTS = ("owned", "rotating", "served", "replicated", "shared")

Span = tuple[int, int]


class ArrayChunk(NamedTuple):
    """A chunk of an array."""

    at: int  # where it begins along the axis that is cut
    values: NDArray[Any]  # its elements


Pieces = list[ArrayChunk]


@dataclass(frozen=True, eq=False)
class Ranges:
    """How an array is cut into blocks. Ranges of different blocks overlap only in arrays that are never written."""

    by: str  # what the blocks are: "rows", "cols" or "visits"
    first: Ints  # block b has elements first[b] …
    last: Ints  # … to last[b], exclusive
    axis: int = 0  # the axis that is cut

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
        """A view of a range of an array."""
        return array[(slice(None),) * self.axis + (slice(*span),)]

    def pieces(self, array: NDArray[Any], blocks: Sequence[int] | Ints) -> Pieces:
        """The chunks of an array that belong to some blocks."""
        return [ArrayChunk(span[0], self.view(array, span)) for span in self.spans(blocks)]

    def fill(self, array: NDArray[Any], pieces: Iterable[tuple[int, NDArray[Any]]]) -> None:
        """Write the chunks that `pieces` returned into an array."""
        for at, piece in pieces:
            self.view(array, (at, at + piece.shape[self.axis]))[...] = piece


@dataclass(frozen=True, eq=False)
class Array:
    """One argument of a step. Its kind is one of

    "cut"         partitioned into blocks, see `ranges`
    "number"      not an array; may differ from run to run
    "constant"    the same in every run
    "replicated"  every visit may read all of it; it may change between runs
    "per visit"   [V, …] a visit writes its own element; all begin as the first one
    "per worker"  [workers, …] working memory
    "fault"       written by a visit that fails
    "served", "numbering", "per slot", "flat view"      see `stretto.plan.served`
    """

    name: str  # unique in the plan
    kind: str  # see above
    placement: str = "replicated"  # where it is stored while the plan runs
    ranges: Ranges | None = None  # how it is cut
    written: bool = False  # whether visits change it
    fresh: bool = False  # whether it is set to zero at the start of every epoch
    dtype: str = ""  # "" if unknown when the plan is made
    shape: tuple[int, ...] = ()  # () if unknown when the plan is made
    touched: Touched | None = None  # of served arrays: elements that each visit accesses
    merged: bool = False  # of served arrays: whether the driver changes it between waves
    of: str = ""  # of flat views: the name of the array viewed

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise PlanError(f"{self.name}: placement {self.placement!r} is not one of {', '.join(PLACEMENTS)}")

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array; 0 if its shape is unknown."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize if self.dtype else 0

    @property
    def cut(self) -> str:
        """What it is cut by: "rows", "cols", "visits", or "" """
        return "" if self.ranges is None else self.ranges.by


def number(name: str) -> Array:
    """A number, which may differ from run to run."""
    return Array(name, "number")


def constant(name: str) -> Array:
    """An array that is the same in every run."""
    return Array(name, "constant")


def replicated(name: str, **known: Any) -> Array:
    """An array that all visits may read; it may change between runs."""
    return Array(name, "replicated", **known)


def per_visit(name: str) -> Array:
    """An array [V, …] with one element for each visit, which the visit writes."""
    return Array(name, "per visit", written=True)


def per_worker(name: str) -> Array:
    """Working memory [workers, …]."""
    return Array(name, "per worker", "owned")


def fault(name: str) -> Array:
    """An array in which a visit that fails stores the reason."""
    return Array(name, "fault")


def by_visits(name: str, ptr: Any, last: Any = None, *, written: bool = False, **known: Any) -> Array:
    """An array cut by visits: visit v has ptr[v] to ptr[v + 1], or ptr[v] to last[v] if `last` is given."""
    return Array(name, "cut", "owned", _ranges("visits", ptr, last, 0), written, **known)


def by_rows(name: str, bounds: Any, last: Any = None, *, axis: int = 0, written: bool = True, **known: Any) -> Array:
    """An array cut by row blocks: block b has bounds[b] to bounds[b + 1], or to last[b]."""
    return Array(name, "cut", "owned", _ranges("rows", bounds, last, axis), written, **known)


def by_cols(name: str, bounds: Any, last: Any = None, *, axis: int = 0, written: bool = True, **known: Any) -> Array:
    """An array cut by column blocks: block b has bounds[b] to bounds[b + 1], or to last[b]."""
    return Array(name, "cut", "rotating", _ranges("cols", bounds, last, axis), written, **known)


def _ranges(by: str, first: Any, last: Any, axis: int) -> Ranges:
    first = np.asarray(first, np.int64)
    first, last = (first[:-1], first[1:]) if last is None else (first, np.asarray(last, np.int64))
    return Ranges(by, first, last, axis)


class Reader(Protocol):
    """Reads entries that the driver does not have. It is pickled, sent to every node and called there."""

    def fill(
        self,
        visits: Ints,
        arrays: dict[str, NDArray[Any]],
        threads: int,
        disk: Any,
        exchange: Any = None,
        owner: Ints | None = None,
    ) -> None:
        """Write the entries of some visits into the arrays of `StepSpec.entries`, which have their full shape.

        Parameters
        ----------
        disk
            Where the arrays are stored on disk; None if they are in memory.
        exchange
            Exchanges entries with nodes that read other parts; None if a node reads all parts
            (`runtime.blocks.parted`).
        owner : array [R]
            The node of each row block.
        """


@dataclass(frozen=True, eq=False)
class StepSpec:
    """One kernel over the visits of an order, and the descriptions of its arguments.

    Steps that share one `StepSpec` have the same order and the same constant arrays.
    """

    name: str  # of the step
    kernel: KernelReference  # the compiled worker
    arguments: tuple[Array | tuple[Any, ...], ...]  # in the order of the kernel's parameters
    reader: Reader | None = None  # reads the entries; None: the driver's arrays hold them
    waves: Waves | None = None  # the order of all visits, if each step runs only some of them

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
        """The inverse of `flat`: arguments as the kernel takes them."""
        return [
            type(argument)(*(flat[array.name] for array in argument))
            if isinstance(argument, tuple)
            else flat[argument.name]
            for argument in self.arguments
        ]

    def cut(self, by: str = "", *, written: bool = False) -> list[str]:
        """Names of arrays that are cut, optionally only those cut `by` something or those that are written."""
        return [
            name
            for name, array in self.arrays.items()
            if array.ranges is not None and by in ("", array.ranges.by) and (array.written or not written)
        ]

    def of(self, kind: str) -> list[str]:
        """Names of the arguments of a kind."""
        return [name for name, array in self.arrays.items() if array.kind == kind]

    def ranges(self, name: str) -> Ranges:
        """How an array is cut."""
        found = self.arrays[name].ranges
        assert found is not None
        return found

    def touched(self, name: str) -> Touched:
        """The elements of a served array that visits access."""
        found = self.arrays[name].touched
        assert found is not None
        return found

    def for_node(self, visits: Ints) -> StepSpec:
        """This step for a node that runs some of the visits: without the lists of the others."""
        if self.waves is None:
            return self

        def own(argument: Array | tuple[Any, ...]) -> Array | tuple[Any, ...]:
            if isinstance(argument, tuple) or argument.touched is None:
                return argument
            return replace(argument, touched=argument.touched.part(visits) if argument.written else None)

        return replace(self, arguments=tuple(own(argument) for argument in self.arguments), waves=None)

    @cached_property
    def states(self) -> list[str]:
        """Arrays cut by rows or columns, or written by visits: learned arrays, and data indexed like them."""
        return [*self.cut("rows"), *self.cut("cols"), *self.cut("visits", written=True)]

    @cached_property
    def entries(self) -> list[str]:
        """Arrays cut by visits that are only read; they are sent once."""
        return [name for name in self.cut("visits") if not self.arrays[name].written]

    def fresh(self, by: str = "") -> list[str]:
        """Arrays that are set to zero at the start of every epoch."""
        return [name for name in self.cut(by) if self.arrays[name].fresh]

    @cached_property
    def rotating(self) -> list[str]:
        """Arrays whose blocks move with the visits."""
        return self.cut("cols")
