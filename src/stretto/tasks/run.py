"""`st.run` of a task: walk its tree, run each unit as a stage, keep the states between stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stretto.checks import choice, parse_bytes, whole
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import TABLES, chosen, one_memory
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.reported import ListeningSession, check_session, reported
from stretto.runtime.runtimes import Serial, Threads
from stretto.runtime.stages.sessions import open_stages
from stretto.runtime.stages.stage_clock import stopping, unique_name
from stretto.runtime.stages.stage_events import StageListener
from stretto.runtime.stages.tuning_events import tell_move

from .placing import gate_of
from .plan import TaskPlan, make_plan
from .proposals.propose import machine_of, placed_automatically
from .result import TaskResult
from .safe_point import SafePoints
from .saving import TaskCheckpoints
from .task_run import DataNames, OnMove, OnStage, TaskEnvironment, TaskOptions, TaskRun
from .tree import Task

OnEvent = Callable[[Any], None]


def run(
    task: Task,
    *,
    runtime: Any = None,
    seed: int = 0,
    on_stage: OnStage | None = None,
    record: str | None = None,
    checkpoint: str | Path | Saving | None = None,
    checkpoint_every: int | str | None = None,
    resume: bool = False,
    memory: str | int | None = None,
    transfer: str = "direct",
    on_event: OnEvent | None = None,
    session: ListeningSession | None = None,
) -> TaskResult:
    """Run a task to its end. Its states hold what was learned.

    Ctrl-C ends it after the stage that runs, and saves a checkpoint if there is a folder; a second one ends it at once.

    Parameters
    ----------
    task : Task
        A unit, or a tree of `st.seq`, `st.loop`, `st.branch` and `st.parallel_units`.
    runtime : runtime or None, default None
        `st.Threads(n)`, `st.Serial()`, `st.Simulated(…)` or `st.Cluster(…)`; None for all cores of this machine.
    seed : int, default 0
        Seed of `worker.random`.
    on_stage : callable or None, default None
        Called with the StageRecord of every stage that has ended.
    record : {"rows", "full"} or None, default None
        "full" keeps in every StageRecord what the replay checker of stretto.testing needs, "rows" how often rows were
        sent.
    checkpoint : str, path, Saving or None, default None
        Folder for checkpoints, which hold states, progress and widths.
    checkpoint_every : int, str or None, default None
        Stages between two checkpoints, or text such as "100 iterations" or "30s"; None chooses an interval that costs
        little. Units of more iterations are divided into stages.
    resume : bool, default False
        Continue from the newest checkpoint.
    memory : str, int or None, default None
        Bytes of each state that a node of a cluster keeps in memory in stages on one node, such as "1GiB"; other chunks
        of it are on disk. None for no limit.
    transfer : {"direct", "shards"}, default "direct"
        How a state gets from a stage on one node to a stage on another: directly, or cut over all nodes in between
        (for comparison).
    on_event : callable or None, default None
        Called with an event `SettingTuned` for every decision of a loop with sync="adaptive".
    session : Session or None, default None
        Where to keep the run record, whether to show its page, and who listens. Stages are its events; the values of
        the first unit that has any are the objective.

    Returns
    -------
    TaskResult
    """
    where = _where(runtime)
    return _run(
        task,
        where,
        None,
        seed,
        on_stage,
        record,
        checkpoint,
        checkpoint_every,
        resume,
        memory,
        transfer,
        on_event,
        session,
    )


def plan_for(task: Task, runtime: Any = None) -> TaskPlan:
    """The plan of a task for a runtime; its `run` runs it."""
    where = _where(runtime)
    nodes = 1 if one_memory(where) else int(where.nodes)
    made = make_plan(task, int(where.workers), nodes, None, where)
    return replace(made, runner=partial(_run_plan, task, made, where))


def plan_of(task: Task, workers: int | None, nodes: int, memory: str | int | None) -> TaskPlan:
    """The plan of a task for a number of workers and nodes; it runs on threads unless `run` says otherwise."""
    made = make_plan(task, workers, nodes, memory)
    return replace(made, runner=partial(_run_plan, task, made, _where(None)))


def _where(runtime: Any) -> Any:
    return chosen(runtime, owner="run", give=TABLES, default=Threads(), does="serve", work="tasks")


def _run_plan(task: Task, made: TaskPlan, where: Any, runtime: Any = None, **how: Any) -> TaskResult:
    return _run(task, where if runtime is None else _where(runtime), made, **how)


def _run(
    task: Task,
    where: Any,
    made: TaskPlan | None = None,
    seed: int = 0,
    on_stage: OnStage | None = None,
    record: str | None = None,
    checkpoint: Any = None,
    checkpoint_every: int | str | None = None,
    resume: bool = False,
    memory: str | int | None = None,
    transfer: str = "direct",
    on_event: OnEvent | None = None,
    session: ListeningSession | None = None,
) -> TaskResult:
    check_session(session)
    choice("transfer", transfer, ("direct", "shards"), owner="run")
    plan = plan_for(task, where)
    if made is not None:
        refuse_changed(made, plan, "task.plan(…)")
    placed = placed_automatically(task, plan.stages, machine_of(where, plan.nodes), lambda unit: _run(unit, Serial()))
    if placed is not task:
        plan = plan_for(placed, where)
    options = TaskOptions(
        whole("seed", seed, None), record, None if memory is None else parse_bytes(memory), transfer == "direct", True
    )
    safe = SafePoints(TaskCheckpoints.of(plan, options.seed, checkpoint, checkpoint_every, resume))
    names = DataNames(unique_name("run"))
    config = {"program": "task", "runtime": str(where), "seed": options.seed}
    try:
        with (
            reported(session, plan, config, unit="iterations", step="evaluation") as report,
            stopping() as asked,
            open_stages(where) as stages,
        ):
            environment = TaskEnvironment(stages, where, gate_of(stages.nodes, stages.threads), names)
            on_move: OnMove | None = None if on_event is None else partial(tell_move, on_event)
            if report.tell is not None:
                on_stage = StageListener(report.tell, on_stage)
                on_move = partial(tell_move, report.with_listener(on_event))
            made_run = TaskRun(plan, environment, options=options, tell=on_stage, on_move=on_move, safe=safe)
            result = made_run.run(lambda: asked.asked)
            report.ended(result.stopped)
            return result
    finally:
        names.release()
