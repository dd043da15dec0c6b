"""The logical plan of a task: its tree, its data and its states, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stretto.state.state import ReplicatedState
from stretto.text import counted, show_bytes

from .arguments import Argument
from .partitions.declared import ranges_of_state
from .tree import BranchTask, ParallelTasks, RepeatedTask, SequenceTask, Task, Unit


def describe(task: Task) -> str:
    """The tree in words."""
    names = names_of(task)
    lines = [f"task of {counted(len(list(task.units())), 'unit')}", *("  " + line for line in _tree(task, names))]
    for argument in arguments_of(task):
        if argument.kind not in ("value", "knob"):
            word = "state" if argument.declared is not None else _WORDS[argument.kind]
            lines.append(f"  {word} {names[id(argument.value)]}: {_shape(argument)}")
    return "\n".join(lines)


_WORDS = {"data": "data ", "source": "data ", "block": "data ", "blocks": "data ", "whole": "data ", "state": "state"}


def arguments_of(task: Task) -> list[Argument]:
    """The different arguments of all units, in the order of their first use."""
    found: dict[int, Argument] = {}
    for unit in task.units():
        for argument in unit.arguments:
            found.setdefault(id(argument.value), argument)
    return list(found.values())


def names_of(task: Task) -> dict[int, str]:
    """A name for every argument by the identity of its value: that of its first use, with a number if it is taken."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for argument in arguments_of(task):
        if argument.kind in ("value", "knob"):
            continue
        name, number = argument.name, 1
        while name in taken:
            number += 1
            name = f"{argument.name}_{number}"
        names[id(argument.value)] = name
        taken.add(name)
    return names


def _tree(task: Task, names: dict[int, str]) -> Iterator[str]:
    if isinstance(task, Unit):
        yield unit_words(task, names)
        return
    if isinstance(task, SequenceTask):
        yield "in order"
        yield from (f"  {line}" for child in task.tasks for line in _tree(child, names))
    elif isinstance(task, ParallelTasks):
        yield "side by side"
        yield from (f"  {line}" for child in task.tasks for line in _tree(child, names))
    elif isinstance(task, RepeatedTask):
        most = "" if task.times is None else f", at most {counted(task.times, 'time')}"
        until = "" if task.until is None else f" until {task.until.words()}"
        tuned = ", adaptive" if task.adaptive else ""
        yield f"repeat{until}{most}{tuned}" if task.until is not None else f"repeat {counted(task.times or 0, 'time')}"
        yield from (f"  {line}" for child in task.children for line in _tree(child, names))
    elif isinstance(task, BranchTask):
        yield f"if {task.condition.words()}"
        yield from (f"  {line}" for line in _tree(task.condition.unit, names))
        yield "then"
        yield from (f"  {line}" for line in _tree(task.then, names))
        if task.otherwise is not None:
            yield "otherwise"
            yield from (f"  {line}" for line in _tree(task.otherwise, names))


def unit_words(unit: Unit, names: dict[int, str]) -> str:
    """A unit in words: its name, what it uses, how it is cut."""
    uses = ", ".join(names.get(id(a.value), repr(a.value)) for a in unit.arguments)
    parts = f"{counted(unit.parts, 'part')}, {counted(unit.iterations, 'iteration')}"
    how = unit.mode or ("adaptive" if unit.tuned else repr(unit.sync))
    fresh = ", ".join(names[id(unit.arguments[k].value)] for k in unit.fresh)
    return f"{unit.name}({uses}): {parts}, {how}" + (f", {fresh} from the start" if fresh else "")


def _shape(argument: Argument) -> str:
    value: Any = argument.value
    if argument.declared is not None and argument.kind != "data":
        return f"{argument.declared.words()}, read by each part where it runs, only read"
    if argument.kind == "source":
        return "read by each part"
    if argument.kind in ("block", "blocks"):
        return str(value.words())
    how = {"data": "cut by rows", "whole": "whole for every part", "state": "read and written"}[argument.kind]
    if isinstance(value, ReplicatedState):
        how = value.replication.words()
    ranges = ranges_of_state(argument)
    if ranges is not None:
        how = f"{ranges.words()}, read and written"
    if argument.declared is not None:
        how = f"{argument.declared.words()}, only read"
    size = argument.nbytes
    shape = getattr(value, "shape", None)
    numbers = value.value if argument.declared is not None else value
    kind = getattr(getattr(numbers, "dtype", None), "name", type(numbers).__name__)
    dims = "" if shape is None else f" [{' × '.join(f'{n:,}' for n in shape)}]"
    return f"{kind}{dims}, {how}" + (f", {show_bytes(size)}" if size else "")
