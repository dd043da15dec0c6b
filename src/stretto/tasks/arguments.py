"""What a unit is given: data that its parts share out, states that it reads and adds to, and plain values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, overload

import numpy as np

from stretto.checks import parse_bytes, shown
from stretto.checks import whole as whole_number
from stretto.errors import PlanError
from stretto.runtime.stages.block_readers import nbytes_of
from stretto.state.partitions import Ranges
from stretto.state.state import SparseRows, State
from stretto.text import counted

from .adaptive.knobs import Knob

AHEAD = 2  # blocks of a part that are read before they are used
LOADED = ("data", "source", "block", "blocks")  # kinds of arguments that nodes keep, and that are freed
_numbers = count()


@dataclass(frozen=True, eq=False)
class Argument:
    """One argument of a unit.

    kind: "data" (cut by rows), "source" (read by its part), "block" (another in each iteration), "blocks" (all of a
    part, one after another), "whole", "state", "knob" (a number that may be tuned) or "value".
    """

    kind: str
    value: Any
    name: str
    # Of data that are declared as a state: which rows each part has. Its function gets a handle.
    declared: Ranges | None = None

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
    read_by_parts: ClassVar[bool] = True  # `st.state(source, partition=…)` declares it


@dataclass(frozen=True, eq=False)
class InBlocks(ABC):
    """Data that parts read in blocks while they work."""

    ahead: int  # blocks of a part that are read before it asks for them, at most
    memory: int | None  # bytes that a node keeps; None for all
    read_by_parts: ClassVar[bool] = True

    def all(self) -> AllBlocks:
        """All blocks of a part in every iteration: the function gets an iterable of them.

        Returns
        -------
        AllBlocks
        """
        return AllBlocks(self)

    @abstractmethod
    def words(self) -> str:
        """The data in words."""


@dataclass(frozen=True, eq=False)
class BlockSource(InBlocks):
    """Blocks that a function reads. Made by `st.source(read, blocks=n)`."""

    read: Callable[[int, int, int], Any]
    blocks: int

    def words(self) -> str:
        """The data in words."""
        return f"{counted(self.blocks, 'block')} of each part, one an iteration"


@dataclass(frozen=True, eq=False)
class AllBlocks:
    """All blocks of a part, one after another. Made by `all()` of `st.source(read, blocks=n)` and `st.files`."""

    source: InBlocks
    read_by_parts: ClassVar[bool] = True


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


@overload
def source(read: Callable[[int, int], Any]) -> Source: ...


@overload
def source(
    read: Callable[[int, int, int], Any], *, blocks: int, ahead: int = AHEAD, memory: str | int | None = None
) -> BlockSource: ...


def source(
    read: Callable[..., Any], *, blocks: int | None = None, ahead: int = AHEAD, memory: str | int | None = None
) -> Source | BlockSource:
    """Data that each part reads where it runs, once: later stages on that node find them there.

    With `blocks`, threads read the blocks of a part while it works on others. Iteration k of a part gets its block
    k modulo `blocks`: which one never depends on time. `st.source(read, blocks=n).all()` gives a unit all blocks of the
    part in every iteration, as an iterable.

    Parameters
    ----------
    read : callable
        function(part, parts) -> data of the part; with `blocks`: function(part, parts, block) -> one block.
    blocks : int or None, default None
        Blocks of each part. None: the part is read whole before its first iteration.
    ahead : int, default 2
        Blocks of a part that are read before they are used, at most.
    memory : str, int or None, default None
        Bytes of blocks that a node keeps, such as "1GiB"; more are read again in the next pass. None keeps all.

    Returns
    -------
    Source or BlockSource

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> numbers = st.source(lambda part, parts: np.arange(part, 100, parts))
    >>> def total(worker, mine):
    ...     return int(mine.sum())
    >>> st.run(st.unit(total, numbers, parts=4), runtime=st.Serial()).value
    4950
    >>> batches = st.source(lambda part, parts, block: np.full(10, block), blocks=3)
    >>> st.run(st.unit(total, batches, parts=2, iterations=2), runtime=st.Serial()).value  # of iteration 1
    20
    """
    if not callable(read):
        raise PlanError(f"source: {shown(read)} cannot be called; give a function(part, parts) that returns its data")
    if blocks is None:
        if ahead != AHEAD or memory is not None:
            raise PlanError("source: ahead= and memory= are for data in blocks; give blocks= too")
        return Source(read, next(_numbers))
    most = None if memory is None else parse_bytes(memory)
    return BlockSource(
        whole_number("ahead", ahead, 1, "source"), most, read, whole_number("blocks", blocks, 1, "source")
    )


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
    if isinstance(given, Knob):
        return Argument("knob", given, name)
    if isinstance(given, Whole):
        return Argument("whole", given.value, name)
    if isinstance(given, Source):
        return Argument("source", given, name)
    if isinstance(given, InBlocks):
        return Argument("block", given, name)
    if isinstance(given, AllBlocks):
        return Argument("blocks", given.source, name)
    if given is None or isinstance(given, str | bytes | bool | int | float | complex | np.generic) or callable(given):
        return Argument("value", given, name)
    return Argument("data", given, name)
