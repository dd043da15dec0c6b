"""`st.propose`: for every state of a task, the placement that costs least, with its reason.

proposals = st.propose(task, runtime=st.Simulated(nodes=8))
print(proposals)
st.run(proposals.apply(), runtime=st.Simulated(nodes=8))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretto.runtime.chosen import one_memory
from stretto.runtime.runtimes import Serial
from stretto.runtime.stages.stage_runs import StagePlace
from stretto.state.partitioned import PartitionedState
from stretto.state.state import ReplicatedState
from stretto.tasks.arguments import Argument
from stretto.tasks.logical import arguments_of, names_of
from stretto.tasks.run import plan_for, run
from stretto.tasks.transactions.mailbox import MailState
from stretto.tasks.tree import BranchTask, ParallelTasks, RepeatedTask, SequenceTask, Task, Unit
from stretto.text import counted, show_bytes

from .accesses import StateAccess, counting_unit
from .costs import Machine, busiest_bytes, first_bytes, placed_rows, seconds_of

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


def propose(task: Task, runtime: Any = None, *, measure: bool = True) -> Proposals:
    """Propose a placement for every state of a task, by cost. Nothing changes until `apply` of the result is used.

    Compared are even shares of all nodes ("served"), a range of rows for each node ("partitioned"), and a copy for each
    part ("replicated"). A copy is refreshed as a whole in every exchange, through the same nodes, so it never costs
    less than "served" and is only listed.

    With `measure`, one iteration of every unit runs on copies of its states, one part after another in this process, to
    see which rows each part reads and changes. Functions with effects of their own, such as writing files, have them.

    Parameters
    ----------
    task : Task
        The task. It is not run, and its states stay as they are.
    runtime : runtime or None, default None
        Where it would run: nodes, and on `st.Simulated` their link and latency. Otherwise 1 Gbit and 100 µs are
        assumed.
    measure : bool, default True
        Whether accesses are measured. Otherwise every part is assumed to read and change everything.

    Returns
    -------
    Proposals

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> def step(worker, rows, w):
    ...     w.add(rows, 0.5 * w.read(rows))
    >>> w = st.state(np.ones(16 * 8192))
    >>> task = st.unit(step, np.arange(16 * 8192), w, parts=4, iterations=10)
    >>> (proposal,) = st.propose(task, st.Simulated(nodes=4, threads=1))
    >>> proposal.placement, proposal.changes
    ('partitioned', True)
    """
    plan = plan_for(task, runtime)
    machine = _machine(runtime, plan.nodes)
    used: dict[int, list[tuple[Unit, StagePlace, StateAccess]]] = {}
    for stage in plan.stages:
        for argument, access in _accesses(stage.unit, measure):
            used.setdefault(id(argument.value), []).append((stage.unit, stage.place, access))
    names = names_of(task)
    found = [
        _proposal(argument, names[id(argument.value)], used.get(id(argument.value), []), machine, measure)
        for argument in arguments_of(task)
        if argument.kind == "state" and not isinstance(argument.value, MailState)
    ]
    return Proposals(task, machine, tuple(found))


def _machine(runtime: Any, nodes: int) -> Machine:
    if runtime is None or one_memory(runtime) or not hasattr(runtime, "latency"):
        return Machine(nodes)
    link = runtime.link if isinstance(runtime.link, int | float) else min(runtime.link)
    return Machine(nodes, float(link), float(runtime.latency))


def _accesses(unit: Unit, measure: bool) -> Iterator[tuple[Argument, StateAccess]]:
    """The rows of each served state that the parts of a unit use."""
    served = [a for a in unit.arguments if a.kind == "state" and _is_served(a.value)]
    if unit.is_loop or not served:
        return
    if not measure:
        for argument in served:
            yield argument, StateAccess.of(unit.parts, len(argument.value.stored.array), everything=True)
        return
    made, accesses = counting_unit(unit, lambda argument: _is_served(argument.value))
    run(made, runtime=Serial())
    for at, access in accesses.items():
        yield unit.arguments[at], access


def _is_served(state: Any) -> bool:
    return not isinstance(state, ReplicatedState | PartitionedState)


def _proposal(
    argument: Argument, name: str, used: list[tuple[Unit, StagePlace, StateAccess]], machine: Machine, measured: bool
) -> Proposal:
    state = argument.value
    if not _is_served(state):
        placement = "replicated" if isinstance(state, ReplicatedState) else "declared"
        reason = f"{placement}: you declared it so, and another placement could change results"
        return Proposal(state, name, placement, reason, {})
    size = show_bytes(argument.nbytes)
    wide = [(unit, place, access) for unit, place, access in used if place.single is None]
    if not wide:
        return Proposal(state, name, "one node", f"one node: {size}, and all units that use it run on one node", {})
    rows, row_bytes = len(state.array), argument.nbytes // max(1, len(state.array))
    busiest, seconds = {}, {}
    for placement in ("served", "partitioned", "replicated"):
        busiest[placement], seconds[placement] = 0, 0.0
        for unit, place, access in wide:
            holders = placed_rows(placement, rows, row_bytes, place.nodes)
            seen = access.whole() if placement == "replicated" else access
            homes = place.homes(unit.parts)
            each = busiest_bytes(holders, seen, homes, row_bytes)
            first = first_bytes(holders, seen, homes, row_bytes)
            busiest[placement] += each
            seconds[placement] += unit.iterations * seconds_of(each, machine) + seconds_of(first, machine)
    words = _access_words(wide, rows, size, measured)
    if not any(changed.any() for _, _, access in wide for changed in access.changed):
        reason = f"read-only: {words}, so each node reads it once and nothing is sent after that"
        return Proposal(state, name, "read-only", reason, seconds)
    best = "partitioned" if seconds["partitioned"] < (1 - CLEAR) * seconds["served"] else "served"
    others = ", ".join(f"{one} {show_bytes(busiest[one])} ({_time(seconds[one])})" for one in busiest if one != best)
    why = (
        f"{best}: {words}; {show_bytes(busiest[best])} pass the busiest link an iteration ({_time(seconds[best])} in "
        f"all; {machine.words()}), {others}"
    )
    return Proposal(state, name, best, why, seconds, changes=best == "partitioned")


def _access_words(wide: list[tuple[Unit, StagePlace, StateAccess]], rows: int, size: str, measured: bool) -> str:
    parts = max(unit.parts for unit, _, _ in wide)
    if not measured:
        return f"{size}, and {counted(parts, 'part')} assumed to read and change all of its {rows:,} rows"
    read = np.mean([each.mean() for _, _, access in wide for each in access.read])
    changed = np.mean([each.mean() for _, _, access in wide for each in access.changed])
    return f"{size}, of which each of {counted(parts, 'part')} reads {read:.0%} and changes {changed:.0%} an iteration"


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
