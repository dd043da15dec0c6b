"""Where a step could keep a tensor for the next one: attributes, variables of functions around it, lists and dicts.

Looked at before and after a step is written down. A tensor without memory that is there afterwards is taken away again:
a trace would have the first one for ever, and whoever looks at it later would find nothing.
"""

from __future__ import annotations

import contextlib
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

_ABSENT = object()
_DEEP, _MANY = 3, 200  # containers within containers, and functions and objects that are followed

Kept = tuple[str, Any]  # what it is called, and what it was before
Places = list[tuple[str, dict[str, Any]]]  # owners by name, and what they have by name


@contextlib.contextmanager
def nothing_kept(step: Callable[..., Any], modules: Sequence[nn.Module]) -> Iterator[list[Kept]]:
    """Within, the step runs on tensors without memory; the list has, at the end, what was kept of them."""
    places, cells = _around(step, modules)
    values = [dict(place) for _, place in places]
    contents = [_content(cell) for cell in cells]
    boxes = _boxes([value for some in values for value in some.values()] + contents)
    kept: list[Kept] = []
    try:
        yield kept
    finally:
        for (owner, place), then in zip(places, values, strict=True):
            for name, value in list(place.items()):
                if then.get(name, _ABSENT) is value or not _without_memory(value):
                    continue
                if owner:
                    kept.append((f"{owner}.{name}", then.get(name)))
                place.pop(name)
                if name in then:
                    place[name] = then[name]
        for cell, content in zip(cells, contents, strict=True):
            if _content(cell) is not content and _without_memory(_content(cell)):
                kept.append(("a variable around the step", content if content is not _ABSENT else None))
                cell.cell_contents = content if content is not _ABSENT else None
        for box, before in boxes:
            if _without_memory_in(box):
                kept.append((f"a {type(box).__name__}", None))
                _refill(box, before)


def _around(step: Callable[..., Any], modules: Sequence[nn.Module]) -> tuple[Places, list[Any]]:
    """Attributes and variables that a step can reach: of the modules, and of functions and objects around it."""
    every = {id(one): one for module in modules for one in module.modules()}
    # Recurrent layers have a list of their weights, and look whether it is up to date: that is nobody's fault.
    places = [("" if isinstance(one, nn.RNNBase) else type(one).__name__, one.__dict__) for one in every.values()]
    cells: list[Any] = []
    seen, left = set(every), list[Any]([step])
    while left and len(seen) < len(every) + _MANY:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, types.MethodType):
            left += [one.__self__, one.__func__]
        elif isinstance(one, types.FunctionType):
            own = [cell for cell in one.__closure__ or () if id(cell) not in seen]
            seen.update(map(id, own))
            cells += own
            left += [_content(cell) for cell in own]
            if id(one.__globals__) not in seen:
                seen.add(id(one.__globals__))
                places.append(("the step's module", one.__globals__))
        elif _is_plain(one):
            places.append((type(one).__name__, one.__dict__))
    return places, cells


def _is_plain(one: Any) -> bool:
    """An object of somebody's own class, which may have attributes."""
    known = (type, types.ModuleType, torch.Tensor, nn.Module, torch.optim.Optimizer)
    return hasattr(one, "__dict__") and not isinstance(one, known)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put there yet
        return _ABSENT


def _boxes(values: list[Any], deep: int = _DEEP) -> list[tuple[Any, Any]]:
    """Lists and the like, and theirs, with what they have now."""
    found: dict[int, tuple[Any, Any]] = {}
    for _ in range(deep):
        new = {id(x): (x, x.copy()) for x in values if isinstance(x, (list, dict, set, deque)) and id(x) not in found}
        found.update(new)
        values = [y for x, _ in new.values() for y in (x.values() if isinstance(x, dict) else x)]
    return list(found.values())


def _refill(box: Any, before: Any) -> None:
    box.clear()
    if isinstance(box, list | deque):
        box.extend(before)
    else:
        box.update(before)


def _without_memory_in(box: Any) -> bool:
    return any(isinstance(x, FakeTensor) for x in (box.values() if isinstance(box, dict) else box))


def _without_memory(value: Any) -> bool:
    return any(isinstance(x, FakeTensor) for x in pytree.tree_leaves(value))
