"""What frames may hold in a job: proven before anything is made of them.

`TableCheck(layout)` knows the tables: how many there are, dtype and width of rows, which keys exist, which shard has
which row. `RingCheck(sizes)` knows the bytes of every block that travels. Without a check an envelope still has to be
right in itself, every array as long as it claims; that is for tests and for hosts that have nothing to do yet.

Both ends need the same one: it also says how values travel (as 16-bit floats, with 32-bit keys).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import travels_short
from stretto.store.layout import Layout

_NARROW = 2**31  # keys below this travel with 32 bits


class Malformed(Exception):
    """What came is not what any host of this job would send. Its text is short, and the same for all of a kind."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of a table. dtype: as in np.dtype(…).str[1:]. rows: keys are below it; None for any."""

    dtype: str
    cols: int
    rows: int | None
    versioned: bool
    witnesses: int
    short: bool  # values travel as f2
    narrow: bool  # keys travel as i4


class Checker(Protocol):
    """What an envelope asks."""

    def table(self, number: int) -> Shape | None:
        """A table's rows; None: nothing is known of any table."""

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        """Raise Malformed unless all are rows of this shard."""

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        """Raise Malformed unless the block's arrays have so many bytes."""


class NoCheck:
    """Nothing is known of the job."""

    def table(self, number: int) -> Shape | None:
        return None

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        pass

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        pass


class TableCheck:
    """Of a job with tables: no blocks travel."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._shapes = [
            Shape(
                spec.kept.str[1:],
                spec.cols,
                spec.rows,
                spec.versioned and not layout.rule.exact,  # exact runs need no versions: everybody sees the same
                layout.witnesses,
                travels_short(spec.dtype, layout.policy.codec),
                spec.rows is not None and spec.rows <= _NARROW,
            )
            for spec in layout.tables
        ]
        # A user's partition is a function of theirs: it is not called for what a stranger may have written.
        self._placed = [not callable(spec.partition) for spec in layout.tables]

    def table(self, number: int) -> Shape | None:
        if not 0 <= number < len(self._shapes):
            raise Malformed("no such table")
        return self._shapes[number]

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        rows = self._shapes[table].rows
        # As unsigned numbers the negative ones are large: one comparison for both ends.
        if rows is not None and len(keys) and int(keys.view(np.uint64).max()) >= rows:
            raise Malformed("a row out of range")
        if self._placed[table] and not (self._layout.shard_of(table, keys) == shard).all():
            raise Malformed("a row of another shard")

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        raise Malformed("a block where there are tables")


class RingCheck:
    """Of a job with rotating arrays. sizes: for each plan, [array][block] bytes."""

    def __init__(self, sizes: Mapping[int, Sequence[Sequence[int]]]) -> None:
        self._sizes = {plan: [np.asarray(of, np.int64) for of in arrays] for plan, arrays in sizes.items()}

    def table(self, number: int) -> Shape | None:
        raise Malformed("a table where there are blocks")

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        raise Malformed("a table where there are blocks")

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        arrays: list[NDArray[Any]] | None = self._sizes.get(plan)
        if arrays is None or len(arrays) != len(sizes):
            raise Malformed("no such plan")
        for of, size in zip(arrays, sizes, strict=True):
            if not 0 <= block < len(of) or of[block] != size:
                raise Malformed("a block of another size")
