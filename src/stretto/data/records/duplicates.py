"""Resolve records with the same (row, column) pair by a stated policy.

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

from stretto.data.records.data import Data
from stretto.data.records.repeated_pairs import find_duplicates, first_duplicate
from stretto.errors import DataError, FormatError

Duplicates: TypeAlias = Literal["error", "first", "last", "mean", "sum", "keep"]
POLICIES: tuple[str, ...] = get_args(Duplicates)
REMEDY = 'say what to do: duplicates="first" (or last, mean, sum, keep)'


def check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise DataError(f"no duplicate policy {policy!r}; there are {', '.join(POLICIES)}")


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
