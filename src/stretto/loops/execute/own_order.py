"""Loops over ranges that one worker runs in their own order, by a worker that is compiled for that order.

The order of several workers costs time that a single one gains nothing for: an inspected loop reads the numbers of its
iterations from a list, and a skewed one walks across its arrays diagonally. Both have the result of the loop in its own
order, so one worker runs nested loops as they are written.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core import generated
from stretto.kernels.core.compile import Kernel
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.emit.worker_source import WorkerSource, lower
from stretto.loops.front.user_functions import digest
from stretto.loops.layout.joined import PARTS
from stretto.loops.layout.loop_visits import LoopVisits, even
from stretto.loops.layout.visit_forms import field_arrays, grid_box, grid_form
from stretto.loops.types.body import Body
from stretto.schedule.orders.wavefront import chain


def suits(analysis: Analysis, visits: LoopVisits) -> bool:
    """Whether one worker is faster in the order of the loop; it folds into no accumulator and no buffer."""
    space, strategy = analysis.space, analysis.strategy
    if space.kind not in ("grid", "dense") or not len(space):
        return False
    if strategy.name == "inspected":
        return True
    return visits.form.kind == "skewed" and not carried_inside(analysis)


def carried_inside(analysis: Analysis) -> bool:
    """Whether an iteration of the innermost loop may depend on the one before it, in the order of the loop."""
    last = len(analysis.space.dims) - 1
    return any(
        not vector.entries[last].zero and all(entry.low <= 0 <= entry.high for entry in vector.entries[:last])
        for vector in analysis.vectors
    )


def visits_in_order(analysis: Analysis) -> LoopVisits:
    """The iterations in their own order, in a few parts along the outermost index."""
    space = analysis.space
    extent = space.dims[0].extent
    count = max(1, min(PARTS, extent))
    cut = even(extent, count)
    lo, hi, weight = grid_box(space.dims, {0: (cut, np.arange(count))}, count)
    arrays = {("lo", ""): lo, ("hi", ""): hi, **field_arrays(space)}
    return LoopVisits(chain(count), weight, grid_form(space), cut, even(1, 1), arrays)


def compiled_in_order(analysis: Analysis, body: Body) -> tuple[WorkerSource, Kernel]:
    """The worker. body: the body of the loop with the checks that are needed."""
    where = f"{analysis.function.name}, line {analysis.loop.line}"
    made = lower(body, grid_form(analysis.space), where, operators={}, buffers={}, applies={})
    kernels = generated.load(made.source, made.users, [digest(user) for user in made.users])
    return made, kernels["visit_worker"]
