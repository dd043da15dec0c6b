"""A user's program in words: who chooses, what is read, what is copied, what is promised."""

from __future__ import annotations

from stretto.errors import PlanError
from stretto.plan.cost import show_bytes
from stretto.plan.explain import show
from stretto.runtime.chosen import runtime_words
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.spec import Schedule

from .params import Arrays, arrays_of
from .program import Program, check

WIDTH = 120


def explain(program: Program, pipeline: int = 1, runtime: Runtime | None = None) -> str:
    """Several lines of text about a program."""
    check(program)
    check_pipeline(program, pipeline)
    arrays = arrays_of(program.name, program.params)
    total = show_bytes(sum(array.nbytes for array in arrays.values()))
    heading = f"program {program.name}: {len(arrays)} array{'s' if len(arrays) > 1 else ''} of parameters, {total}"
    return "\n".join([heading, *show(_facts(program, arrays, pipeline, runtime or Threads()), WIDTH)])


def check_pipeline(program: Program, pipeline: int) -> None:
    """Refuse a depth that the schedule cannot have."""
    schedule = program.schedule
    if pipeline > 1 and isinstance(schedule, Schedule) and schedule.waiting is not None:
        raise PlanError(
            f"{program.name}: jobs of {schedule!r} read what those before them in the round have written, so rounds "
            "cannot overlap; use pipeline=1 (within a round nobody waits longer than it must)"
        )


def _facts(program: Program, arrays: Arrays, pipeline: int, runtime: Runtime) -> list[tuple[str, str]]:
    schedule = program.schedule
    ready = isinstance(schedule, Schedule)
    alone = ready and schedule.waiting is not None
    facts = [
        ("grade", "identical: same program, data, seed and pipeline, same bits: serially and at any number of workers"),
        ("", "this holds while `update` reads nothing but what it is given and `aggregate` is not random"),
        ("schedule", schedule.explain() if ready else f"the program's own: {program.name}.schedule(state)"),
    ]
    if pipeline == 1:
        facts.append(("pipeline", "1: a round is chosen and made when the one before it is over"))
    else:
        facts.append(
            ("pipeline", f"{pipeline}: round t is chosen from, and reads, the parameters after round t − {pipeline}")
        )
    when = "when those are aggregated that it waits for" if alone else "in any order, the most urgent first"
    facts += [
        ("update", f"a job on any worker, {when}; what it reads is read-only"),
        ("aggregate", "each job as soon as it is updated" if alone else "round after round, results in job order"),
    ]
    facts += [
        ("params", f"{name}: {array.dtype} {list(array.shape)}, shared, {show_bytes(array.nbytes)}")
        for name, array in arrays.items()
    ]
    size = sum(array.nbytes for array in arrays.values())
    held = f"{pipeline} versions are held, {show_bytes(pipeline * size)}"
    copied = "nothing: the arrays are written in place" if pipeline == 1 else f"{show_bytes(size)} a round; {held}"
    return [*facts, ("copied", copied), ("runs on", runtime_words(runtime))]
