"""Start a program on a runtime, and return its result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from stretto.runtime.chosen import one_memory
from stretto.runtime.files.checkpoint import writing
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.rounds.rounds import RoundsRun
from stretto.schedule.pipeline import Pipeline

from .base import ProgramBase, check
from .engine import ProgramRun
from .explain import check_pipeline, explain
from .progress import telling
from .values import ProgramResult, RunOptions


def launch(program: ProgramBase, options: RunOptions) -> ProgramResult:
    """Run a user's program."""
    check(program)
    check_pipeline(program, options.pipeline)
    return launched(ProgramRun, program, options, lambda: explain(program, options.pipeline, options.runtime))[1]


def launched(
    kind: type[ProgramRun], program: ProgramBase, options: RunOptions, plan: Callable[[], str]
) -> tuple[ProgramRun, ProgramResult]:
    """Run a program that was checked.

    Parameters
    ----------
    kind : type
        The class of the run.
    plan : function() -> str
        The plan in words.
    """
    keeping = options.keeping
    with (
        telling(program.name, options, plan) as progress,
        nullcontext() if keeping is None else writing(keeping.folder),
    ):
        run = kind(program, options, progress)
        result = _launch(run, options)
        progress.ended(result.stopped)
    return run, result


def _launch(run: ProgramRun, options: RunOptions) -> ProgramResult:
    here = one_memory(options.runtime)
    # Nodes run the updates of a part in the order in which they arrive; threads take any that the pipeline offers.
    ordered, save_every = (run.parts, run.saver.every) if here and run.stateful else (0, None)
    pipeline = Pipeline(options.pipeline, options.rounds, ordered=ordered, save_every=save_every)
    run.hold(pipeline)
    run.saver.resume(pipeline)
    if not run.history:
        run.look(0)
    with options.runtime.rounds(pipeline, run) as rounds:
        run.begins(rounds.clock, here=here)
        try:
            with heeding_ctrl_c(rounds) as ctrl_c:
                rounds.run()
                interrupted = ctrl_c.heard()
            run.saver.finish(run.versions.newest)
        finally:
            run.versions.put_back()
        return _result(run, rounds, interrupted)


def _result(run: ProgramRun, rounds: RoundsRun, interrupted: bool) -> ProgramResult:
    options, done, seconds = run.options, run.versions.newest, run.seconds
    if run.history[-1].round != done:
        run.look(done)
    if options.rounds is None and options.verbose == 1 and done:
        # Without a number of rounds there is no progress bar; the last line reports the round reached.
        run.progress.look(run.history[-1], run.history[0])
    stopped = run.stopped or ("rounds" if options.rounds is not None and done >= options.rounds else "interrupted")
    if run.stopped is None and run.ended == done + 1:
        stopped = "schedule"
    if interrupted:  # also when it came too late to stop anything
        stopped = "interrupted"
    return ProgramResult(
        params={name: array.copy() for name, array in run.arrays.items()},
        rounds=done,
        updates=run.updates,
        seconds=seconds,
        stopped=stopped,
        history=tuple(run.history),
        record=tuple(run.record),
        schedule_seconds=rounds.spent["choose"],
        busy_seconds=sum(rounds.spent.values()),
        choices=run.source.choices,
    )
