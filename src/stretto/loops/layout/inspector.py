"""The inspector: read the subscripts of a loop from the data, and group non-conflicting iterations.

    @st.parallel
    def epoch(samples, w, lr):
        for i, (y, features) in samples:
            ...
            for f, x in features:
                w[f] += lr * g * x

The prefetch function lists the elements of written arrays that every iteration reads and writes, including those on
both sides of branches that are decided at run time, so no conflict is missed. `schedule.orders.conflicts` groups the
iterations. Conflicting iterations keep the order of the data, so the result is that of the serial loop. The groups are
computed once and stay valid while the data and the inputs of the subscripts are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stretto.data.partition import BlockPartition
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.facts import Strategy
from stretto.loops.emit.visit_form import VisitForm
from stretto.loops.execute.prefetcher import AccessTrace, Prefetch, TooManyAccesses
from stretto.loops.front.bind import BoundValues
from stretto.loops.front.refusals import NotInspected
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.statements import every_step
from stretto.runtime.blocks.crew import Crew
from stretto.schedule.orders.conflicts import LEAST, Groups, HottestElement, group, hottest, touches
from stretto.schedule.orders.rotation import independent

from .cut_visits import cut_by_strategy
from .loop_visits import LoopVisits, entries, even, indices_of

MOST = 2**27  # accesses that an inspection lists unless the user passed inspect=True: 1 GiB


def lay_inspected(analysis: Analysis, held: BoundValues, known: Mapping[str, Any], crew: Crew) -> LoopVisits:
    """The visits of an inspected loop: waves of groups without conflicts. NotInspected if too little is gained."""
    from stretto.kernels.rounds import colouring

    as_they_come = replace(analysis, strategy=Strategy("independent", (), ""))
    prefetch = Prefetch(
        as_they_come,
        cut_by_strategy(as_they_come, crew),
        held,
        known,
        arrays=written(analysis.body),
        modes=("read", "write"),
        loosely=True,
        rows=True,
    )
    for out in prefetch.sliced.left_out:
        why = (
            f"an inspection needs every subscript before the loop starts, and of {out.text} it is not known: {out.why}"
        )
        raise NotInspected(analysis.function.file, out.line, why, _exempt(out.array))
    try:
        recorded = prefetch.record(crew, visits=False, most=None if analysis.options.inspect else MOST)
    except TooManyAccesses:
        why = f"the data were not inspected, since this loop makes more than {MOST:,} accesses"
        way = "inspect=True: inspect them all the same"
        raise NotInspected(analysis.function.file, analysis.loop.line, why, way) from None
    given = touches(recorded.ptr, recorded.keys, int(recorded.starts[-1]), colouring)
    given = replace(given, starts=recorded.starts, lengths=recorded.lengths)
    width = analysis.options.width
    groups = group(given, width, colouring)
    if not groups.worthwhile and min(width, len(given)) > 1:
        raise NotInspected(
            analysis.function.file,
            analysis.loop.line,
            *_too_little(groups, hottest(given, colouring), recorded, held, width, analysis.space.records is not None),
        )
    waves = tuple(np.arange(lo, hi, dtype=np.int64) for lo, hi in zip(groups.waves[:-1], groups.waves[1:], strict=True))
    place = np.empty(len(given), np.int32)
    place[groups.picked] = np.arange(len(given), dtype=np.int32)
    return LoopVisits(
        independent(len(groups)),
        groups.weight,
        VisitForm("entries"),
        BlockPartition(place, groups.ptr),
        even(1, 1),
        entries(analysis.space, indices_of(analysis.space), np.diff(groups.ptr), groups.picked),
        waves,
        relied=prefetch.relied,
        found=_words(groups, hottest(given, colouring), width),
    )


def written(body: Body) -> frozenset[str]:
    """Arrays of the caller that the loop stores into, without a buffer."""
    shared = {array.name for array in body.arrays if array.role in ("state", "captured")}
    places = (place for step in every_step(body.steps) if isinstance(step, t.Store) for place in step.places)
    return frozenset({p.array for p in places if isinstance(p, t.ElementPlace | t.RowPlace)} & shared)


# --- words ----------------------------------------------------------------------------------------------------------


def _words(groups: Groups, hot: HottestElement | None, width: int) -> str:
    """What the inspection found, for `explain`."""
    waves = len(groups.waves) - 1
    shared = f"; the hottest element is shared by {hot.iterations:,} iterations" if hot else ""
    made = {
        "batches": "connected components of batches in the order of the data",
        "levels": f"{groups.levels:,} levels without conflicts, the small ones put together",
    }[groups.kind]
    return (
        f"parallelism {groups.parallelism:.1f} of at most {width} in {waves:,} {'wave' if waves == 1 else 'waves'} "
        f"({made}){shared}"
    )


def _too_little(
    groups: Groups, hot: HottestElement | None, recorded: AccessTrace, held: BoundValues, width: int, records: bool
) -> tuple[str, str]:
    """(problem, remedy) of a loop whose iterations share too many elements. records: whether it runs over data."""
    found = f"an inspection finds too little to run together: parallelism {groups.parallelism:.2f} of at most {width}"
    if groups.parallelism < LEAST:
        found += f", and {LEAST} is the least worth having"
    else:
        found += f" in {len(groups.waves) - 1:,} waves, and waiting between them would take longer than the work itself"
    if hot is None:
        return found, ""
    array, element = recorded.owner(hot.element)
    shape = held.arrays[array].shape
    by_rows = recorded.lengths[recorded.arrays.index(array)] > 1
    index = ", ".join(str(int(k)) for k in np.unravel_index(element, shape[:-1] if by_rows else shape)) or ":"
    share = hot.iterations / len(groups.picked)
    leave = f"; or leave {array}[{index}] out of the data (an intercept, say)" if share >= 0.2 and records else ""
    shared = (
        f"{array}[{index}] alone is shared by {hot.iterations:,} of {len(groups.picked):,} iterations ({share:.0%})"
    )
    return f"{found}; {shared}", f"{_exempt(array)}{leave}"


def _exempt(array: str) -> str:
    given = f"pass d{array} = st.buffer({array}) as one more argument and write d{array}[...] += …"
    return f"exempt the writes to {array}: {given}"
