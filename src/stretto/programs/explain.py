"""explain() of a program: schedule, pipeline, parameters, copies, grade."""

from __future__ import annotations

from stretto.errors import PlanError
from stretto.runtime.chosen import one_memory, runtime_words
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.spec import Schedule
from stretto.text import WIDE, counted, fact_page, show_bytes

from .auto import candidate_facts, depth_of
from .base import ProgramBase, check
from .params import Arrays, arrays_of
from .part_sources import sources
from .parts import parts_of


def explain(program: ProgramBase, pipeline: int | None = None, runtime: Runtime | None = None) -> str:
    """Several lines of text about a program."""
    check(program)
    pipeline = depth_of(program.schedule, pipeline, runtime or Threads())
    check_pipeline(program, pipeline)
    arrays = arrays_of(program.name, program.params)
    total = show_bytes(sum(array.nbytes for array in arrays.values()))
    heading = f"program {program.name}: {counted(len(arrays), 'array')} of parameters, {total}"
    return fact_page(heading, facts(program, arrays, pipeline, runtime or Threads()), WIDE)


def check_pipeline(program: ProgramBase, pipeline: int) -> None:
    """Refuse a pipeline depth that the schedule does not support."""
    schedule = program.schedule
    if pipeline > 1 and isinstance(schedule, Schedule) and schedule.waiting is not None:
        raise PlanError(
            f"{program.name}: jobs of {schedule!r} read what those before them in the round have written, so rounds "
            "cannot overlap; use pipeline=1 (within a round nobody waits longer than it must)"
        )


def facts(program: ProgramBase, arrays: Arrays, pipeline: int, runtime: Runtime) -> list[tuple[str, str]]:
    """Lines of explain(): (name, text), the grade first, the runtime last."""
    schedule = program.schedule
    ready = isinstance(schedule, Schedule)
    alone = ready and schedule.waiting is not None
    parts = parts_of(program.name, program.parts, program.data)
    here = one_memory(runtime)
    found = [
        ("grade", "identical: same program, data, seed and pipeline, same bits: serially and at any number of workers"),
        ("", "this holds while `update` reads nothing but what it is given and `aggregate` is not random"),
        ("schedule", schedule.explain() if ready else f"the program's own: {program.name}.schedule(state)"),
    ]
    if isinstance(schedule, Auto):
        first = next(iter(arrays.values()))
        size = (len(first) if first.ndim else 1) if program.size is None else program.size
        data = program.data if program.columns is None else program.columns
        found += candidate_facts(program, size, data, pipeline, runtime)
    if pipeline == 1:
        found.append(("pipeline", "1: a round is chosen and made when the one before it is over"))
    else:
        found.append(
            ("pipeline", f"{pipeline}: round t is chosen from, and reads, the parameters after round t − {pipeline}")
        )
    when = "when those are aggregated that it waits for" if alone else "in any order, the most urgent first"
    if program.local is not None:
        when = "those of a part in serial order"
    what = "a job" if parts is None else f"a job on each of {len(parts)} parts of the data,"
    where = "on any worker" if here or parts is None else "on the node that holds the part"
    found += [
        ("update", f"{what} {where}, {when}; what it reads is read-only"),
        ("aggregate", "each job as soon as it is updated" if alone else "round after round, results in job order"),
    ]
    found += [
        ("params", f"{name}: {array.dtype} {list(array.shape)}, shared, {show_bytes(array.nbytes)}")
        for name, array in arrays.items()
    ]
    if parts is not None:
        rule = "added up" if program.merge is None else "merged by the program's merge(a, b)"
        found.append(("parts", f"{len(parts)}, a number of the program: results of a job are {rule} in part order"))
        if count := sources(parts):
            found.append(("", f"{count} of them read where they are held: {'here' if here else 'the driver has none'}"))
    if program.local is not None:
        found.append(("state", "of each part, made by local(part) and kept where the part is held"))
    if not here:
        rest = "choosing, aggregating and evaluating run on the driver"
        found.append(("nodes", f"hold {'all data' if parts is None else 'their parts'} and get what changed; {rest}"))
    size = sum(array.nbytes for array in arrays.values())
    held = f"{pipeline} versions are held, {show_bytes(pipeline * size)}"
    copied = "nothing: the arrays are written in place" if pipeline == 1 else f"{show_bytes(size)} a round; {held}"
    return [*found, ("copied", copied), ("runs on", runtime_words(runtime))]
