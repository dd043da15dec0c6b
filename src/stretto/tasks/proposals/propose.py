"""Proposals: for every state of a task, the placement that costs least, with its reason.

proposals = proposals_for(task, plan.stages, machine, run)
print(proposals)
task = proposals.apply()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretto.runtime.stages.placed_chunks import chunk_bits, placed_chunks
from stretto.runtime.stages.stage_runs import StagePlace
from stretto.state.partitioned import AutoState, PartitionedState
from stretto.state.state import ReplicatedState
from stretto.tasks.arguments import Argument
from stretto.tasks.logical import arguments_of, names_of
from stretto.tasks.transactions.mailbox import MailState
from stretto.tasks.tree import BranchTask, ParallelTasks, RepeatedTask, SequenceTask, Task, Unit
from stretto.text import counted, show_bytes

from .accesses import StateAccess, counting_unit
from .costs import KEY_BYTES, Machine, busiest_bytes, first_bytes, seconds_of

RunUnit = Callable[[Unit], Any]
COMPARED = ("served", "partitioned", "replicated")
CLEAR = 0.02  # a placement that is less than this share better is not worth a change


@dataclass(frozen=True, eq=False)
class Proposal:
    """Where a state should be.

    Attributes
    ----------
    state : State
        The state.
    name : str
        Its name in the task.
    placement : str
        "served" (even shares of all nodes), "partitioned" (a range of rows for each node), "read-only" (every node has
        read it after the first iteration), "one node", or what was declared: "replicated", "declared".
    reason : str
        Why, in one sentence with numbers.
    seconds : dict of float
        By placement that was compared: seconds on the network in one run of each unit.
    changes : bool
        Whether applying it changes where the state is. Results never change.
    """

    state: Any
    name: str
    placement: str
    reason: str
    seconds: dict[str, float]
    changes: bool = False


@dataclass(frozen=True, eq=False)
class Proposals:
    """What `st.propose` returns: a proposal for each state, in the order of their first use.

    Attributes
    ----------
    task : Task
        The task.
    machine : Machine
        What was assumed of the nodes.
    proposals : tuple of Proposal
        The proposals.
    """

    task: Task
    machine: Machine
    proposals: tuple[Proposal, ...]

    def __iter__(self) -> Iterator[Proposal]:
        return iter(self.proposals)

    def __len__(self) -> int:
        return len(self.proposals)

    def __str__(self) -> str:
        lines = [f"proposed for {self.machine.words()}"]
        return "\n".join([*lines, *(f"  {one.name}: {one.reason}" for one in self.proposals)])

    def apply(self) -> Task:
        """The task with these placements. Its states are the same objects, and its results have the same bits.

        Returns
        -------
        Task
        """
        moved = {id(one.state) for one in self.proposals if one.changes}

        def placed(unit: Unit) -> Unit:
            given = dict(unit.partition)
            added = {a.name: "range" for a in unit.arguments if id(a.value) in moved and a.name not in given}
            return replace(unit, partition=(*unit.partition, *added.items())) if added else unit

        return _mapped(self.task, placed)


def proposals_for(task: Task, stages: Sequence[Any], machine: Machine, measuring: RunUnit | None) -> Proposals:
    """The proposals for a task that is planned.

    Parameters
    ----------
    task : Task
        The task.
    stages : sequence of PlannedStage
        Where its units run.
    machine : Machine
        The nodes.
    measuring : callable or None
        function(unit): run one iteration of a unit. None: every part is assumed to use all rows.
    """
    used: dict[int, list[_Use]] = {}
    for stage in stages:
        for argument, access in _accesses(stage.unit, measuring):
            used.setdefault(id(argument.value), []).append(_Use(stage.unit, stage.place, access))
    names = names_of(task)
    found = [
        _proposal(argument, names[id(argument.value)], used.get(id(argument.value), []), machine)
        for argument in arguments_of(task)
        if argument.kind == "state" and not isinstance(argument.value, MailState)
    ]
    return Proposals(task, machine, tuple(found))


def placed_automatically(task: Task, stages: Sequence[Any], machine: Machine, measuring: RunUnit) -> Task:
    """The task with the proposed placements of the states that were declared with placement="auto"."""
    if machine.nodes == 1 or not any(isinstance(a.value, AutoState) for a in arguments_of(task)):
        return task
    found = proposals_for(task, stages, machine, measuring)
    return replace(found, proposals=tuple(one for one in found if isinstance(one.state, AutoState))).apply()


def machine_of(runtime: Any, nodes: int) -> Machine:
    """The nodes of a runtime."""
    if not hasattr(runtime, "link") or not hasattr(runtime, "latency"):
        return Machine(nodes)
    link = runtime.link if isinstance(runtime.link, int | float) else min(runtime.link)
    return Machine(nodes, float(link), float(runtime.latency))


@dataclass(frozen=True, eq=False)
class _Use:
    """A unit that uses a state. access: None: not measured."""

    unit: Unit
    place: StagePlace
    access: StateAccess | None


def _accesses(unit: Unit, measuring: RunUnit | None) -> Iterator[tuple[Argument, StateAccess | None]]:
    """The rows of each served state that the parts of a unit use; None: that is not known."""
    served = [a for a in unit.arguments if a.kind == "state" and _is_served(a.value)]
    if unit.is_loop or measuring is None or not served:
        yield from ((argument, None) for argument in served)
        return
    made, accesses = counting_unit(unit, lambda argument: _is_served(argument.value))
    measuring(made)
    for at, access in accesses.items():
        yield unit.arguments[at], access


def _is_served(state: Any) -> bool:
    return not isinstance(state, ReplicatedState | PartitionedState)


def _proposal(argument: Argument, name: str, used: list[_Use], machine: Machine) -> Proposal:
    state = argument.value
    if not _is_served(state):
        placement = "replicated" if isinstance(state, ReplicatedState) else "declared"
        reason = f"{placement}: you declared it so, and another placement could change results"
        return Proposal(state, name, placement, reason, {})
    size = show_bytes(argument.nbytes)
    wide = [use for use in used if use.place.single is None]
    if not wide:
        return Proposal(state, name, "one node", f"one node: {size}, and all units that use it run on one node", {})
    rows, row_bytes = len(state.array), argument.nbytes // max(1, len(state.array))
    busiest, seconds = dict.fromkeys(COMPARED, 0), dict.fromkeys(COMPARED, 0.0)
    for placement in COMPARED:
        for use in wide:
            each, first = _traffic(use, placement, rows, row_bytes)
            busiest[placement] += each
            seconds[placement] += use.unit.iterations * seconds_of(each, machine) + seconds_of(first, machine)
    words = _access_words(wide, rows, size)
    if all(use.access is not None and not np.any(use.access.changed) for use in wide):
        reason = f"read-only: {words}, so each node reads it once and nothing is sent after that"
        return Proposal(state, name, "read-only", reason, seconds)
    best = "partitioned" if seconds["partitioned"] < (1 - CLEAR) * seconds["served"] else "served"
    others = ", ".join(f"{one} {show_bytes(busiest[one])} ({_time(seconds[one])})" for one in COMPARED if one != best)
    why = (
        f"{best}: {words}; {show_bytes(busiest[best])} pass the busiest link an iteration ({_time(seconds[best])} in "
        f"all; {machine.words()}), {others}"
    )
    return Proposal(state, name, best, why, seconds, changes=best == "partitioned")


def _traffic(use: _Use, placement: str, rows: int, row_bytes: int) -> tuple[int, int]:
    """Bytes over the busiest link in an iteration of a unit, and for the first reads."""
    bits = chunk_bits(rows, row_bytes)
    chunks = -(-rows // (1 << bits))
    holders = placed_chunks(chunks, use.place.nodes, ranges=placement == "partitioned")
    homes, size = use.place.homes(use.unit.parts), row_bytes + KEY_BYTES
    if use.access is None:
        access, size = StateAccess.everything(use.unit.parts, chunks), size * min(rows, 1 << bits)
    else:
        access, holders = use.access, holders[np.arange(rows) >> bits]
        access = access.whole() if placement == "replicated" else access
    return busiest_bytes(holders, access, homes, size), first_bytes(holders, access, homes, size)


def _access_words(wide: list[_Use], rows: int, size: str) -> str:
    parts = counted(max(use.unit.parts for use in wide), "part")
    known = [use.access for use in wide if use.access is not None]
    if len(known) < len(wide):
        return f"{size}, and {parts} assumed to read and change all of its {rows:,} rows"
    read = np.mean([each.mean() for access in known for each in access.read])
    changed = np.mean([each.mean() for access in known for each in access.changed])
    return f"{size}, of which each of {parts} reads {read:.0%} and changes {changed:.0%} an iteration"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _mapped(task: Task, change: Callable[[Unit], Unit]) -> Task:
    """The tree with other units."""
    if isinstance(task, Unit):
        return change(task)
    if isinstance(task, SequenceTask | ParallelTasks):
        return replace(task, tasks=tuple(_mapped(child, change) for child in task.tasks))
    if isinstance(task, RepeatedTask):
        until = None if task.until is None else replace(task.until, unit=change(task.until.unit))
        return replace(task, body=_mapped(task.body, change), until=until)
    assert isinstance(task, BranchTask)
    otherwise = None if task.otherwise is None else _mapped(task.otherwise, change)
    condition = replace(task.condition, unit=change(task.condition.unit))
    return replace(task, condition=condition, then=_mapped(task.then, change), otherwise=otherwise)
