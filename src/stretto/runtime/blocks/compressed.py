"""Compressed sparse ratings by row and by column (CSR and CSC), sorted, in memory or in files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.kernels.factorization.compress import group_by, order_repeats, turn
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints

from .source import EntryArrays, EntrySource


def _no_weights() -> NDArray[np.float32]:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class Compressed:
    """Compressed sparse rows: row i has entries indptr[i] to indptr[i + 1], with ascending indices."""

    indptr: Ints  # [m + 1]
    indices: NDArray[np.int32]  # [n]
    values: NDArray[np.float32]  # [n]
    weights: NDArray[np.float32] = field(default_factory=_no_weights)  # [n], or length 0 where all weights are 1
    repeats: int = 0  # entries with the same pair as the one before; they are in the order of their values

    @property
    def counts(self) -> Ints:
        """[m] entries of each row."""
        return np.diff(self.indptr)


class _Entries(NamedTuple):
    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[np.float32]
    shape: tuple[int, int]


def _empty(counts: NDArray[Any], entries: int) -> Compressed:
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Compressed(indptr, np.empty(entries, np.int32), np.empty(entries, np.float32))


def compress(data: EntryArrays, row_counts: Ints, col_counts: Ints) -> tuple[Compressed, Compressed]:
    """(by row, by column), independent of the order of the input."""
    m, n = data.shape
    loose = _empty(col_counts, len(data.values))
    group_by(data.cols, data.rows, data.values, loose.indptr[:-1].copy(), loose.indices, loose.values)
    by_row = _empty(row_counts, len(data.values))
    at = np.empty(m, np.int64)
    turn(loose.indptr, loose.indices, loose.values, by_row.indptr, at, by_row.indices, by_row.values)
    repeats = int(order_repeats(by_row.indptr, by_row.indices, by_row.values))
    turn(by_row.indptr, by_row.indices, by_row.values, loose.indptr, np.empty(n, np.int64), loose.indices, loose.values)
    return replace(by_row, repeats=repeats), loose


def with_weights(
    sides: tuple[Compressed, Compressed], data: EntryArrays, weights: NDArray[np.float32]
) -> tuple[Compressed, Compressed]:
    """The compressed entries of data with the weights [n] of its entries; no pair may be repeated."""
    by_row, by_col = sides
    weights = weights.view()
    weights.flags.writeable = False  # as the arrays of `Data` are: the kernel is compiled for these
    own, other = compress(_Entries(data.rows, data.cols, weights, data.shape), by_row.counts, by_col.counts)
    return replace(by_row, weights=own.values), replace(by_col, weights=other.values)


def compress_on_disk(
    source: EntrySource, counts: Ints, cut: BlockPartition, disk: Disk, *, by_column: bool
) -> Compressed:
    """One of the two views of a source that is read in chunks, in files.

    Parameters
    ----------
    source : EntrySource
        The entries.
    counts : array of int
        Entries of each row, or column.
    cut : BlockPartition
        Blocks of rows. Entries are first grouped by block, then each block is sorted.
    disk : Disk
        For the result.
    by_column : bool
        Which view.
    """
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    begins, total = indptr[cut.bounds], int(indptr[-1])
    side = "col" if by_column else "row"
    kinds: dict[str, Any] = {"own": np.int32, "indices": np.int32, "values": np.float32}
    own, indices, values = (disk.array(f"{side}_{name}", (total,), kind) for name, kind in kinds.items())
    block, filled = cut.block_of(), begins[:-1].copy()
    for rows, cols, numbers in source.chunks():
        mine, other = (cols, rows) if by_column else (rows, cols)
        which = block[mine]
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=cut.blocks))
        for b, (first, last) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
            chosen, at = order[first:last], int(filled[b])
            for array, part in ((own, mine), (indices, other), (values, numbers)):
                array[at : at + len(chosen)] = part[chosen]
            filled[b] += len(chosen)
        disk.release_all()
    repeats = 0
    for first, last in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        rows, cols, numbers = own[first:last], indices[first:last], values[first:last]
        order = np.lexsort((numbers, cols, rows))
        rows, cols = rows[order], cols[order]
        indices[first:last], values[first:last] = cols, numbers[order]
        repeats += int(np.count_nonzero((np.diff(rows) == 0) & (np.diff(cols) == 0)))
        disk.release_all()
    return Compressed(indptr, indices, values, repeats=repeats)


def by_rows(data: EntryArrays) -> Compressed:
    """The entries by row only, with ascending indices."""
    rows, cols = np.bincount(data.rows, minlength=data.shape[0]), np.bincount(data.cols, minlength=data.shape[1])
    return compress(data, rows, cols)[0]
