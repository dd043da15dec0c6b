"""A traced step as storages (see `lift`): which call or update each node of its graph is, and on which values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from stretto.memory.planner.graph import Graph

UPDATES = "space for updates"  # among `Lifted.besides`


@dataclass(frozen=True, slots=True)
class Value:
    """A view of a storage; offset and stride in elements."""

    storage: int
    dtype: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Of its elements, wherever they are in the storage."""
        return math.prod(self.size) * int(self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a value among the arguments of a call."""

    value: int


@dataclass(frozen=True, slots=True)
class Call:
    """How a node is run. args, kwargs: with `Ref`s for tensors. makes: the value of each of the results, in order; -1
    for a result nobody uses. A write copies args[1] into args[0]."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    makes: tuple[int, ...]
    single: bool  # the result is one tensor, no tuple


@dataclass(frozen=True, slots=True)
class Update:
    """Updates of one call of an optimizer's step, for one or several parameters: their numbers, and values of
    (parameter, gradient). piece: bytes of a parameter that are updated at a time, 0 for all of it. read: gradients
    that others read too, by parameter: an optimizer may change what it is given. unless: the value of a number; if it
    is not zero, the update is left out. streamed: (name, bytes) of state that stays on the host, from where some rows
    after others are updated: it is no storage of the graph. gradient: what makes the gradient, of which only some rows
    are on the device at a time; None if it is a storage like others."""

    optimizer: int
    parameters: tuple[int, ...]
    values: tuple[tuple[int, int], ...]
    piece: int = 0
    read: tuple[bool, ...] = ()
    unless: int | None = None
    streamed: tuple[tuple[str, int], ...] = ()
    gradient: Call | None = None


@dataclass(eq=False)
class Lifted:
    """The graph, and for every node its call or update. values: all of them; shown: the results' values (or constants).

    parameters, buffers, outside: their storages; states: by parameter, {name: storage} of what its optimizer keeps."""

    graph: Graph
    runs: tuple[Call | Update, ...]
    values: list[Value]
    nbytes: list[int]  # of storages, not rounded
    parameters: list[int]
    buffers: list[int]
    inputs: list[int]
    outside: list[int]
    states: dict[int, dict[str, int]]
    shown: list[Any]
    constants: dict[int, torch.Tensor] = field(default_factory=dict)  # by storage
    besides: dict[str, int] = field(default_factory=dict)  # by kind: bytes in use all the time that the graph lacks

    @property
    def borrowed(self) -> int:
        """Bytes of a batch that is the caller's, and of what else is on the device all the time."""
        return sum(self.besides.values())

    @property
    def streamed(self) -> int:
        """Bytes of optimizer state that stays on the host."""
        streams = {run.parameters: run.streamed for run in self.runs if isinstance(run, Update)}
        return sum(nbytes for one in streams.values() for _, nbytes in one)


def generators(lifted: Lifted) -> list[torch.Generator]:
    """The user's own generators that operations draw from."""
    calls = [run for run in lifted.runs if isinstance(run, Call)]
    found = [x for one in calls for x in (*one.args, *one.kwargs.values()) if isinstance(x, torch.Generator)]
    return list(dict.fromkeys(found))


def refs(x: Any) -> list[Ref]:
    """Those among arguments, however deep."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(x) if isinstance(leaf, Ref)]
