"""Transform records: number, group, label, expand. Pure functions over flat arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.data.records.records import Column, RaggedColumn, Records, index_of
from stretto.errors import DataError

INT32_MAX = 2**31 - 1


def numbered(records: Records, values: bool) -> Records:
    """The value (p, value…), or p alone, where p is the number of the record."""
    n = len(records)
    number = Column(np.arange(n, dtype=np.int32 if n <= INT32_MAX else np.int64), unique=True)
    value = (number, *records.columns) if values else number
    return Records(records.kind, records.shape, records.index, value)


def group_by(records: Records, axis: int) -> Records:
    """Ragged records, one for each index along `axis`: entries (other indices…, value…) in their old order."""
    if len(records.shape) < 2:
        raise DataError(
            f"group_by needs an index of two or more dimensions, this one has shape {records.shape}; "
            "it is grouped already, or has nothing to group by"
        )
    if not 0 <= axis < len(records.shape):
        raise DataError(f"group_by: no axis {axis}; there are 0 to {len(records.shape) - 1}")
    flat = _flat_values(records, "group_by")
    index = index_of(records)
    order, ptr = grouping(index[axis], records.shape[axis])
    others = [part for k, part in enumerate(index) if k != axis]
    parts = [part if order is None else part[order] for part in (*others, *flat)]
    return Records("ragged", (records.shape[axis],), (), RaggedColumn(ptr, tuple(parts)))


def grouping(keys: NDArray[Any], size: int) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The stable order that sorts `keys` (None when they are sorted), and where each key's run begins [size + 1]."""
    ptr = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=ptr[1:])
    if bool((keys[1:] >= keys[:-1]).all()):
        return None, ptr
    return np.argsort(keys, kind="stable"), ptr


def with_labels(grouped: Records, y: ArrayLike | None, source: str) -> Records:
    """Ragged records with a label before the entries of each; as they are where there are no labels."""
    if y is None:
        return grouped
    labels, n = np.asarray(y), grouped.shape[0]
    if labels.shape != (n,) or labels.dtype.kind not in "biuf":
        raise DataError(
            f"{source}: {n} rows need one number each as labels, got shape {labels.shape} of {labels.dtype}"
        )
    if not np.isfinite(labels).all():
        at = int(np.argmin(np.isfinite(labels)))
        raise DataError(f"{source}: the label of row {at} is {labels[at]}; drop the row or give it a number")
    return Records("ragged", grouped.shape, (), (Column(labels), *grouped.columns))


def expanded(records: Records) -> Records:
    """A record of value c as c records of value 1, of the same type."""
    if not isinstance(records.value, Column):
        raise DataError("expanded needs one number for each record, the count")
    counts = records.value.values
    whole = counts.astype(np.int64)
    bad = np.flatnonzero((whole != counts) | (whole < 0))
    if len(bad):
        raise DataError(
            f"expanded: record {bad[0]} has the value {counts[bad[0]]}, which is not a count; "
            "map the values to whole numbers from 0 up first"
        )
    index = tuple(np.repeat(part, whole) for part in index_of(records))
    return Records("sparse", records.shape, index, Column(np.ones(int(whole.sum()), dtype=counts.dtype)))


def _flat_values(records: Records, what: str) -> list[NDArray[Any]]:
    flat = []
    for column in records.columns:
        if not isinstance(column, Column):
            raise DataError(f"{what} needs values of one number or a tuple of numbers, not lists")
        flat.append(column.values)
    return flat
