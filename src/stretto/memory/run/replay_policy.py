"""Whether a plan is played from a recording or called operation by operation."""

from __future__ import annotations

from dataclasses import replace

from stretto.memory.planner.planner import Planned
from stretto.memory.planner.program import AGAIN, FREE, GONE, HOLD, IN, OUT, READY, RELEASE, RUN, UNHOLD

from .graph_segments import Segment, cut

# Seconds that Python takes for an instruction (about: seen with GPT and residual networks on an H200's host), and to
# update a parameter; and the share of it that the device waits, even where it has more to do than Python.
_CALLS = {
    RUN: 50e-6,
    AGAIN: 50e-6,
    OUT: 100e-6,
    GONE: 15e-6,
    FREE: 3e-6,
    IN: 100e-6,
    READY: 15e-6,
    HOLD: 5e-6,
    UNHOLD: 1e-6,
    RELEASE: 1e-6,
}
_UPDATED = 100e-6
_SEEN = 0.1


def recorded(made: Planned, parameters: int) -> tuple[Planned, list[Segment] | None]:
    """The plan as it will run: in segments that are recorded, if that is faster than calling every operation; None if
    not. parameters: how many are updated."""
    program, costs = made.program, made.costs
    apart = {n for n, node in enumerate(program.graph.nodes) if node.phase == "update"}
    segments, played = cut(program, apart, made.settings.link, parameters * _UPDATED)
    calling = parameters * _UPDATED + sum(_CALLS[what] for what, _ in program.instructions)
    called = max(costs.seconds + _SEEN * calling, calling)
    if called < played.seconds:
        made.notes.append("operations are called one by one, which is no slower than playing a recording")
        return replace(made, costs=replace(costs, seconds=called)), None
    made.notes.append(f"a recording is played, in {len(segments):,} segments")
    return replace(made, costs=replace(costs, seconds=played.seconds, waited=played.waited)), segments
