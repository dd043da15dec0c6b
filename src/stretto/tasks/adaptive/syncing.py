"""The sync of loops: it holds for the units below that give none of their own, and "adaptive" names who tunes whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stretto.checks import shown
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.errors import PlanError
from stretto.tasks.tree import BranchTask, Criterion, ParallelTasks, RepeatedTask, SequenceTask, Task, Unit
from stretto.tasks.walk import Path

ADAPTIVE = "adaptive"


def checked_sync(owner: str, sync: Any) -> Rule | None:
    """The rule that is given; None for none. "adaptive" starts with BSP."""
    if isinstance(sync, str) and sync == ADAPTIVE:
        return BSP()
    if sync is not None and not isinstance(sync, BSP | SSP | ASP):
        raise PlanError(f"{owner}: sync={shown(sync)}; give st.BSP(), st.SSP(s), st.ASP() or 'adaptive'")
    return sync


def loop_sync(body: Task, until: Criterion | None, sync: Any) -> tuple[Task, bool]:
    """The body of a loop with the sync of the loop, and whether the loop tunes its units."""
    rule = checked_sync("loop", sync)
    measured = until is not None and until.kind in ("below", "stalls")
    if sync == ADAPTIVE and not measured:
        raise PlanError(
            "loop: sync='adaptive' needs an objective; give until=st.below(unit, bound) or st.stalls(unit, share), "
            "whose unit returns what is minimised"
        )
    if rule is not None:
        body = _under(body, rule, sync == ADAPTIVE)
    return body, sync == ADAPTIVE or (measured and any(unit.tuned for _, unit in _free(body)))


def refuse_untuned(task: Task) -> None:
    """Raise if a unit asks to be tuned and no loop around it has an objective."""
    for _, unit in _free(task):
        if unit.tuned:
            raise PlanError(
                f"unit {unit.name}: sync='adaptive' needs an objective; put it into a loop with "
                "until=st.below(unit, bound) or until=st.stalls(unit, share), whose unit returns what is minimised"
            )


def adaptive_loops(task: Task, path: Path = ()) -> Iterator[tuple[Path, RepeatedTask, list[tuple[Path, Unit]]]]:
    """The loops that tune: path, loop, and the units that it tunes with their paths."""
    if isinstance(task, RepeatedTask) and task.adaptive:
        yield path, task, list(_free(task.body, (*path, 0)))
    for number, child in enumerate(task.children):
        yield from adaptive_loops(child, (*path, number))


def _free(task: Task, path: Path = ()) -> Iterator[tuple[Path, Unit]]:
    """The units of a task that no loop below it tunes."""
    if isinstance(task, Unit):
        yield path, task
    if not (isinstance(task, RepeatedTask) and task.adaptive):
        for number, child in enumerate(task.children):
            yield from _free(child, (*path, number))


def _under(task: Task, rule: Rule, tuned: bool) -> Task:
    """The task with a sync for the units that have none of their own; units of criteria stay as they are."""
    if isinstance(task, Unit):
        plain = task.own_sync or task.is_loop or task.mode is not None
        return task if plain else replace(task, sync=rule, own_sync=True, tuned=tuned)
    if isinstance(task, SequenceTask | ParallelTasks):
        return replace(task, tasks=tuple(_under(child, rule, tuned) for child in task.tasks))
    if isinstance(task, RepeatedTask):
        return replace(task, body=_under(task.body, rule, tuned))
    assert isinstance(task, BranchTask)
    otherwise = None if task.otherwise is None else _under(task.otherwise, rule, tuned)
    return replace(task, then=_under(task.then, rule, tuned), otherwise=otherwise)
