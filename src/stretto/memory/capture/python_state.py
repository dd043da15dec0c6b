"""Compare and restore the Python state that a step can reach: before and after a trace, and between steps.

A trace runs the step's Python once; planned steps do not run it. What that Python changes (a counter, a list, a
learning rate, the state of a generator) would change once and then never again, and what it reads would be read once.
So the state is copied before a trace and restored after it. A difference is either harmless, or the step is refused.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

ABSENT = object()
_DEPTH = 3  # nesting of containers that are copied
_MOST = 200  # functions and objects that are searched
_LARGEST_ARRAY = 1 << 20  # bytes of a NumPy array that is copied
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, dict, set, deque)
_OWN_OF_MODULES = frozenset(nn.Module().__dict__)
_OWN_OF_OPTIMIZERS = frozenset({"state", "param_groups", "step", "zero_grad", "_opt_called"})


@dataclass(frozen=True, eq=False)
class StateChange:
    """Python state that a step changed."""

    label: str  # its name for messages
    before: Any
    after: Any
    # Planned steps would have to repeat it, even if a second step does not: a generator that is seeded in every step
    # draws the same numbers again, and the rate of an optimizer may be set between steps.
    always: bool = False

    @property
    def leaked(self) -> bool:
        """Whether the new value holds a fake tensor of the trace, which has no memory."""
        return without_memory(self.after)


@dataclass(frozen=True, eq=False)
class Namespace:
    """The attributes of an object, or the globals of a module."""

    label: str  # its name for messages
    names: dict[str, Any]  # the namespace itself
    only: frozenset[str] | None = None  # the names to compare; None: all
    others: frozenset[str] = frozenset()  # names not to compare
    owner: Any = None  # the object whose attributes they are
    live: bool = False  # planned steps use the current values

    def now(self) -> dict[str, Any]:
        """The current values of the names to compare."""
        if self.only is not None:
            return {name: self.names[name] for name in self.only if name in self.names}
        return {name: x for name, x in self.names.items() if name not in self.others}


@dataclass(eq=False)
class PythonState:
    """A copy of all that a step can reach: attributes, variables of enclosing functions, containers, generators.

    state = PythonState.of(step, [model], [optimizer])
    step(batch)
    state.changes()    # [Change("Counter.t", 0, 1)]
    state.restore()
    """

    names: list[tuple[Namespace, dict[str, Any]]] = field(default_factory=list)
    cells: list[tuple[str, Any, Any]] = field(default_factory=list)
    containers: list[tuple[str, Any, Any]] = field(default_factory=list)
    arrays: list[tuple[str, Any, Any]] = field(default_factory=list)
    generators: list[tuple[str, torch.Generator, torch.Tensor]] = field(default_factory=list)

    @classmethod
    def of(
        cls, step: Callable[..., Any], modules: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]
    ) -> PythonState:
        """Copy the state that a step reaches now."""
        state = cls()
        for one in _reachable(step, modules, optimizers, state.cells):
            state.names.append((one, one.now()))
        held = [(f"{one.label}.{name}", x) for one, copy in state.names for name, x in copy.items()]
        state._copy_contents([*held, *((label, content) for label, _, content in state.cells)])
        return state

    def _copy_contents(self, held: list[tuple[str, Any]]) -> None:
        """Copy nested containers, arrays and generators."""
        seen: set[int] = set()
        for _ in range(_DEPTH):
            inner: list[tuple[str, Any]] = []
            for label, x in held:
                if id(x) in seen or isinstance(x, _NUMBERS):
                    continue
                seen.add(id(x))
                if isinstance(x, _CONTAINERS):
                    self.containers.append((label, x, x.copy()))
                    inner += [(f"{label}[{key!r}]", y) for key, y in _items(x)]
                elif isinstance(x, tuple):
                    inner += [(f"{label}[{key}]", y) for key, y in enumerate(x)]
                elif isinstance(x, np.ndarray) and x.nbytes <= _LARGEST_ARRAY and x.dtype != object:
                    self.arrays.append((label, x, x.copy()))
                elif isinstance(x, torch.Generator):
                    self.generators.append((label, x, x.get_state()))
            held = inner

    def changes(self) -> list[StateChange]:
        """What differs from the copy."""
        found: list[StateChange] = []
        copies = {id(container): copy for _, container, copy in self.containers}
        for one, before in self.names:
            now = one.now()
            for name in (*before, *(name for name in now if name not in before)):
                was, is_ = before.get(name, ABSENT), now.get(name, ABSENT)
                if was is not is_:
                    was = copies.get(id(was), was)  # it may have been changed before it was replaced
                if not _same(was, is_):
                    found.append(StateChange(f"{one.label}.{name}", was, is_, always=one.live))
        for label, cell, content in self.cells:
            if not _same(content, now_in := _content(cell)):
                found.append(StateChange(label, content, now_in))
        known = {id(x) for one in found for x in (one.before, one.after)}
        held = {id(x) for one, _ in self.names for x in one.now().values()}
        held |= {id(_content(cell)) for _, cell, _ in self.cells}
        for label, container, copy in self.containers:  # those that hold others come first
            if id(container) not in held:
                continue  # it was replaced
            held |= {id(x) for _, x in _items(container)}
            if id(container) not in known and not _same(copy, container):
                found.append(StateChange(label, copy, container.copy()))
        found += [StateChange(label, copy, x) for label, x, copy in self.arrays if not np.array_equal(x, copy)]
        found += [
            StateChange(f"the state of {label}", state, None, always=True)
            for label, generator, state in self.generators
            if not torch.equal(generator.get_state(), state)
        ]
        # Recurrent layers (with an empty label) update a list of their weights, which no step depends on.
        return [one for one in found if not one.label.startswith(".")]

    def restore(self, *, only: Callable[[Any], bool] = lambda _: True) -> None:
        """Restore the copied state. only: a predicate that selects which current values are replaced."""
        for one, before in self.names:
            names = one.names
            for name, value in one.now().items():
                if value is not before.get(name, ABSENT) and only(value):
                    del names[name]
                    if name in before:
                        names[name] = before[name]
            for name in before.keys() - names.keys():
                if only(ABSENT):
                    names[name] = before[name]
        for _, cell, content in self.cells:
            if _content(cell) is not content and only(_content(cell)):
                if content is ABSENT:
                    del cell.cell_contents
                else:
                    cell.cell_contents = content
        for _, container, copy in self.containers:
            if not _same(copy, container) and only(container):
                _refill(container, copy)
        if only(ABSENT):
            for _, array, copy in self.arrays:
                array[...] = copy
            for _, generator, state in self.generators:
                generator.set_state(state)

    def numbers(self, read: Sequence[torch.Tensor] = ()) -> ReadNumbers:
        """The numbers and strings in the state, to check later whether one has changed.

        Parameters
        ----------
        read : sequence of torch.Tensor
            Tensors whose version is checked too.
        """
        found = [_Place(f"a tensor of shape {tuple(x.shape)}", _Versions(x), None, x._version) for x in read]
        for one, before in self.names:
            for name, x in before.items():
                if isinstance(x, _NUMBERS) and one.label and not one.live:
                    found.append(_Place(f"{one.label}.{name}", one.names, name, x, one.owner))
        found += [_Place(label, cell, None, x) for label, cell, x in self.cells if isinstance(x, _NUMBERS)]
        for label, container, copy in self.containers:
            if isinstance(container, (list, dict)):
                items = [(k, x) for k, x in _items(copy) if isinstance(x, _NUMBERS)]
                found += [_Place(f"{label}[{k!r}]", container, k, x) for k, x in items]
        return ReadNumbers(found)


@dataclass(eq=False)
class _Place:
    """A number and where it is stored: in a dict or list under a key, or in a cell."""

    label: str  # its name for messages
    holder: Any  # a dict, a list or a cell
    key: Any  # in the holder; None for a cell
    value: Any  # when the step was traced
    owner: Any = None  # the object whose attribute it is

    def now(self) -> Any:
        return _content(self.holder) if isinstance(self.holder, types.CellType) else _item(self.holder, self.key)


class ReadNumbers:
    """Numbers that a step can reach, and may have read, as they were when it was traced.

    changed = numbers.changed()       # those with another value now
    with numbers.reading(changed):    # drops those that are not read within
        trace(...)
    """

    def __init__(self, places: list[_Place]) -> None:
        self._places = places

    def changed(self) -> list[_Place]:
        """The numbers whose value differs. Later calls compare with their current values."""
        found = []
        for one in self._places:
            now = one.now()
            if now is not one.value and not _same(one.value, now):
                found.append(one)
                one.value = now
        return found

    @contextlib.contextmanager
    def reading(self, changed: Sequence[_Place]) -> Iterator[list[_Place]]:
        """Observe which of some numbers the step reads within.

        A number that the step does not read cannot change what it does. Yields a list; at the end it holds the numbers
        that the step reads, and those whose reads cannot be observed.
        """
        read: set[tuple[int, str]] = set()
        kinds: list[tuple[Any, type]] = []
        unnoticed: set[int] = set()
        for one in {id(place.owner): place.owner for place in changed if place.owner is not None}.values():
            kind = type(one)
            try:
                object.__setattr__(one, "__class__", _with_recorded_reads(kind, read))
                kinds.append((one, kind))
            except TypeError:
                unnoticed.add(id(one))
        left: list[_Place] = []
        try:
            yield left
        finally:
            for one, kind in kinds:
                object.__setattr__(one, "__class__", kind)
        for place in changed:
            if place.owner is None or id(place.owner) in unnoticed or (id(place.owner), place.key) in read:
                left.append(place)
            else:
                self._places.remove(place)


def _with_recorded_reads(kind: type, read: set[tuple[int, str]]) -> type:
    """A subclass of `kind` whose objects record the attributes that are read."""

    get_as_before: Any = kind.__getattribute__

    def get(self: Any, name: str) -> Any:
        read.add((id(self), name))
        return get_as_before(self, name)

    return type(kind.__name__, (kind,), {"__getattribute__": get, "__module__": kind.__module__, "__slots__": ()})


class _Versions:
    """The version counter of a tensor: how often it was changed in place."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def get(self, *_: Any) -> int:
        return int(self._tensor._version)


