"""Sort entries into the blocks of a plan (grouped by visit), in memory or in files.

    tallied = tally(chunk, rows, cols, order, crew)      # entries of each visit
    blocks = lay_out(data, rows, cols, order, tallied, crew)

All functions work on fixed parts of the input, so the result does not depend on the number of threads. Indices are
local to their block, in two bytes where they fit: 8 bytes a rating instead of 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.errors import DataError
from stretto.kernels.factorization import grid as kernels
from stretto.plan.arrays import StepSpec, by_visits, constant
from stretto.plan.kernel_reference import named_kernel
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent

from .crew import Crew
from .packed_layout import lay_out_packed
from .parted import PartedSource, by_shares
from .source import Chunk, EntryArrays, EntrySource
from .step import make_step, parts

_PARTS = 16
_LISTS = 64  # lists over which blocks to sort are distributed, at most: several for each thread
_SMALL = 1 << 16


@dataclass(frozen=True, eq=False)
class Blocks:
    """Entries grouped by visit: visit v has entries ptr[v] to ptr[v + 1], indices local to its two blocks."""

    ptr: Ints  # [V + 1]
    u: NDArray[Any]  # [n] uint16 or int32
    i: NDArray[Any]  # [n]
    r: NDArray[np.float32]  # [n]
    row_base: Ints  # [V] first row of the visit's row block
    col_base: Ints  # [V]
    repeats: int  # pairs that occur more than once

    @property
    def weight(self) -> Ints:
        """[V] entries in each visit."""
        return np.diff(self.ptr)

    @property
    def nbytes(self) -> int:
        return int(self.u.nbytes + self.i.nbytes + self.r.nbytes)


def index_type(cut: BlockPartition) -> type[np.uint16] | type[np.int32]:
    """The smallest type that holds an index local to a block."""
    return np.uint16 if cut.sizes.max(initial=0) <= _SMALL else np.int32


def locals_of(cut: BlockPartition) -> tuple[NDArray[np.int16], NDArray[Any]]:
    """[n] the block of each row, and [n] its index inside the block."""
    block = cut.block_of()
    return block, (cut.place - cut.bounds[block]).astype(index_type(cut))


def visit_table(order: Order) -> Ints:
    """[R, C] the visit of each pair of blocks."""
    table = np.zeros((order.rows, order.cols), np.int64)
    table[order.row_block, order.col_block] = np.arange(len(order))
    return table


@dataclass(frozen=True, eq=False)
class Tally:
    """How many entries of each part of the input belong to each visit."""

    bounds: Ints  # [P + 1] parts of the input
    counts: Ints  # [P, V]

    @property
    def weight(self) -> Ints:
        """[V] entries of each visit."""
        return np.ascontiguousarray(self.counts.sum(axis=0))


def tally(chunk: Chunk, rows: BlockPartition, cols: BlockPartition, order: Order, crew: Crew) -> Tally:
    """Count the entries of each visit."""
    bounds = parts(len(chunk[2]), _PARTS)
    count = len(bounds) - 1
    counts = np.zeros((count, len(order)), np.int64)
    args = (bounds, chunk[0], chunk[1], rows.block_of(), cols.block_of(), visit_table(order), counts)
    crew.run(make_step("count", kernels.count_worker, independent(count), np.diff(bounds), *args), "exact")
    return Tally(bounds, counts)


def tally_parts(source: PartedSource, rows: BlockPartition, cols: BlockPartition, order: Order, crew: Crew) -> Ints:
    """[P, V] entries of each visit in each part of a source, counted where the crew works."""
    counts = np.zeros((source.parts, len(order)), np.int64)
    for one in by_shares(source, crew, partial(_tally_share, rows, cols, order)):
        for number, weight in one.items():
            counts[number] = weight
    return counts


def _tally_share(
    rows: BlockPartition, cols: BlockPartition, order: Order, source: PartedSource, parts: Sequence[int], crew: Crew
) -> dict[int, Ints]:
    found = {}
    for number in parts:
        chunks = (tally(chunk, rows, cols, order, crew).weight for chunk in source.part(number))
        found[number] = sum(chunks, np.zeros(len(order), np.int64))
    return found


def scatter(
    chunk: Chunk,
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    tallied: Tally,
    crew: Crew,
    mean: float,
    scale: float,
) -> tuple[Ints, NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """(ptr, u, i, r): the entries grouped by visit, in input order; values become (value − mean) / scale."""
    entries = len(chunk[2])
    bounds = tallied.bounds
    row_block, row_local = locals_of(rows)
    col_block, col_local = locals_of(cols)
    ptr, at = _begins(tallied)
    u, i = np.empty(entries, row_local.dtype), np.empty(entries, col_local.dtype)
    r = np.empty(entries, np.float32)
    lookup = (row_block, col_block, row_local, col_local, visit_table(order))
    args = (bounds, *chunk, *lookup, at, np.float32(mean), np.float32(1.0 / scale), u, i, r)
    each = independent(len(bounds) - 1)
    crew.run(make_step("scatter", kernels.scatter_worker, each, np.diff(bounds), *args), "exact")
    return ptr, u, i, r


def lay_out(
    data: EntryArrays,
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    tallied: Tally,
    crew: Crew,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
) -> Blocks:
    """Group the entries by visit and sort each block in visiting order; values become (value − mean) / scale."""
    chunk = (data.rows, data.cols, data.values)
    if index_type(rows) == index_type(cols) == np.uint16:
        ptr, at = _begins(tallied)
        visits = (visit_table(order), _over_lists(order, min(len(order), _LISTS)))
        u, i, r, repeats = lay_out_packed(chunk, rows, cols, *visits, tallied.bounds, ptr, at, crew, mean, scale)
    else:
        ptr, u, i, r = scatter(chunk, rows, cols, order, tallied, crew, mean, scale)
        repeats = arrange(ptr, rows, cols, order, u, i, r, crew)
    return Blocks(ptr, u, i, r, rows.bounds[order.row_block], cols.bounds[order.col_block], repeats)


def _begins(tallied: Tally) -> tuple[Ints, Ints]:
    """(ptr, at): where the entries of each visit begin, [V + 1], and where those of each part begin in it, [P, V]."""
    ptr = np.concatenate([[0], np.cumsum(tallied.weight)]).astype(np.int64)
    counts = tallied.counts
    return ptr, np.ascontiguousarray(ptr[:-1] + np.cumsum(counts, axis=0) - counts)


def _over_lists(order: Order, lists: int) -> Order:
    """The visits of an order as independent ones, in as many lists.

    A worker checks every row block whenever it claims a visit: many blocks are distributed over fewer lists.
    """
    every = np.arange(len(order))
    return Order("independent", lists, len(order), every * lists // max(1, len(order)), every)


def lay_out_on_disk(
    source: EntrySource,
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    weight: Ints,
    crew: Crew,
    disk: Disk,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
) -> Blocks:
    """The same blocks, in files, from a source that is read in chunks. `weight` [V]: entries of each visit."""
    grouped = group_on_disk(source, rows, cols, order, weight, crew, disk, mean, scale)
    repeats = arrange(grouped[0], rows, cols, order, *grouped[1:], crew, on_disk=True)
    return Blocks(*grouped, rows.bounds[order.row_block], cols.bounds[order.col_block], repeats)


def group_on_disk(
    source: EntrySource,
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    weight: Ints,
    crew: Crew,
    disk: Disk,
    mean: float,
    scale: float,
) -> tuple[Ints, NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """(ptr, u, i, r) of `scatter`, in files."""
    ptr = np.concatenate([[0], np.cumsum(weight)]).astype(np.int64)
    kinds: dict[str, Any] = {"u": index_type(rows), "i": index_type(cols), "r": np.float32}
    u, i, r = (disk.array(name, (int(ptr[-1]),), kind) for name, kind in kinds.items())
    fill_blocks(source, rows, cols, order, ptr, (u, i, r), crew, mean=mean, scale=scale, disk=disk)
    return ptr, u, i, r


def fill_blocks(
    source: EntrySource,
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    ptr: Ints,
    into: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    crew: Crew,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    disk: Disk | None = None,
) -> Ints:
    """Append a source's entries to their visits in (u, i, r), chunk by chunk; return the entries of each visit, [V].

    Parameters
    ----------
    source : EntrySource
        The entries.
    rows, cols, order : BlockPartition, BlockPartition, Order
        Blocks and visits.
    ptr : [V + 1] array of int
        Range of each visit's entries.
    into : tuple of arrays
        (u, i, r).
    mean, scale : float
        Values become (value − mean) / scale.
    disk : Disk or None
        Where (u, i, r) are in files.
    """
    every = ((0, chunk) for chunk in source.chunks())
    return fill_parts(every, rows, cols, order, ptr[None, :-1], ptr[1:], into, crew, mean=mean, scale=scale, disk=disk)


def fill_parts(
    chunks: Iterable[tuple[int, Chunk]],
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    first: Ints,
    end: Ints,
    into: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    crew: Crew,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    disk: Disk | None = None,
) -> Ints:
    """Like `fill_blocks`, for chunks (part, entries): chunks of a part in their order, parts in any order.

    Parameters
    ----------
    first : [P, V] array of int
        Start of each visit's entries of a part.
    end : [V] array of int
        End of each visit's entries of the last part.
    """
    begun = first.copy()
    for part, chunk in chunks:
        filled, limit = begun[part], end if part + 1 == len(first) else first[part + 1]
        tallied = tally(chunk, rows, cols, order, crew)
        here, *some = scatter(chunk, rows, cols, order, tallied, crew, mean, scale)
        counts = np.diff(here)
        if np.any(filled + counts > limit):
            raise DataError("the source has more entries than when it was counted; do not change it while it is read")
        for v in np.flatnonzero(counts).tolist():
            at = slice(int(filled[v]), int(filled[v] + counts[v]))
            for array, piece in zip(into, some, strict=True):
                array[at] = piece[here[v] : here[v + 1]]
        filled += counts
        if disk is not None:
            disk.release_all()
    return np.asarray((begun - first).sum(axis=0))


def arrange(
    ptr: Ints,
    rows: BlockPartition,
    cols: BlockPartition,
    order: Order,
    u: NDArray[Any],
    i: NDArray[Any],
    r: NDArray[Any],
    crew: Crew,
    *,
    on_disk: bool = False,
    visits: Ints | None = None,
) -> int:
    """Sort each block in visiting order, in place; return the number of repeated pairs. `visits`: only these."""
    sizes = (rows.sizes[order.row_block], cols.sizes[order.col_block])
    worker, spec = kernels.arrange_worker, None
    if on_disk:
        entries = (by_visits(name, ptr, written=True) for name in "uir")
        arguments = (constant("ptr"), constant("rows_in"), constant("cols_in"), *entries)
        spec = StepSpec("arrange", named_kernel(worker), arguments)
    each = _over_lists(order, len(order) if on_disk or visits is not None else min(len(order), _LISTS))
    step = make_step("arrange", worker, each, np.diff(ptr), ptr, *sizes, u, i, r, spec=spec)
    crew.run_here(step, "exact", None if visits is None else np.setdiff1d(np.arange(len(order)), visits))
    return int(step.total())
