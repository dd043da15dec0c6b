"""Find records with the same (row, column) pair.

A pair becomes one 64-bit key, the keys are sorted once, and equal neighbours are duplicates. On ten million records
that is 80 MB and a fraction of a second; data already in row order needs no sort. Everything after that reads only the
records that share a pair, which are few.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.arrays import SLICE, Indices


def find_duplicates(rows: Indices, cols: Indices, n_cols: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of all records that share their pair with another, in order, and the number of the pair of each.

    Both arrays are empty when there are none. Pairs are numbered 0, 1, ... in the order of their keys.
    """
    keys = _keys(rows, cols, n_cols)
    if keys is None:
        return _find_by_lexsort(rows, cols)
    if _increasing(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    keys.sort()
    repeated = _repeated(keys)
    del keys
    if not len(repeated):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    found, numbers = [], []
    for lo in range(0, len(rows), SLICE):
        part = _keys(rows[lo : lo + SLICE], cols[lo : lo + SLICE], n_cols)
        assert part is not None
        at = np.minimum(np.searchsorted(repeated, part), len(repeated) - 1)
        hit = np.flatnonzero(repeated[at] == part)
        found.append(hit + lo)
        numbers.append(at[hit])
    return np.concatenate(found), np.concatenate(numbers).astype(np.int64)


def first_duplicate(positions: NDArray[np.int64], pairs: NDArray[np.int64]) -> tuple[int, int]:
    """Positions (earlier, later) of the first repetition one meets reading from the top."""
    _, first = np.unique(pairs, return_index=True)
    again = np.ones(len(pairs), dtype=np.bool_)
    again[first] = False
    later = int(np.argmax(again))
    return int(positions[np.argmax(pairs == pairs[later])]), int(positions[later])


def _keys(rows: Indices, cols: Indices, n_cols: int) -> NDArray[np.int64] | None:
    """`row * n_cols + col`, or None where that could pass 63 bits."""
    small = n_cols <= 2**31 and rows.dtype == np.int32  # where it fits in any case
    if not small and len(rows) and (int(rows.max()) + 1) * n_cols > 2**63 - 1:
        return None
    keys = rows.astype(np.int64)
    keys *= n_cols
    keys += cols
    return keys


def _increasing(keys: NDArray[np.int64]) -> bool:
    parts = (keys[lo : lo + SLICE + 1] for lo in range(0, len(keys), SLICE))  # neighbours overlap by one
    return all(bool((part[1:] > part[:-1]).all()) for part in parts)


def _repeated(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    found = []
    for lo in range(0, len(keys) - 1, SLICE):
        part = keys[lo : lo + SLICE + 1]
        found.append(part[1:][part[1:] == part[:-1]])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _find_by_lexsort(rows: Indices, cols: Indices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for indices too large for one key; slower and hungrier, and hardly ever needed."""
    order = np.lexsort((cols, rows))
    r, c = rows[order], cols[order]
    equal = (r[1:] == r[:-1]) & (c[1:] == c[:-1])
    starts = np.concatenate(([True], ~equal))
    number = np.cumsum(starts) - 1
    shared = np.bincount(number)[number] > 1
    positions = order[shared]
    pairs = np.unique(number[shared], return_inverse=True)[1]
    back = np.argsort(positions, kind="stable")
    return positions[back].astype(np.int64), pairs[back].astype(np.int64)
