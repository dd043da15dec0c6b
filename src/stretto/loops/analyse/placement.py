"""Placements of a loop's arrays (owned, rotating, served, …), and the communication volume of an epoch.

With P parts along the space dimension, an array of n elements moves

    0          when one axis is always subscripted by the space index: owned; different offsets make a border that
               the P - 1 neighbours exchange
    2 n        in every wave of visits, when it is buffered: read by all, changes sent back
    n (P - 1)  otherwise: passed along (rotating), copied (replicated) or used by all

This is enough to compare cuts; it does not predict time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stretto.loops.analyse.facts import Access, ArrayExtent, Dim, Strategy

if TYPE_CHECKING:
    from stretto.loops.analyse.analysis import Analysis


def moved(
    accesses: Sequence[Access],
    dims: tuple[Dim, ...],
    extents: Mapping[str, ArrayExtent],
    space: tuple[int, ...],
    parts: int,
    waves: int,
) -> int:
    """Elements that move between parts in an epoch. space: the dimension cut into `parts`; () if no index is cut."""
    total = 0
    for array, group in by_array(accesses).items():
        extent = extents.get(array)
        if extent is None or all(access.mode == "fold" for access in group):
            continue
        size = math.prod(extent.shape)
        at = home(group, dims, space[0]) if space else None
        if any(access.mode == "buffer" for access in group):
            total += 2 * size * waves
        elif at is not None:
            axis, border = at
            total += border * (size // max(1, extent.shape[axis])) * (parts - 1)
        else:
            total += size * (parts - 1)
    return total


def moved_by_worker(
    analysis: Analysis, shapes: Mapping[str, tuple[int, ...]], workers: int, waves: int
) -> list[tuple[str, float]]:
    """(array, elements that one of `workers` receives and sends in an epoch, at most), in the order of the body."""
    strategy, dims = analysis.strategy, analysis.space.dims
    found = []
    for array, group in by_array(analysis.accesses).items():
        shape = shapes[array]
        size = float(math.prod(shape))
        at = (
            home(group, dims, strategy.dims[0])
            if strategy.dims and strategy.name not in ("2d transformed", "stepped")
            else None
        )
        if all(access.mode == "fold" for access in group):
            pass  # one part for each visit, sent back once: its size
        elif any(access.mode == "buffer" for access in group):
            size *= 2 * waves
        elif all(any(s.kind == "record" for s in access.subscripts) for access in group):
            size = 0.0
        elif at is not None:
            size *= at[1] / max(1, shape[at[0]])
        else:
            size *= (workers - 1) / workers
        found.append((array, size if workers > 1 else 0.0))
    return found


def placements(
    strategy: Strategy, accesses: Sequence[Access], dims: tuple[Dim, ...]
) -> tuple[tuple[str, str, str], ...]:
    """(array, placement, why) for every array, in the order in which the body mentions them."""
    return tuple((array, *_placement(strategy, group, dims)) for array, group in by_array(accesses).items())


def _placement(strategy: Strategy, accesses: Sequence[Access], dims: tuple[Dim, ...]) -> tuple[str, str]:
    if any(access.mode == "buffer" for access in accesses):
        return "served", "its writes are buffered"
    if all(access.mode == "fold" for access in accesses):
        return "replicated", "an accumulator: every visit folds into its own part"
    cut = () if strategy.name in ("2d transformed", "stepped") else strategy.dims
    for d, placement in zip(cut, ("owned", "rotating"), strict=False):
        at = home(accesses, dims, d)
        if at is not None and at[1] == 0:
            role = "cut between the parts" if placement == "owned" else "handed on after each visit"
            return placement, f"axis {at[0]} is always subscripted by {dims[d].name}, {role}"
    if all(any(s.kind == "record" for s in access.subscripts) for access in accesses):
        return "owned", "every record has its own element"
    unknown = next((s for access in accesses for s in access.subscripts if s.kind == "any"), None)
    if unknown is not None:
        return "served", f"which elements it needs shows as it runs: {unknown.why or 'a subscript is computed'}"
    if not any(access.writes for access in accesses):
        return "replicated", "it is only read"
    return "shared", "several parts touch the same elements; the order of visits keeps them apart"


def by_array(accesses: Sequence[Access]) -> dict[str, list[Access]]:
    """The accesses to each array, in the order of the body."""
    arrays: dict[str, list[Access]] = {}
    for access in accesses:
        arrays.setdefault(access.array, []).append(access)
    return arrays


def home(accesses: Sequence[Access], dims: tuple[Dim, ...], d: int) -> tuple[int, int] | None:
    """(axis, border) of the axis that every access subscripts by index d; None if there is no such axis.

    border: largest difference of the offsets; 0 when no two values of the index share an element.
    """
    best: tuple[int, int] | None = None
    for axis in range(min(len(access.subscripts) for access in accesses)):
        column = [access.subscripts[axis] for access in accesses]
        if all(s.kind == "index" and s.dim == d for s in column):
            apart = max(s.offset for s in column) - min(s.offset for s in column)
            border = 0 if apart < abs(dims[d].step) else apart
            if best is None or border < best[1]:
                best = (axis, border)
    return best
