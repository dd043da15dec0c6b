"""How a sparse regression with `schedule="auto"` begins."""

from __future__ import annotations

from stretto.programs.auto import round_cost
from stretto.programs.values import RunOptions
from stretto.schedule.automatic.candidates import COMPILED

from .problem import CoordinateProgramBase
from .segments import AutoSegments, Start, compiled, width_of


def auto_start(program: CoordinateProgramBase, options: RunOptions) -> Start:
    """The first width and chooser, and the segments that follow."""
    columns, schedule = program.columns, program.schedule
    cost = round_cost(schedule, options.runtime, options.pipeline, COMPILED)
    chooser = schedule.begin(columns.size, options.seed, columns, cost, depth=options.pipeline)
    entries = program.design.nnz / max(1, program.design.shape[1])
    return Start(
        compiled(chooser),
        width_of(chooser),
        schedule.width,
        lambda engine: AutoSegments(engine, chooser, entries, options.rounds),
    )
