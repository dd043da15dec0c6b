"""What generated code, updates and recordings use of a runner: the type that keeps them independent of `execute`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from stretto.memory.capture.lifted import LiftedStep, Value
from stretto.memory.capture.traced_state import TracedState
from stretto.memory.planner.instructions import DeviceProgram

from .devices import Device
from .optimizers import OptimizerCounters


class RunnerState(Protocol):
    """The tensors of a running step, and operations on them. `execute.Runner` implements it."""

    lifted: LiftedStep  # the traced step
    program: DeviceProgram  # its plan
    watched: TracedState  # parameters, buffers and other tensors of the caller
    device: Device
    optimizers: list[torch.optim.Optimizer]
    watch: Callable[[int], None] | None  # called after every instruction
    budget: int | None  # bytes on the device
    runs: list[Any]  # by node of the program: the call or the update
    a: list[Any]  # by storage: its tensor on the device
    v: list[Any]  # by value: its view
    layouts: list[Value]  # of the batch
    counts: dict[int, OptimizerCounters]  # by optimizer: numbers that it keeps for all parameters
    initialized: set[int]  # state storages that their optimizer has created by now
    offloaded: set[int]  # swapped storages that are on the host between steps
    blocks: dict[int, torch.Tensor]  # by storage that stays on the device: its bytes
    swapped: list[int]  # persistent storages that are away for a part of the step
    host_bytes: dict[int, torch.Tensor]  # by storage: its bytes on the host
    streamed: dict[int, dict[str, torch.Tensor]]  # by parameter and name: state that stays on the host

    def reserve_arena(self) -> None:
        """Reserve the planned device memory for temporary storages."""

    def offload(self) -> None:
        """Move swapped storages to their host buffers."""

    def reload(self) -> None:
        """Bring offloaded storages back."""

    def offload_if_moved(self) -> None:
        """Offload all swapped storages if one came back to another address."""

    def allocate_swapped(self) -> None:
        """Allocate the swapped storages in the order of the plan."""

    def expose(self, s: int, *, away: bool) -> None:
        """Point a parameter, buffer or state at its present memory."""

    def shown(self, x: Any, tensors: Any) -> Any:
        """A result, from the tensors of storages."""

    def complete(self) -> bool:
        """Whether the optimizers have created all their state."""

    def bytes_of(self, s: int) -> torch.Tensor:
        """A storage on the device as bytes."""

    def drop(self, s: int) -> None:
        """Forget the tensor and the views of a storage."""
