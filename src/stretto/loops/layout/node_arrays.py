"""Array descriptions of a loop for clusters: which arguments are owned, rotating, replicated or served on nodes.

The node of a visit is the node of its row block (`plan.arrays`). So an array that is always subscripted by the index
that is cut along the rows of the grid is *owned*: a node stores the part of its own blocks. An array that is always
subscripted by the other cut index, and written, is *rotating*: its blocks move from node to node. The records are
stored with their visits. An array that is only read is *replicated*, or *served* if its subscripts come from the data:
a node receives the elements that its visits access. All other written arrays are served too: those that several visits
access across the borders of their blocks, those of inspected or transformed loops, and those behind a buffer. The order
or the waves of the loop separate visits that may write what others access.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.loops.analyse.assumptions import Assumptions
from stretto.loops.analyse.facts import Access, Dim
from stretto.loops.analyse.placement import by_array, home
from stretto.loops.front.bind import BoundValues
from stretto.loops.front.user_functions import digest
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
from stretto.plan.kernel_reference import made_kernel
from stretto.plan.served import flat_view, numbering, per_slot, served
from stretto.plan.touched import Touched, Waves

from .touched import touched_by

if TYPE_CHECKING:
    from stretto.data.partition import BlockPartition
    from stretto.loops.analyse.analysis import Analysis
    from stretto.loops.execute.prepared import PreparedLoop
    from stretto.runtime.blocks.crew import Crew

    from .loop_visits import LoopVisits

_RETURNED = ("delta", "keys", "deltas", "seen", "count")  # arrays of a buffer that nodes return after a wave
_SCRATCH = ("copy", "pending", "mark", "touched")


def spec_for(prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any], crew: Crew) -> StepSpec:
    """The descriptions of the arguments of a loop; cached while the values that they depend on are unchanged."""
    described = prepared.described
    if not described or not described[0][1].holds(held, known):
        described[:] = [spec_of(prepared, held, known, crew)]
    return described[0][0]


def spec_of(
    prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any], crew: Crew
) -> tuple[StepSpec, Assumptions]:
    """The description of each argument of the loop's kernel, and the values that it depends on."""
    analysis, visits, lowered = prepared.analysis, prepared.visits, prepared.lowered
    groups = by_array(analysis.accesses)
    found = {
        name: _cut(analysis, visits, name, groups.get(name, [])) for what, name in lowered.arguments if what == "array"
    }
    wanted = [name for name, array in found.items() if array is None]
    wanted += [name for what, name in lowered.arguments if what == "source"]
    touched, relied = touched_by(prepared, held, known, wanted, crew)
    arguments: list[Array] = [fault("fault"), numbering("visits")]
    for what, name in lowered.arguments:
        called = _name(what, name)
        if what == "array":
            cut = found[name]
            arguments.append(_served(analysis, name, touched[name]) if cut is None else cut)
        elif what == "source":
            arguments.append(served(called, touched[name], merged=True))
        elif what == "number":
            arguments.append(number(called))
        elif what == "partial":
            arguments.append(per_visit(called))
        elif what == "flat":
            arguments.append(flat_view(called, _name("copy", name)))
        elif what in _RETURNED or what in _SCRATCH:
            arguments.append(per_slot(called, written=what in _RETURNED))
        else:
            arguments.append(_record(analysis, visits, what, name))
    digests = [digest(user) for user in lowered.users]
    kernel = made_kernel("visit_worker", lowered.source, lowered.users, digests)
    waves = None
    if visits.waves or any(array.kind == "served" for array in arguments):
        every = np.arange(len(visits), dtype=np.int64)
        waves = Waves(visits.order, visits.weight, visits.waves or (every,))
    return StepSpec(analysis.function.name, kernel, tuple(arguments), waves=waves), relied


def _name(what: str, name: str) -> str:
    """The name of an argument in the plan; arrays keep the user's name."""
    return name if what == "array" else f"{what} {name}".strip()


def _cut(analysis: Analysis, visits: LoopVisits, name: str, group: Sequence[Access]) -> Array | None:
    """The description of a user's array that is owned, rotating or replicated; None if it is served."""
    strategy, dims, written = analysis.strategy, analysis.space.dims, name in analysis.written
    # Blocks of a transformed loop are not ranges of an index, all visits of a chain are in one row block, and the
    # iterations of a visit of a scheduled loop change from round to round.
    blockless = strategy.name in ("2d transformed", "stepped", "chain") or visits.form.kind == "picked"
    cut = () if blockless else strategy.dims
    for d, make, blocks in zip(cut, (by_rows, by_cols), (visits.rows, visits.cols), strict=False):
        found = home(group, dims, d) if group else None
        if found is None or found[1] != 0 or (make is by_cols and not written):
            continue
        offsets = [access.subscripts[found[0]].offset for access in group]
        first, last = _reach(blocks, dims[d], min(offsets), max(offsets))
        return make(name, first, last, axis=found[0], written=written)
    looked_up = any(s.kind == "any" for access in group for s in access.subscripts)
    return None if written or looked_up else replicated(name)


def _served(analysis: Analysis, name: str, touched: Touched) -> Array:
    """The description of a served array; one that is only read, with unknown subscripts, is replicated."""
    written = name in analysis.written
    return served(name, touched, written=written) if written or touched.ptr is not None else replicated(name)


def _reach(cut: BlockPartition, dim: Dim, low: int, high: int) -> tuple[Any, Any]:
    """first, last [B]: the elements that each block of an index accesses with subscripts index + low … high."""
    begin, end = cut.bounds[:-1], cut.bounds[1:] - 1
    ends = np.stack([dim.start + dim.step * begin, dim.start + dim.step * end])
    first, last = ends.min(axis=0) + low, ends.max(axis=0) + high + 1
    empty = end < begin
    # A subscript may be outside the array: the loop detects it, and accesses element 0 at most.
    first, last = np.maximum(first, 0), np.maximum(last, 0)
    return np.where(empty, 0, first), np.where(empty, 0, last)


def _record(analysis: Analysis, visits: LoopVisits, what: str, name: str) -> Array:
    """The description of a record array: a visit reads its own part if records are stored by visit or in order."""
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
    elif kind == "picked" and (what, name) in (("ptr", ""), ("picked", "")):
        return replicated(called)  # the iterations of a round
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
