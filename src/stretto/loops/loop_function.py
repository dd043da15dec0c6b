"""`LoopFunction`: the function under `st.parallel`, its loop tree, and the arguments of its calls."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.cached import cached_property
from stretto.errors import LoopError, PlanError
from stretto.state.accumulator import Accumulator

from .front import loop_tree as source
from .front.bind import (
    BoundValues,
    bind,
)
from .front.names import is_function
from .front.parse import parse
from .front.placeholders import folded_into, subscripted_at
from .front.refusals import refuse
from .front.user_functions import around

if TYPE_CHECKING:
    pass

_NUMBERS = bool | int | float | np.generic


class LoopFunction:
    """A function with loops.

    Parameters
    ----------
    fn : callable
        The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        if hasattr(fn, "py_func"):
            raise TypeError(
                f"{fn.__name__} is compiled already; leave out numba.njit, st.parallel compiles the loop itself"
            )
        self.plain = fn
        self._signature = inspect.signature(fn)
        self.parameters = tuple(self._signature.parameters)
        self.defaults = {
            name: each.default for name, each in self._signature.parameters.items() if each.default is not each.empty
        }
        self._around: dict[str, Any] = {}  # values that its tree depends on, besides its source
        self._inlined: dict[str, Any] = {}  # the same of the functions that are inlined

    @cached_property
    def tree(self) -> source.Function:
        """The function's loop tree."""
        tree = parse(self.plain)
        self._inlined = _inlined_values(tree)
        return tree

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, partial: bool) -> BoundValues:
        self._notice()
        try:
            given = self._signature.bind_partial(*args, **kwargs) if partial else self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.plain.__name__}{self._signature}: {error}") from None
        given.apply_defaults()
        arguments = dict(given.arguments)
        if partial:
            for name in self._signature.parameters:
                if name not in arguments:
                    arguments[name] = self._stand_in(name)
        return bind(arguments, self.captured())

    def _notice(self) -> None:
        """Clear the caches if a value in the tree has changed, as happens in notebooks.

        Such values are functions that the loop calls, modules, and numbers in modules (`settings.rate`).
        """
        now = _values(self.plain)
        before, self._around = self._around, now
        changed = _changed(now, before)
        if not changed and "tree" in vars(self):
            changed = _changed(_inlined_values(self.tree), self._inlined)
        if changed:
            self._forget()

    def _forget(self) -> None:
        """Drop what was derived from the source."""
        vars(self).pop("tree", None)

    def _stand_in(self, name: str) -> Any:
        """The placeholder of `explain` for a missing argument: an accumulator if it is folded into, else a float."""
        if line := subscripted_at(self.tree, name):
            raise refuse(self.tree, line, f"{name} is not a number, so it cannot be left out", f"give {name} too")
        return Accumulator(0.0) if folded_into(self.tree, name) else 0.5

    def _blame_stand_ins(self, problem: PlanError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Add to an error which arguments were left out and which placeholders were used."""
        given = self._signature.bind_partial(*args, **kwargs)
        given.apply_defaults()
        left = [name for name in self._signature.parameters if name not in given.arguments]
        floats = [name for name in left if isinstance(self._stand_in(name), float)]
        if floats:
            was = (
                "was left out and taken for a float; pass it"
                if len(floats) == 1
                else "were left out and taken for floats; pass them"
            )
            problem.args = (f"{problem}\n({', '.join(floats)} {was} if that is wrong)",)

    def captured(self) -> dict[str, Any]:
        """Values from around the function that its loops use, by name."""
        found = {}
        inlined = {name: (function, own) for name, function, own in self.tree.around}
        for name in self.tree.captured:
            function, own = inlined.get(name, (self.plain, name))
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
            with contextlib.suppress(ValueError):  # of a cell whose name was deleted
                if own in cells:
                    found[name] = cells[own].cell_contents
                elif own in function.__globals__:
                    found[name] = function.__globals__[own]
            if name not in found:
                remedy = "assign it above the function, or pass it as a parameter"
                raise LoopError(
                    self.tree.file, self.tree.line, f"{self.tree.name} uses {name}, which has no value", remedy
                )
        return found

    def set_up(self, step: source.Setup, values: Mapping[str, Any], known: dict[str, Any]) -> None:
        """Run a statement between the loops, on the driver, and store the numbers it assigns in `known`.

        Parameters
        ----------
        step : Setup
            The statement.
        values : mapping
            The arguments of the call, by name.
        known : dict
            Numbers that earlier statements have assigned.
        """
        names: dict[str, Any] = {**values, **known}
        try:
            exec(_compiled(step.code), {**self.plain.__globals__, **self.captured()}, names)
        except Exception as problem:
            raise refuse(self.tree, step.line, f"this statement failed: {problem}") from problem
        for name in step.names:
            value = names[name]
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise refuse(self.tree, step.line, f"{name} is {value}, which does not fit in 64 bits", "use a float")
            if isinstance(value, bool | int | float | np.generic):
                known[name] = value
            else:
                raise refuse(
                    self.tree,
                    step.line,
                    f"{name} is a {type(value).__name__}; statements between loops make numbers",
                    "make arrays outside and pass them as arguments",
                )


@functools.lru_cache(maxsize=256)
def _compiled(code: str) -> types.CodeType:
    return compile(code, "<string>", "exec")


def _values(function: Callable[..., Any]) -> dict[str, Any]:
    """Values around a function that the loop tree depends on."""
    found = around(function).items()
    return {name: value for name, value in found if is_function(value) or _in_tree(name, value)}


def _inlined_values(tree: source.Function) -> dict[str, Any]:
    """The same of the functions that are inlined."""
    return {f"{k}: {name}": value for k, fn in enumerate(tree.inlined) for name, value in _values(fn).items()}


def _changed(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return now.keys() != before.keys() or any(_differ(now[name], before[name]) for name in now)


def _in_tree(name: str, value: Any) -> bool:
    """Whether a value of an enclosing scope is part of the loop tree: a module, a number in a module, a type."""
    return isinstance(value, types.ModuleType | str | np.dtype) or ("." in name and isinstance(value, _NUMBERS))


def _differ(now: Any, before: Any) -> bool:
    """Whether two such values differ; numbers are compared by value, other objects by identity."""
    if now is before:
        return False
    value = isinstance(now, _NUMBERS | str | np.dtype) and type(now) is type(before)
    return not (value and now == before)
