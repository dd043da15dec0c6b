"""Run the maps of lazy records: one pass in which every record goes through all of them.

Consecutive maps are fused: each record passes through all of them before the next one is read, and only the last
results are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.data.reading.build import Builder
from stretto.data.records.records import RaggedColumn, Records, Value


@dataclass(frozen=True, slots=True)
class MapStep:
    """One map. index: the function takes and gives (index, value), and the new data have `shape`."""

    function: Callable[..., Any]
    index: bool
    shape: tuple[int, ...] | None


def with_new_values(old: Records, pairs: Iterable[tuple[Any, Any]], steps: tuple[MapStep, ...], source: str) -> Records:
    """New values under the old indices; what has become lists, or is no longer, changes its kind.

    Parameters
    ----------
    pairs : iterable of (index, value)
        The old records, one at a time.
    """
    value = _run(pairs, steps, source, indices=False).value()
    if old.kind == "sparse":
        return Records("sparse", old.shape, old.index, value)
    kind = "ragged" if _lists(value) and len(old.shape) == 1 else "dense"
    return Records(kind, old.shape, (), value)


def from_stream(
    pairs: Iterable[tuple[Any, Any]], steps: tuple[MapStep, ...], shape: tuple[int, ...] | None, source: str
) -> Records:
    """The records that a stream of (index, value) becomes; shape: that of the stream, None for as large as needed."""
    for step in steps:
        shape = step.shape if step.index else shape
    builder = _run(pairs, steps, source, indices=True)
    shape, index = builder.index(shape)
    return _settled(Records("sparse", shape, index, builder.value()))


def _run(pairs: Iterable[tuple[Any, Any]], steps: tuple[MapStep, ...], source: str, indices: bool) -> Builder:
    """The one pass: every record through every step."""
    builder = Builder(source)
    for index, value in pairs:
        for step in steps:
            try:
                if step.index:
                    index, value = step.function(index, value)
                else:
                    value = step.function(value)
            except Exception as error:
                name = getattr(step.function, "__name__", repr(step.function))
                error.add_note(f"in map({name}), at record {builder.count} ({index!r}) of {source}")
                raise
        if indices:
            builder.add(index, value)
        else:
            builder.add_value(value)
    return builder


def _lists(value: Value) -> bool:
    return any(isinstance(column, RaggedColumn) for column in (value if isinstance(value, tuple) else (value,)))


def _settled(records: Records) -> Records:
    """Lists under the indices 0, 1, 2, … are ragged data."""
    if _lists(records.value) and len(records.index) == 1:
        (index,) = records.index
        if len(index) == records.shape[0] and np.array_equal(index, np.arange(len(index))):
            return Records("ragged", records.shape, (), records.value)
    return records
