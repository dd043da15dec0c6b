"""Iterations in the order of the plan, to run the undecorated function in Python with the results of the compiled loop.

With buffers, a visit must read the state as of the start of its wave plus its own writes. So the arrays behind the
buffers are restored between visits, and after the last visit of a wave the writes of each visit are replayed in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stretto.data.records.records import Column, RaggedColumn
from stretto.loops.analyse.space import Space, inside
from stretto.loops.execute.prepared import PreparedLoop
from stretto.loops.front.bind import BoundValues
from stretto.state.buffer import Buffer

from .traversal import iterations


def in_order(prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any]) -> Iterator[Any]:
    """(index, value) of every record, visit by visit, or the index alone of ranges; the plan replays buffers."""
    visits = prepared.visits
    buffers = [held.buffers[a.name] for a in prepared.analysis.body.arrays if a.role == "buffer"]
    every = np.arange(len(visits), dtype=np.int64)
    for buffer in buffers:
        buffer.hold()
    try:
        for wave in visits.waves or (every,):
            yield from _wave(prepared, held, known, buffers, wave.tolist())
    finally:
        for buffer in buffers:
            buffer.release()


def _wave(
    prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any], buffers: list[Buffer], wave: list[int]
) -> Iterator[Any]:
    space, loop = prepared.analysis.space, prepared.analysis.loop
    behind = [array for buffer in buffers for array in (buffer.target, *buffer.helpers)]
    start = [array.copy() for array in behind]
    logs = []
    for visit in wave:
        for index, at in iterations(prepared.visits, space, visit):
            place = index[0] if len(index) == 1 else index
            if space.records is not None:
                yield place, _value(prepared, space, at)
            elif inside(loop, held.infos, known, index):
                yield place
            else:
                continue
            for buffer in buffers:
                buffer.tick()
        for buffer in buffers:
            buffer.flush()
            logs.append((buffer, buffer.take_log()))
        for array, was in zip(behind, start, strict=True):
            array[...] = was
    for buffer, log in logs:
        buffer.replay(log)


def _value(prepared: PreparedLoop, space: Space, at: int) -> Any:
    """The value of a record as iteration over the data gives it: a number, a tuple, a list of entries."""
    assert space.records is not None
    value = space.records.value
    names = iter([name for name, _ in space.fields])
    ragged = iter([name for name, _ in space.ragged])
    arrays = prepared.visits.arrays

    def one(column: Column | RaggedColumn) -> Any:
        if isinstance(column, RaggedColumn):
            name = next(ragged)
            lo, hi = arrays["ptr", name][at : at + 2].tolist()
            parts = [arrays[f"part{k}", name][lo:hi].tolist() for k in range(len(column.parts))]
            return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        return prepared.visits.arrays["field", next(names)][at].item()

    return tuple(one(column) for column in value) if isinstance(value, tuple) else one(value)
