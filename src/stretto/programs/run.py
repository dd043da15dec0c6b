"""`st.run`: run a program."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

from stretto.checks import flags, whole, wrong
from stretto.errors import PlanError
from stretto.runtime.chosen import PROGRAMS, chosen, one_memory
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.interrupts import raising_ctrl_c
from stretto.runtime.runtimes import Runtime, Threads
from stretto.runtime.session import Session
from stretto.runtime.tables.job import CheckpointSettings
from stretto.schedule.prioritised import Prioritised
from stretto.schedule.spec import Schedule

from .auto import depth_of
from .base import ProgramBase, settle_schedule
from .values import Look, ProgramResult, RunOptions


def run(
    program: ProgramBase,
    *,
    rounds: int | None = None,
    pipeline: int | None = None,
    seed: int = 0,
    every: int = 1,
    until: Callable[[Look], bool] | None = None,
    seconds: float | None = None,
    runtime: Runtime | None = None,
    record: bool = False,
    verbose: int = 0,
    checkpoint: str | os.PathLike[str] | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    session: Session | None = None,
    check_every: int | None = None,
    schedulers_on: str = "driver",
) -> ProgramResult:
    """Run a program until it has made `rounds` rounds, its schedule has no jobs left, or `until` returns True.

    The arrays in `program.params` are where the run begins and where it leaves what it learned, so a second run
    continues from there. Ctrl-C ends the run with what was learned so far.

    Parameters
    ----------
    program : Program
        The program.
    rounds : int or None, default None
        The most rounds; None for no limit.
    pipeline : int or None, default None
        Pipeline depth: round t reads the parameters after round t − pipeline; 1 is no pipelining. None: 1, or 3 with
        schedule="auto" on several machines.
    seed : int, default 0
        Seed of schedules that draw.
    every : int, default 1
        Rounds between two evaluations of the objective.
    until : callable or None, default None
        Called with each evaluation; the run ends when it returns True.
    seconds : float or None, default None
        End after the first round that ends later than this; evaluations are not counted. Virtual seconds on
        `st.Simulated`.
    runtime : runtime or None, default None
        `st.Threads(n)`, `st.Serial()`, `st.Simulated(…)` or `st.Cluster(…)`; never changes a number.
    record : bool, default False
        Keep the jobs of every round and what it read in `ProgramResult.record`.
    verbose : int, default 0
        0 quiet, 1 a progress bar, 2 a line for every evaluation.
    checkpoint : str, path, Saving or None, default None
        Folder for checkpoints.
    checkpoint_every : int or None, default None
        Rounds between two checkpoints; None chooses an interval that costs little.
    resume : bool, default False
        Continue from the newest checkpoint, with the bits of a run that never stopped. What the schedule and parts
        remember is pickled: resume only from folders that you trust.
    session : Session or None, default None
        Where to record the run, when to save checkpoints and whether to resume, as for estimators; in place of
        checkpoint, checkpoint_every and resume.
    check_every : int or None, default None
        Rounds between two checks that `update` depends on its arguments alone: one job is updated twice on every part
        and both calls must give the same bits. None: in round 1, where an update takes less than 50 ms. 0: never.
    schedulers_on : str, default "driver"
        "nodes" runs each of the `schedulers` of `st.schedule.prioritised` on a node of its own, the last nodes of the
        runtime, with its share of the columns. Never changes a number.

    Returns
    -------
    ProgramResult
    """
    if not isinstance(program, ProgramBase):
        raise PlanError(
            f"st.run runs an st.Program, got {'a class' if isinstance(program, type) else type(program).__name__}; "
            + ("make one: run(" + program.__name__ + "(…))" if isinstance(program, type) else "see st.program")
        )
    settle_schedule(program)
    where = place(runtime)
    if session is not None:
        if checkpoint is not None or checkpoint_every is not None or resume:
            raise PlanError(
                "run: session= says where checkpoints go; leave checkpoint=, checkpoint_every=, resume= out"
            )
        checkpoint, checkpoint_every, resume = _of_session(session)
    options = RunOptions(
        rounds=None if rounds is None else whole("rounds", rounds, 0),
        pipeline=depth_of(getattr(program, "schedule", None), pipeline, where),
        seed=whole("seed", seed, None),
        every=whole("every", every, 1),
        until=_until(until),
        seconds=_positive(seconds),
        runtime=where,
        record=record,
        verbose=whole("verbose", verbose, 0),
        check_every=None if check_every is None else whole("check_every", check_every, 0),
        schedulers_on=_schedulers_on(program, schedulers_on, where),
        session=session,
    )
    options = replace(options, keeping=_keeping(program, options, checkpoint, checkpoint_every, resume))
    if session is not None and session.record is not None:
        program._check()
        options = replace(options, fingerprint=program.identity(options.pipeline, options.seed).saved_as)
    endless = rounds is None and until is None and seconds is None
    if endless and isinstance(getattr(program, "schedule", None), Schedule):
        raise PlanError(
            f"{program.name}: nothing would end this run, since ready schedules never end by themselves; pass rounds=, "
            "until= or seconds="
        )
    with raising_ctrl_c():
        return program.launch(options)


def _schedulers_on(program: ProgramBase, asked: Any, runtime: Any) -> str:
    if asked not in ("driver", "nodes"):
        raise PlanError(f"run: schedulers_on={asked!r}; give 'driver' or 'nodes'")
    if asked == "driver":
        return "driver"
    start, schedule = "run: schedulers_on='nodes'", getattr(program, "schedule", None)
    if not isinstance(schedule, Prioritised):
        raise PlanError(
            f"{start}: {schedule!r} chooses on the driver; give st.schedule.prioritised(schedulers=…), or leave "
            "schedulers_on= out"
        )
    if one_memory(runtime):
        raise PlanError(f"{start}: {runtime!r} has no nodes; give st.Cluster(…) or st.Simulated(…), or leave it out")
    if runtime.nodes <= schedule.schedulers:
        raise PlanError(
            f"{start}: {schedule.schedulers} schedulers and at least one node for updates need "
            f"{schedule.schedulers + 1} nodes, and there are {runtime.nodes}; give more nodes, or fewer schedulers"
        )
    return "nodes"


def _until(until: Any) -> Callable[[Look], bool] | None:
    if until is not None and not callable(until):
        raise PlanError(f"run: until={until!r} cannot be called; give a function until(look) -> bool")
    return until  # type: ignore[no-any-return]


def _positive(seconds: Any) -> float | None:
    if seconds is not None and not (isinstance(seconds, Real) and float(seconds) > 0):
        raise PlanError(f"run: seconds={seconds!r} is not a positive time; leave it out for no limit")
    return None if seconds is None else float(seconds)


def _of_session(session: Any) -> tuple[Saving | None, int | None, bool]:
    """checkpoint, checkpoint_every and resume, from a session."""
    if not isinstance(session, Session):
        raise wrong("run", "session", "an st.Session, such as st.Session(record='runs/first'), or None", session)
    saving = session.saving
    if saving is None:
        return None, None, session.resume
    return replace(saving, every_epochs=None), saving.every_epochs, session.resume


def _keeping(
    program: ProgramBase, options: RunOptions, checkpoint: Any, every: Any, resume: Any
) -> CheckpointSettings | None:
    if checkpoint is None:
        if resume or every is not None:
            raise PlanError("run: resume= and checkpoint_every= need checkpoint=, the folder checkpoints are saved in")
        return None
    flags(resume=resume, owner="run")
    rounds = None if every is None else whole("checkpoint_every", every, 1)
    saving = checkpoint if isinstance(checkpoint, Saving) else None
    if saving is None and not isinstance(checkpoint, str | os.PathLike):
        raise PlanError(f"run: checkpoint={checkpoint!r}; give a folder, or st.Saving(folder, keep=)")
    if saving is not None and (saving.every_epochs is not None or saving.every_seconds is not None):
        raise PlanError("run: programs are saved by rounds; give checkpoint_every= and leave every_… out of st.Saving")
    program._check()
    identity = program.identity(options.pipeline, options.seed)
    folder, keep = (Path(checkpoint), 2) if saving is None else (Path(saving.folder), saving.keep)
    return CheckpointSettings(folder, rounds, keep, resume, identity.saved_as, identity.saved)


def place(runtime: Any) -> Runtime:
    """The runtime of a program: the given one, validated, or threads."""
    found: Runtime = chosen(runtime, owner="run", give=PROGRAMS, default=Threads(), does="rounds", work="programs")
    return found
