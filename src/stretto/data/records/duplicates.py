"""Find records with the same (row, column) pair and resolve them by a stated policy.

A pair becomes one 64-bit key, the keys are sorted once, and equal neighbours are duplicates. On ten million records
that is 80 MB and a fraction of a second; data already in row order needs no sort. Everything after that reads only the
records that share a pair, which are few.

| policy  | what becomes of the records of one pair |
|---------|------------------------------------------|
| "error" | refused, naming the first two            |
| "first" | the first one counts                     |
| "last"  | the last one counts                      |
| "mean"  | one record with their average            |
| "sum"   | one record with their sum                |
| "keep"  | all stay, and weigh more in training     |

Whatever the policy, a pair that stays keeps the place of its first record, so the order of the rest never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import SLICE, Data, Indices
from stretto.errors import DataError, FormatError

Duplicates: TypeAlias = Literal["error", "first", "last", "mean", "sum", "keep"]
POLICIES: tuple[str, ...] = get_args(Duplicates)
REMEDY = 'say what to do: duplicates="first" (or last, mean, sum, keep)'


def check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise DataError(f"no duplicate policy {policy!r}; there are {', '.join(POLICIES)}")


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


def settle(data: Data, policy: str, lines: Callable[[int, int], tuple[int, int]] | None = None) -> Data:
    """`data` with its duplicate pairs settled by `policy`.

    lines : function(a, b) -> the lines of two records, for data from a file; None: messages name positions.
    """
    check_policy(policy)
    if policy == "keep" or len(data) < 2:
        return data
    positions, pairs = find_duplicates(data.rows, data.cols, data.shape[1])
    if not len(positions):
        return data
    if policy == "error":
        raise duplicate_error(data, positions, pairs, lines)
    return _merge(data, positions, pairs, policy)


def duplicate_error(
    data: Data,
    positions: NDArray[np.int64],
    pairs: NDArray[np.int64],
    lines: Callable[[int, int], tuple[int, int]] | None,
) -> DataError:
    a, b = first_duplicate(positions, pairs)
    row, col = outside_name(data.row_ids, data.rows[a]), outside_name(data.col_ids, data.cols[a])
    extra = len(positions) - len(np.unique(pairs))
    more = "" if extra == 1 else f" ({extra} repeated records in all)"
    given = f"with values {data.values[a]:g} and {data.values[b]:g}{more}"
    if lines is None:
        return DataError(
            f"{data.source}: the pair ({row}, {col}) occurs twice, at positions {a} and {b}, {given}; {REMEDY}"
        )
    first, again = lines(a, b)
    problem = f"the pair ({row}, {col}) occurs twice, at lines {first} and {again}, {given}"
    return FormatError(data.source, again, problem, REMEDY)


def outside_name(ids: Any, index: Any) -> str:
    """How a row or column is called outside."""
    return str(int(index)) if ids is None else str(ids.ids[int(index)])


def _merge(data: Data, positions: NDArray[np.int64], pairs: NDArray[np.int64], policy: str) -> Data:
    count = int(pairs.max()) + 1
    _, first = np.unique(pairs, return_index=True)
    settled: NDArray[Any]
    given = data.values[positions].astype(np.float64)
    if policy == "first":
        settled = given[first]
    elif policy == "last":
        settled = np.empty(count)
        settled[pairs] = given  # NumPy assigns in order, so the last one stays
    else:
        settled = np.bincount(pairs, weights=given, minlength=count)
        if policy == "mean":
            settled = settled / np.bincount(pairs, minlength=count)
    stays = np.ones(len(data), dtype=np.bool_)
    stays[positions] = False
    stays[positions[first]] = True
    values = data.values.copy()
    values[positions[first]] = settled
    kept = replace(data, rows=data.rows[stays], cols=data.cols[stays], values=values[stays])
    if policy == "sum" and not np.isfinite(kept.values).all():
        raise DataError(
            f"{data.source}: the sum of a repeated pair does not fit a 32-bit float; settle it with another policy"
        )
    return kept


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
