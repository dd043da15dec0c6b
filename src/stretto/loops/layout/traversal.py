"""Iterate over a visit in plain Python: its iterations in order, and the positions of their fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stretto.loops.analyse.space import Space

if TYPE_CHECKING:
    from .loop_visits import LoopVisits


def iterations(visits: LoopVisits, space: Space, visit: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """(indices, position of the fields) of every iteration of a visit, in order."""
    visits.check_known()
    arrays, form = visits.arrays, visits.form
    if form.kind == "entries":
        lo, hi = arrays["ptr", ""][visit : visit + 2].tolist()
        dims = range(len(space.dims))
        for at in range(lo, hi):
            yield tuple(int(arrays[f"base{d}", ""][visit]) + int(arrays[f"index{d}", ""][at]) for d in dims), at
        return
    if form.kind == "picked":
        lo, hi = arrays["ptr", ""][visit : visit + 2].tolist()
        dim = space.dims[0]
        for at in arrays["picked", ""][lo:hi].tolist():
            yield (dim.start + dim.step * at,), at
        return
    lo_, hi_ = arrays["lo", ""][visit].tolist(), arrays["hi", ""][visit].tolist()
    if form.kind == "range":
        for at in range(lo_[0], hi_[0]):
            yield (at,), at
        return
    if form.kind == "skewed":
        yield from _skewed_points(visits, space, lo_, hi_)
        return
    ranges = [range(a, b, step) for a, b, step in zip(lo_, hi_, form.steps, strict=True)]
    for point in np.ndindex(*(len(r) for r in ranges)):
        index = tuple(r[k] for r, k in zip(ranges, point, strict=True))
        yield index, _flat(space, index)


def _flat(space: Space, index: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(index, [dim.extent for dim in space.dims])) if space.kind == "dense" else 0


def _skewed_points(
    visits: LoopVisits, space: Space, lo: list[int], hi: list[int]
) -> Iterator[tuple[tuple[int, ...], int]]:
    pair, dims = visits.form.pair, space.dims
    rest = [d for d in range(len(dims)) if d not in pair]
    for y0 in range(lo[0], hi[0]):
        for y1 in range(lo[1], hi[1]):
            at = {d: row[0] * y0 + row[1] * y1 for d, row in zip(pair, visits.form.inverse, strict=True)}
            if not all(0 <= at[d] < dims[d].extent for d in pair):
                continue
            for others in np.ndindex(*(dims[d].extent for d in rest)):
                at |= dict(zip(rest, others, strict=True))
                index = tuple(dim.start + dim.step * at[d] for d, dim in enumerate(dims))
                yield index, _flat(space, index)
