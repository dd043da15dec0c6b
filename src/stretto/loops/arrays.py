"""Loops on several nodes: what each argument of a compiled loop is to a node that makes some of the visits.

The node of a visit is the node of its row block (`plan.arrays`). So an array that is always subscripted by
the index that is cut along the rows of the grid is *owned*: a node has the part of its own blocks. One that is always
subscripted by the other cut index, and written, is *rotating*: its blocks go from node to node. One that is only read
is everywhere. The records lie with their visits. Anything else is touched by several visits at places that only show as
the loop runs, or has to be merged between waves of visits: such loops run on one machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.errors import PlanError
from stretto.kernels.reference import made_kernel
from stretto.plan.arrays import (
    Array,
    StepSpec,
    by_cols,
    by_rows,
    by_visits,
    constant,
    fault,
    number,
    per_visit,
    replicated,
)

from .facts import Access, Dim
from .placement import by_array, home
from .userfunction import digest

if TYPE_CHECKING:
    from stretto.data.partition import Cut

    from .analysis import Analysis
    from .run import Prepared
    from .visits import Visits

SPREAD = ("independent", "1d", "2d unordered", "2d ordered")
_ELSEWHERE = "run it with runtime=st.Threads(), or st.Serial()"


def spec_of(prepared: Prepared) -> StepSpec:
    """What each argument of the loop's kernel is. PlanError where visits cannot be told apart by it."""
    analysis, visits, lowered = prepared.analysis, prepared.visits, prepared.lowered
    _check(analysis, visits)
    groups = by_array(analysis.accesses)
    arguments: list[Array] = [fault("fault"), constant("visits")]
    for what, name in lowered.arguments:
        if what == "array":
            arguments.append(_array(analysis, visits, name, groups.get(name, [])))
        elif what == "number":
            arguments.append(number(_name(what, name)))
        elif what == "partial":
            arguments.append(per_visit(_name(what, name)))
        else:
            arguments.append(_record(analysis, visits, what, name))
    digests = [digest(user) for user in lowered.users]
    kernel = made_kernel("visit_worker", lowered.source, lowered.users, digests)
    return StepSpec(analysis.function.name, kernel, tuple(arguments))


def _name(what: str, name: str) -> str:
    """Of an argument: an array has the name that the user gave it."""
    return name if what == "array" else f"{what} {name}".strip()


def _check(analysis: Analysis, visits: Visits) -> None:
    strategy, where = analysis.strategy, f"{analysis.function.name}, line {analysis.loop.line}"
    if analysis.options.schedule is not None:
        raise PlanError(
            f"{where}: a schedule chooses the iterations of every round on one machine; leave out schedule=, or "
            f"{_ELSEWHERE}"
        )
    if strategy.name not in (*SPREAD, "buffered"):
        raise PlanError(f"{where}: the strategy {strategy.name!r} needs shared memory; {_ELSEWHERE}")
    if visits.waves or strategy.name == "buffered":
        raise PlanError(
            f"{where}: buffered writes are merged between waves of visits, in one memory; keep what they go to in a "
            f"table (st.run with st.Table), or {_ELSEWHERE}"
        )


def _array(analysis: Analysis, visits: Visits, name: str, group: Sequence[Access]) -> Array:
    """An array of the user's."""
    dims, written = analysis.space.dims, name in analysis.written
    for d, make, cut in zip(analysis.strategy.dims, (by_rows, by_cols), (visits.rows, visits.cols), strict=False):
        found = home(group, dims, d) if group else None
        if found is None or found[1] != 0 or (make is by_cols and not written):
            continue
        offsets = [access.subscripts[found[0]].offset for access in group]
        first, last = _reach(cut, dims[d], min(offsets), max(offsets))
        return make(name, first, last, axis=found[0], written=written)
    if not written:
        return replicated(name)
    why = next(why for array, _, why in analysis.placements if array == name)
    raise PlanError(
        f"{analysis.function.name}, line {analysis.loop.line}: {name} is written and belongs to no node ({why}); "
        f"subscript it by an index that is cut, or {_ELSEWHERE}"
    )


def _reach(cut: Cut, dim: Dim, low: int, high: int) -> tuple[Any, Any]:
    """first, last [B]: the elements that each block of an index touches when its subscripts are index + low … high."""
    begin, end = cut.bounds[:-1], cut.bounds[1:] - 1
    ends = np.stack([dim.start + dim.step * begin, dim.start + dim.step * end])
    first, last = ends.min(axis=0) + low, ends.max(axis=0) + high + 1
    empty = end < begin
    # A subscript may lie outside the array: the loop finds out, and touches element 0 at most.
    first, last = np.maximum(first, 0), np.maximum(last, 0)
    return np.where(empty, 0, first), np.where(empty, 0, last)


def _record(analysis: Analysis, visits: Visits, what: str, name: str) -> Array:
    """What a visit reads of the records: its own part, where records lie visit by visit or in order."""
    arrays, kind, called = visits.arrays, visits.form.kind, _name(what, name)
    if kind == "entries":
        lo, hi = arrays["ptr", ""][:-1], arrays["ptr", ""][1:]
    elif kind == "range":
        lo, hi = arrays["lo", ""][:, 0], arrays["hi", ""][:, 0]
    elif what == "field" and analysis.strategy.dims[:1] == (0,) and visits.form.dense:
        # The elements of a dense array, row by row: those of the rows of a visit.
        dims = analysis.space.dims
        rest = int(np.prod([dim.extent for dim in dims[1:]], dtype=np.int64))
        return by_visits(called, arrays["lo", ""][:, 0] * rest, arrays["hi", ""][:, 0] * rest)
    else:
        return constant(called)
    if what.startswith("index") or what == "field":
        return by_visits(called, lo, hi)
    if what == "ptr" and name:
        return by_visits(called, lo, hi + 1)
    if what.startswith("part"):
        ptr = arrays["ptr", name]
        return by_visits(called, ptr[lo], ptr[hi])
    return constant(called)
