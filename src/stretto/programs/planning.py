"""plan() of a program: grade, placement, cost, and a picture of its pipelined rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from stretto.checks import whole
from stretto.plan.cost import Cost
from stretto.plan.job import JobPlan
from stretto.plan.plan import Physical
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import name_of

from .auto import depth_of
from .base import ProgramBase, check
from .explain import check_pipeline, facts
from .params import arrays_of
from .parts import parts_of
from .run import place, run
from .values import ProgramResult

_DRAWN = 6  # rounds in the picture, at least
_SLOT, _LINE, _LEFT, _TOP = 70, 30, 90, 70
_STAGES = (("choose", "#8da0cb"), ("update", "#66c2a5"), ("aggregate", "#fc8d62"))


def plan(program: ProgramBase, pipeline: int | None, seed: int, runtime: Any, how: Mapping[str, Any]) -> JobPlan:
    """The plan of `run(program, …)`; see `Program.plan`."""
    check(program)
    where = place(runtime)
    pipeline = depth_of(program.schedule, pipeline, where)
    made = _planned(program, pipeline, whole("seed", seed, None), where)

    def run_plan(other: Any = None, **more: Any) -> ProgramResult:
        there = where if other is None else place(other)
        refuse_changed(made, _planned(program, pipeline, seed, there), "program.plan(…)")
        return run(program, pipeline=pipeline, seed=seed, runtime=there, **{**how, **more})

    return replace(made, runner=run_plan)


def _planned(program: ProgramBase, pipeline: int, seed: int, runtime: Any) -> JobPlan:
    check(program)
    check_pipeline(program, pipeline)
    arrays = arrays_of(program.name, program.params)
    parts = parts_of(program.name, program.parts, program.data)
    size = sum(array.nbytes for array in arrays.values())
    lines = facts(program, arrays, pipeline, runtime)
    data = _nbytes(program.data if parts is None else parts)
    return JobPlan(
        program.name,
        f"{sum(array.size for array in arrays.values()):,} parameters"
        + (f", data in {len(parts)} parts" if parts is not None else ""),
        program.identity(pipeline, seed).values,
        Cost(0, 0, pipeline * size + data, data + 2 * size, 0),
        why=dict(lines[:1])["grade"].partition(": ")[2],
        facts=tuple(fact for fact in lines if fact[0] not in ("grade", "runs on")),
        physical=Physical(name_of(runtime), runtime.workers),
        picture=partial(picture, pipeline),
        counted="parameters",
    )


def _nbytes(value: Any) -> int:
    """Bytes of the arrays in a value."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_nbytes, value))
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return 0


def picture(depth: int, heading: str) -> str:
    """SVG text: the stages of the first rounds, each stage one slot of time, with `depth` rounds in flight.

    Round t begins when round t − depth is aggregated, so with three stages a depth of 3 fills every slot.
    """
    rounds = max(_DRAWN, depth + 2)
    # choose(t) after choose(t − 1) and aggregate(t − depth); aggregate(t) after aggregate(t − 1).
    starts: list[int] = []
    for number in range(rounds):
        ready = starts[number - depth] + len(_STAGES) if number >= depth else 0
        starts.append(max(ready, starts[-1] + 1 if starts else 0))
    width = _LEFT + _SLOT * (starts[-1] + len(_STAGES)) + 20
    height = _TOP + _LINE * rounds + 30
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="24" font-size="16">{escape(heading)}</text>',
        f'<text x="10" y="46">rounds over time, {depth} in flight: round t reads the parameters after round '
        f"t − {depth}</text>",
    ]
    for number, start in enumerate(starts):
        y = _TOP + _LINE * number
        found.append(f'<text x="10" y="{y + 19}">round {number + 1}</text>')
        for stage, (name, colour) in enumerate(_STAGES):
            x = _LEFT + _SLOT * (start + stage)
            found.append(
                f'<rect x="{x}" y="{y}" width="{_SLOT - 2}" height="{_LINE - 4}" fill="{colour}"/>'
                f'<text x="{x + 4}" y="{y + 18}" font-size="12">{name}</text>'
            )
    return "\n".join([*found, "</svg>", ""])