def _reachable(
    step: Callable[..., Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    cells: list[tuple[str, Any, Any]],
) -> Iterator[Namespace]:
    """Namespaces that a step can reach. Variables of enclosing functions are added to `cells`."""
    every = {id(one): one for module in modules for one in module.modules()}
    for one in every.values():
        label = "" if isinstance(one, nn.RNNBase) else type(one).__name__
        yield Namespace(label, one.__dict__, others=_OWN_OF_MODULES if label else frozenset(), owner=one)
    for optimizer in optimizers:
        name = type(optimizer).__name__
        yield Namespace(name, optimizer.__dict__, others=_OWN_OF_OPTIMIZERS, live=True)
        for k, group in enumerate(optimizer.param_groups):
            yield Namespace(f"{name}.param_groups[{k}]", group, others=frozenset({"params"}), live=True)
    seen, left = set(every) | set(map(id, optimizers)), list[Any]([step])
    for kind in {type(one) for one in every.values()}:
        left += [f for f in (kind.__dict__.get("forward"),) if isinstance(f, types.FunctionType)]
    left += [x for one in every.values() for name, x in one.__dict__.items() if name not in _OWN_OF_MODULES]
    followed = 0
    while left and followed < _MOST:
        one = left.pop(0)
        if id(one) in seen or isinstance(one, _NUMBERS):
            continue
        seen.add(id(one))
        if isinstance(one, types.MethodType):
            left[:0] = [one.__self__, one.__func__]
        elif isinstance(one, types.FunctionType) and not _of_a_library(one):
            followed += 1
            for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
                if id(cell) not in seen:
                    seen.add(id(cell))
                    cells.append((f"the variable {name}", cell, _content(cell)))
                    left.append(_content(cell))
            used = frozenset(_names_in(one.__code__) & one.__globals__.keys())
            if used:
                yield Namespace(str(one.__globals__.get("__name__")), one.__globals__, only=used)
                left += [one.__globals__[name] for name in used]
        elif _is_plain(one):
            followed += 1
            yield Namespace(type(one).__name__, one.__dict__, owner=one)
            left += [x for x in one.__dict__.values() if isinstance(x, types.FunctionType | types.MethodType)]


def _of_a_library(function: types.FunctionType) -> bool:
    """Whether a function is installed code, which counts no steps and reaches much of the interpreter."""
    return any(part in function.__code__.co_filename for part in ("site-packages", "dist-packages", "/torch/"))


def _names_in(code: types.CodeType) -> set[str]:
    """Names of globals that a function, and functions defined in it, use."""
    found = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= _names_in(one)
    return found


def _is_plain(one: Any) -> bool:
    """Whether an object is of a user's class with attributes."""
    known = (type, types.ModuleType, torch.Tensor, nn.Module, torch.optim.Optimizer, types.FunctionType)
    return hasattr(one, "__dict__") and not isinstance(one, known) and isinstance(one.__dict__, dict)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return ABSENT


def _item(holder: Any, key: Any) -> Any:
    if isinstance(holder, list):
        return holder[key] if key < len(holder) else ABSENT
    return holder.get(key, ABSENT)


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    return iter(container.items()) if isinstance(container, dict) else iter(enumerate(container))


def _refill(container: Any, before: Any) -> None:
    container.clear()
    if isinstance(container, list | deque):
        container.extend(before)
    else:
        container.update(before)


def _same(a: Any, b: Any, depth: int = _DEPTH) -> bool:
    """Whether two values are identical, equal numbers, or containers of such."""
    if a is b:
        return True
    if type(a) is not type(b) and not (isinstance(a, dict) and isinstance(b, dict)):  # copies of a subclass are dicts
        return False
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, _NUMBERS):
        return bool(a == b)
    if isinstance(a, torch.Tensor | np.ndarray) or depth == 0:
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(x, b[key], depth - 1) for key, x in a.items())
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(_same(x, y, depth - 1) for x, y in zip(a, b, strict=True))
    if isinstance(a, set):
        return bool(a == b)
    if _is_plain(a):
        return _same(a.__dict__, b.__dict__, depth - 1)
    try:
        return bool(a == b)
    except Exception:
        return False


def show(value: Any) -> str:
    """A number or a short string, for messages; empty for anything else."""
    text = repr(value) if isinstance(value, _NUMBERS) else ""
    return text if len(text) <= 40 else ""


def without_memory(value: Any) -> bool:
    """Whether a value holds a fake tensor."""
    if isinstance(value, (set, deque)):
        value = list(value)
    return any(isinstance(x, FakeTensor) for x in pytree.tree_leaves(value))
