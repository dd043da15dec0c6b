"""Dataclasses of a lifted step: the values, calls and updates of the nodes of its graph (made by `capture.lift`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from stretto.memory.planner.graph import Graph

UPDATES = "space for updates"  # among `LiftedStep.other_bytes`


@dataclass(frozen=True, slots=True)
class Value:
    """A view of a storage."""

    storage: int  # the number of its storage
    dtype: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]  # in elements
    offset: int  # in elements

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.size) * int(self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Ref:
    """A value among the arguments of a call."""

    value: int


@dataclass(frozen=True, slots=True)
class OpCall:
    """How a node is run. A write copies args[1] into args[0]."""

    target: Callable[..., Any]  # the operation of torch
    args: tuple[Any, ...]  # with a `Ref` for each tensor
    kwargs: dict[str, Any]  # with a `Ref` for each tensor
    makes: tuple[int, ...]  # the value of each result, in order; -1 for an unused result
    single: bool  # the result is one tensor, not a tuple


@dataclass(frozen=True, slots=True)
class OptimizerUpdate:
    """Updates of one call of an optimizer's step, for one or several parameters."""

    optimizer: int  # its number
    parameters: tuple[int, ...]  # their numbers
    values: tuple[tuple[int, int], ...]  # by parameter: the values of (parameter, gradient)
    chunk_bytes: int = 0  # bytes of a parameter that are updated at a time; 0: the whole parameter
    read: tuple[bool, ...] = ()  # by parameter: other nodes read the gradient too, so the optimizer gets a copy
    unless: int | None = None  # a value; the update is skipped in steps in which it is not zero
    streamed: tuple[tuple[str, int], ...] = ()  # (name, bytes) of state that stays on the host, not in the graph
    gradient: OpCall | None = None  # computes some rows of the gradient; None: the gradient is a storage of the graph


@dataclass(eq=False)
class LiftedStep:
    """A graph of storages, and the call or update of every node."""

    graph: Graph
    runs: tuple[OpCall | OptimizerUpdate, ...]  # by node of the graph
    values: list[Value]  # all values, by number
    nbytes: list[int]  # by storage: bytes, not rounded up
    parameters: list[int]  # storages of the parameters
    buffers: list[int]  # storages of the buffers
    inputs: list[int]  # storages of the batch
    outside: list[int]  # storages of the user's tensors of no module that the step changes in place
    states: dict[int, dict[str, int]]  # by parameter: {name: storage} of its optimizer state
    shown: list[Any]  # the results of the step: a `Ref` or a constant each
    constants: dict[int, torch.Tensor] = field(default_factory=dict)  # by storage
    other_bytes: dict[str, int] = field(default_factory=dict)  # by kind: bytes always in use, not in the graph

    @property
    def borrowed(self) -> int:
        """Bytes on the device that are always in use and that the planner does not see, such as the caller's batch."""
        return sum(self.other_bytes.values())

    @property
    def streamed(self) -> int:
        """Bytes of optimizer state that stays on the host."""
        streams = {run.parameters: run.streamed for run in self.runs if isinstance(run, OptimizerUpdate)}
        return sum(nbytes for one in streams.values() for _, nbytes in one)


def generators(lifted: LiftedStep) -> list[torch.Generator]:
    """The user's own generators that operations draw from."""
    calls = [run for run in lifted.runs if isinstance(run, OpCall)]
    found = [x for one in calls for x in (*one.args, *one.kwargs.values()) if isinstance(x, torch.Generator)]
    return list(dict.fromkeys(found))


def refs(x: Any) -> list[Ref]:
    """All `Ref`s in nested arguments."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(x) if isinstance(leaf, Ref)]
