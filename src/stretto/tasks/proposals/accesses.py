"""Which rows of its states each part of a unit reads and changes: measured in one iteration on copies of the states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.state.state import State
from stretto.tasks.arguments import Argument
from stretto.tasks.tree import Unit


@dataclass(eq=False)
class StateAccess:
    """The rows of one state that each part of a unit read and changed in one iteration."""

    read: list[NDArray[np.bool_]] = field(default_factory=list)  # by part: [rows]
    changed: list[NDArray[np.bool_]] = field(default_factory=list)

    @classmethod
    def of(cls, parts: int, rows: int) -> StateAccess:
        """No rows yet."""
        made = [np.zeros(rows, np.bool_) for _ in range(2 * parts)]
        return cls(made[:parts], made[parts:])

    @classmethod
    def everything(cls, parts: int, rows: int) -> StateAccess:
        """All rows, by all parts."""
        every = np.ones(rows, np.bool_)
        return cls([every] * parts, [every] * parts)

    def whole(self) -> StateAccess:
        """The same changes, where every part reads all rows, as a copy of its own does."""
        return StateAccess([np.ones_like(rows) for rows in self.read], self.changed)


class CountingHandle:
    """A handle that notes which rows are read and added to."""

    def __init__(self, handle: Any, access: StateAccess, part: int) -> None:
        self._handle, self._read, self._changed = handle, access.read[part], access.changed[part]

    def read(self, keys: ArrayLike | None = None, *rest: Any, **named: Any) -> Any:
        """As the handle."""
        self._read[slice(None) if keys is None else np.asarray(keys)] = True
        return self._handle.read(keys, *rest, **named)

    def add(self, keys: ArrayLike, *rest: Any, **named: Any) -> None:
        """As the handle."""
        self._changed[np.asarray(keys)] = True
        self._handle.add(keys, *rest, **named)

    def read_at(self, rows: ArrayLike, *rest: Any, **named: Any) -> Any:
        """As the handle."""
        self._read[np.asarray(rows)] = True
        return self._handle.read_at(rows, *rest, **named)

    def add_at(self, rows: ArrayLike, *rest: Any, **named: Any) -> None:
        """As the handle."""
        self._changed[np.asarray(rows)] = True
        self._handle.add_at(rows, *rest, **named)

    def read_own(self) -> Any:
        """As the handle of a partitioned state."""
        self._read[self._handle.own] = True
        return self._handle.read_own()

    def add_own(self, deltas: ArrayLike) -> None:
        """As the handle of a partitioned state."""
        self._changed[self._handle.own] = True
        self._handle.add_own(deltas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


class CountingFunction:
    """The function of a unit with handles that count. accesses: by position of the state among the arguments."""

    def __init__(self, function: Callable[..., Any], accesses: dict[int, StateAccess]) -> None:
        self._function, self._accesses = function, accesses

    def __call__(self, worker: Any, *arguments: Any) -> Any:
        """As the function."""
        counted = [
            CountingHandle(one, self._accesses[at], worker.part) if at in self._accesses else one
            for at, one in enumerate(arguments)
        ]
        return self._function(worker, *counted)


def counting_unit(unit: Unit, counted: Callable[[Argument], bool]) -> tuple[Unit, dict[int, StateAccess]]:
    """One iteration of a unit over copies of its states, and where the accesses to some of them are noted."""
    copies: dict[int, Any] = {}
    arguments = []
    for argument in unit.arguments:
        if argument.kind == "state" and isinstance(argument.value, State):
            copies.setdefault(id(argument.value), argument.value.copy())
            argument = replace(argument, value=copies[id(argument.value)])
        arguments.append(argument)
    accesses = {
        at: StateAccess.of(unit.parts, len(argument.value.stored.array))
        for at, argument in enumerate(unit.arguments)
        if argument.kind == "state" and counted(argument)
    }
    function = CountingFunction(unit.function, accesses)
    made = replace(
        unit,
        function=function,
        arguments=tuple(arguments),
        iterations=1,
        workers=None,
        placement=(),
        partition=(),
        fresh=(),
    )
    return made, accesses
