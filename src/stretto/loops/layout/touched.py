"""Elements of an array that each visit of a loop accesses, computed before the loop runs.

Over a grid of ranges they follow from the subscripts: index plus constant, constants, whole axes. If subscripts come
from the data, or visits are tiles of transformed indices, the prefetch function lists them (`execute.prefetcher`). If a
subscript depends on what the loop writes, the elements are unknown and the visit may access any element. So may a visit
of a scheduled loop, whose iterations are chosen at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.loops.analyse.assumptions import Assumptions
from stretto.loops.analyse.facts import Access, Dim, Subscript
from stretto.loops.analyse.placement import by_array
from stretto.loops.execute.prefetcher import Prefetch
from stretto.loops.front.bind import BoundValues
from stretto.plan.touched import Touched

if TYPE_CHECKING:
    from stretto.loops.execute.prepared import PreparedLoop
    from stretto.runtime.blocks.crew import Crew

    from .loop_visits import LoopVisits

_EXACT = ("index", "number", "span", "whole")
_MODES = ("read", "write", "buffer")


def touched_by(
    prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any], names: Sequence[str], crew: Crew
) -> tuple[dict[str, Touched], Assumptions]:
    """The elements of some arrays that visits access, and the values that the result depends on."""
    analysis, visits = prepared.analysis, prepared.visits
    groups = by_array(analysis.accesses)
    found: dict[str, Touched] = {}
    to_list = []
    for name in names:
        group, shape = groups.get(name, []), held.arrays[name].shape
        subscripts = [s for access in group for s in access.subscripts]
        if (
            not group
            or visits.form.kind == "picked"
            or any(all(s.kind == "whole" for s in access.subscripts) for access in group)
        ):
            found[name] = Touched(held.arrays[name].size)
        elif visits.form.kind == "grid" and all(s.kind in _EXACT for s in subscripts):
            found[name] = _boxes(visits, analysis.space.dims, group, shape)
        else:
            to_list.append(name)
    if not to_list:
        return found, Assumptions()
    prefetch = Prefetch(analysis, visits, held, known, arrays=to_list, modes=_MODES, loosely=True)
    unknown = {out.array for out in prefetch.sliced.left_out}
    recorded = prefetch.record(crew)
    for name in to_list:
        size = held.arrays[name].size
        found[name] = Touched(size) if name in unknown else Touched.of_lists(size, *recorded.of(name))
    return found, prefetch.relied


def _boxes(visits: LoopVisits, dims: tuple[Dim, ...], group: Sequence[Access], shape: tuple[int, ...]) -> Touched:
    """The elements for exact subscripts over nested ranges.

    The elements of a visit form a box: along every axis the union over all accesses. The box may include unused
    corners, which are cheaper to fetch than to leave out. If it is far too large, each access gets its own box.
    """
    lo, hi = visits.arrays["lo", ""], visits.arrays["hi", ""]
    forms = list(dict.fromkeys(access.subscripts for access in group))
    axes = [[_axes(dims, lo[v], hi[v], form, shape) for form in forms] for v in range(len(lo))]
    lists = [_elements(each, shape) for each in axes]
    ptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    return Touched.of_lists(int(np.prod(shape)), ptr, np.concatenate(lists))


def _elements(boxes: list[list[NDArray[Any]]], shape: tuple[int, ...]) -> NDArray[Any]:
    """The elements of one visit, from the axes of every access."""
    hull = [np.unique(np.concatenate(axis)) for axis in zip(*boxes, strict=True)]
    sizes = [math.prod(len(axis) for axis in box) for box in boxes]
    if math.prod(len(axis) for axis in hull) <= 1.5 * max(sizes) + 64:
        return _flat(hull, shape)
    return np.unique(np.concatenate([_flat(box, shape) for box in boxes]))


def _flat(axes: list[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    """Flat indices of the elements of a box."""
    at = np.zeros(1, np.int64)
    for axis, size in zip(axes, shape, strict=True):
        at = (at[:, None] * size + axis).reshape(-1)
    return at


def _axes(
    dims: tuple[Dim, ...], lo: NDArray[Any], hi: NDArray[Any], form: tuple[Subscript, ...], shape: tuple[int, ...]
) -> list[NDArray[Any]]:
    """The indices along every axis that one access of a visit may use, without those outside the array."""
    found = []
    for subscript, size in zip(form, shape, strict=True):
        match subscript.kind:
            case "index":
                d = subscript.dim
                axis = np.arange(lo[d], hi[d], dims[d].step) + subscript.offset
            case "number":
                axis = np.array([subscript.offset])
            case "span":
                axis = np.arange(subscript.offset, subscript.stop)
            case _:
                axis = np.arange(size)
        found.append(axis[(axis >= 0) & (axis < size)])
    return found
