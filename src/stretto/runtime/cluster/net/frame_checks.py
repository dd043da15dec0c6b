"""Validate received frames against the job's tables or blocks before they are used.

`TableCheck(layout)` knows the tables: how many there are, dtype and width of rows, which keys exist, which shard stores
which row. `RingCheck(sizes)` knows the bytes of every block that travels. With `NoCheck` an envelope must still be
consistent (every array as long as it claims); it is for tests and for hosts without a task.

Sender and receiver need the same check: it also decides the encoding (16-bit floats, 32-bit keys).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import travels_short
from stretto.store.layout import Layout
from stretto.store.local.holdings import ChunkPartition

_NARROW = 2**31  # smaller keys are sent with 32 bits


class Malformed(Exception):
    """A message that no host of this job would send. Its text is short and the same for every message with that
    defect.
    """


@dataclass(frozen=True, slots=True)
class RowFormat:
    """Format of a table's rows."""

    dtype: str  # as in np.dtype(…).str[1:]
    cols: int  # values of a row
    rows: int | None  # keys are below it; None: any key
    versioned: bool  # rows are sent with versions
    witnesses: int  # columns of the witness array
    short: bool  # values are sent as f2
    narrow: bool  # keys are sent as i4
    ring: tuple[int, ...] = ()  # nodes whose changes others pass on


class Checker(Protocol):
    """The questions that an envelope asks while it encodes or decodes."""

    def table(self, number: int) -> RowFormat | None:
        """The row format of a table; None: unknown, anything consistent is accepted."""

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        """Raise Malformed unless all are rows of this shard."""

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        """Raise Malformed unless the block's arrays have these sizes in bytes."""


class NoCheck:
    """Accepts every consistent frame."""

    def table(self, number: int) -> RowFormat | None:
        return None

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        pass

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        pass


class TableCheck:
    """Checks frames of a job with tables; blocks are rejected."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._shapes = [
            RowFormat(
                spec.kept.str[1:],
                spec.cols,
                spec.rows,
                # exact runs need no versions: all workers see the same values
                spec.versioned and not layout.rule.exact,
                layout.witnesses,
                travels_short(spec.dtype, layout.policy.codec),
                spec.rows is not None and spec.rows <= _NARROW,
                layout.mirrors if spec.exchange == "ring" else (),
            )
            for spec in layout.tables
        ]
        # A user's partition is their own function: it is never called with keys from an unverified message.
        self._placed = [
            (not callable(spec.partition) or isinstance(spec.partition, ChunkPartition)) and not spec.mirrored
            for spec in layout.tables
        ]

    def table(self, number: int) -> RowFormat | None:
        if not 0 <= number < len(self._shapes):
            raise Malformed("no such table")
        return self._shapes[number]

    def keys(self, table: int, keys: NDArray[np.int64], shard: int) -> None:
        rows = self._shapes[table].rows
        # As unsigned integers the negative keys are large: one comparison checks both bounds.
        if rows is not None and len(keys) and int(keys.view(np.uint64).max()) >= rows:
            raise Malformed("a row out of range")
        if self._placed[table] and not (self._layout.shard_of(table, keys) == shard).all():
            raise Malformed("a row of another shard")

    def block(self, plan: int, block: int, sizes: Sequence[int]) -> None:
        raise Malformed("a block where there are tables")


class RingCheck:
    """Checks frames of a job with rotating arrays; tables are rejected.

    Parameters
    ----------
    sizes : mapping
        For each plan, [array][block] bytes.
    """

    def __init__(self, sizes: Mapping[int, Sequence[Sequence[int]]]) -> None:
        self._sizes = {plan: [np.asarray(of, np.int64) for of in arrays] for plan, arrays in sizes.items()}

    def table(self, number: int) -> RowFormat | None:
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
