"""When the states and data of a task are needed: created just before their first use, freed after their last.

What is used inside a loop is needed until the loop has ended, because the next turn reads it, unless the unit that uses
it first starts it anew each time (`fresh=`) and nothing after the loop uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .tree import RepeatedTask, Task, Unit
from .walk import Path


@dataclass(frozen=True)
class Lifetime:
    """first: the stage before which it is created; last: the stage after which it is freed (numbers in tree order)."""

    first: int
    last: int


def places(task: Task, path: Path = ()) -> Iterator[tuple[Path, Unit]]:
    """The units of a tree with their paths, in tree order."""
    if isinstance(task, Unit):
        yield path, task
    for number, child in enumerate(task.children):
        yield from places(child, (*path, number))


def lifetimes(task: Task) -> dict[int, Lifetime]:
    """By the identity of a state or data set: when it is needed."""
    order = list(places(task))
    numbers = {path: number for number, (path, _) in enumerate(order)}
    loops = [(path, _span(path, numbers)) for path in _loops(task)]
    found: dict[int, Lifetime] = {}
    for argument in {
        id(a.value): a for _, unit in order for a in unit.arguments if a.kind not in ("value", "knob")
    }.values():
        used = [n for n, (_, unit) in enumerate(order) if any(a.value is argument.value for a in unit.arguments)]
        first, last = used[0], used[-1]
        begins_anew = any(order[first][1].arguments[k].value is argument.value for k in order[first][1].fresh)
        for _, (start, end) in loops:
            inside = [n for n in used if start <= n <= end]
            if inside and not (begins_anew and first >= start and last <= end):
                # A loop around some of its uses: it must be there from the first turn to the last.
                first, last = min(first, start if first >= start else first), max(last, end)
        found[id(argument.value)] = Lifetime(min(first, used[0]), last)
    return found


def last_uses(task: Task) -> dict[int, int]:
    """By the identity of a state or data set: the number of the stage after which nothing uses it any more.

    What a loop uses is needed until the loop has ended, also where a unit starts it anew each turn: freeing it in every
    turn would move it in every turn.
    """
    order = list(places(task))
    numbers = {path: number for number, (path, _) in enumerate(order)}
    spans = [_span(path, numbers) for path in _loops(task)]
    found: dict[int, int] = {}
    for number, (_, unit) in enumerate(order):
        last = max([number, *(end for start, end in spans if start <= number <= end)])
        for argument in unit.arguments:
            if argument.kind not in ("value", "knob"):
                found[id(argument.value)] = max(last, found.get(id(argument.value), 0))
    return found


def _span(path: Path, numbers: dict[Path, int]) -> tuple[int, int]:
    inside = [number for place, number in numbers.items() if place[: len(path)] == path]
    return min(inside), max(inside)


def _loops(task: Task, path: Path = ()) -> Iterator[Path]:
    """The paths of the loops, inner ones first."""
    for number, child in enumerate(task.children):
        yield from _loops(child, (*path, number))
    if isinstance(task, RepeatedTask):
        yield path
