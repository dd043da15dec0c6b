"""Decide whether a plan is replayed from CUDA graphs or called operation by operation."""

from __future__ import annotations

from dataclasses import replace

from stretto.memory.planner.instructions import EVICT, FREE, HOLD, IN, OUT, READY, RECOMPUTE, RELEASE, RUN, UNHOLD
from stretto.memory.planner.planner import PlannedProgram

from .graph_segments import Segment, cut

# Seconds that Python takes for an instruction (measured with GPT and residual networks on an H200's host), and to
# update a parameter; and the share of them that the device waits, even where it has more to do than Python.
_CALLS = {
    RUN: 50e-6,
    RECOMPUTE: 50e-6,
    OUT: 100e-6,
    EVICT: 15e-6,
    FREE: 3e-6,
    IN: 100e-6,
    READY: 15e-6,
    HOLD: 5e-6,
    UNHOLD: 1e-6,
    RELEASE: 1e-6,
}
_UPDATED = 100e-6
_SEEN = 0.1


def recorded(made: PlannedProgram, parameters: int) -> tuple[PlannedProgram, list[Segment] | None]:
    """The plan as it will run, and its segments if replaying them is faster than calling every operation.

    Parameters
    ----------
    made : PlannedProgram
        The plan.
    parameters : int
        The number of parameters that are updated.
    """
    program, costs = made.program, made.costs
    apart = {n for n, node in enumerate(program.graph.nodes) if node.phase == "update"}
    segments, replayed = cut(program, apart, made.settings.link, parameters * _UPDATED)
    calling = parameters * _UPDATED + sum(_CALLS[what] for what, _ in program.instructions)
    called = max(costs.seconds + _SEEN * calling, calling)
    if called < replayed.seconds:
        made.notes.append("operations are called one by one, which is no slower than replaying CUDA graphs")
        return replace(made, costs=replace(costs, seconds=called)), None
    made.notes.append(f"{len(segments):,} CUDA graphs are replayed")
    return replace(made, costs=replace(costs, seconds=replayed.seconds, waited=replayed.waited)), segments
