"""Devices that run a program: memory for storages, and copies to and from the host that overlap with computation.

    CudaDevice   a GPU, see `cuda_device`
    PlainDevice  CPU memory in the role of a device: for machines without a GPU, and for tests. It can delay copies for
                 as long as events allow, in random order: that shows races without a GPU.

Memory is allocated and freed on the compute stream only; the other streams only copy. So no memory is reused while a
copy still uses it, and the bytes in use do not depend on timing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from stretto.memory.addresses.arena import rounded


class NotRecorded(RuntimeError):
    """An operation cannot be recorded."""


class Device(Protocol):
    """What a runner needs from a device.

    Copies are named by their storage, one at a time in each direction.

    Attributes
    ----------
    torch : torch.device
    records : bool
        Whether it can record operations and replay them.
    retries : bool
        Whether operations are to be made by `call`.
    generators : list
        The user's own generators, from which a step draws random numbers.
    """

    torch: torch.device
    records: bool
    retries: bool
    generators: list[torch.Generator]

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Memory for a storage."""

    def hold(self, nbytes: int) -> torch.Tensor | None:
        """Unused memory, if there is any, so that the next allocation goes elsewhere."""

    def allocate_block(self, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Memory for tensors that stay, next to one another."""

    def block_of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Where the block of a tensor begins and ends; None if it is in none."""

    def persistent_stream(self) -> AbstractContextManager[Any]:
        """Allocate within on a stream of its own, apart from all temporary memory."""

    def release_cached(self, budget: int | None) -> None:
        """Return cached memory to the device, if nearly all of the budget is reserved."""

    def set_arena(self, nbytes: int, updates: int = 0) -> None:
        """Use one block of this size for temporary tensors within `in_arena`, and another for `updating`; 0: none."""

    def in_arena(self) -> AbstractContextManager[Any]:
        """Allocate within from the arena."""

    def updating(self) -> AbstractContextManager[Any]:
        """Allocate within from the memory of updates."""

    def within(self, budget: int | None) -> AbstractContextManager[Any]:
        """Reserve no more than the budget within, unless an operation would fail otherwise."""

    def call(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an operation, a second time without the bound of `within` if memory is short."""

    def slack(self, budget: int) -> int:
        """Bytes that the allocator may need beside those in use."""

    def allocate_host(self, nbytes: int) -> torch.Tensor:
        """Host memory."""

    def pin(self, buffer: torch.Tensor) -> None:
        """Use host memory for copies from now on."""

    def in_use(self) -> int:
        """Bytes on the device by now, with what libraries keep."""

    def copy_out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None:
        """Begin a copy to the host."""

    def wait_evict(self, which: int) -> None:
        """Wait for a copy to the host, after which the device memory is freed."""

    def copy_in(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None:
        """Begin a copy from the host."""

    def wait_in(self, which: int) -> None:
        """Wait for a copy from the host."""

    def wait_out(self, which: int) -> None:
        """Wait for a copy to the host."""

    def alias(self, here: torch.Tensor, owner: Any = None) -> torch.Tensor:
        """The same bytes without owning them; `owner` then lives as long as the alias."""

    def begin_recording(self, nbytes: int, updates: int = 0) -> None:
        """Reserve memory for recordings, and for the updates between them."""

    def end_recording(self) -> None:
        """Free the memory of recordings."""

    def recorded(self, act: Callable[[], None]) -> Callable[[], None]:
        """Record an action; calling the result replays it."""

    def computing(self) -> AbstractContextManager[Any]:
        """Compute within on the stream that can be recorded."""

    def settle(self) -> None:
        """Wait for everything."""

    def reset_peak(self) -> None:
        """Measure the peak from now on."""

    def peak(self) -> int | None:
        """The most bytes that the device has reserved since `reset_peak`; None if it does not measure."""

    def reserved(self) -> int | None:
        """Bytes that the device has reserved now; None if it does not measure."""


class PlainDevice:
    """CPU memory in the role of a device.

    Parameters
    ----------
    late : float, optional
        The chance that a copy is delayed to its last possible time; None: copies are made at once.
    seed : int
        For the delays.
    poison : bool
        Fill new memory and freed memory with NaN bytes.
    """

    records = retries = False

    def __init__(self, late: float | None = None, seed: int = 0, *, poison: bool = False) -> None:
        self.torch = torch.device("cpu")
        self._late, self._random, self._poison = late, random.Random(seed), poison
        self._blocks: list[tuple[int, int]] = []
        self.generators: list[torch.Generator] = []
        self._outs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._ins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def allocate(self, nbytes: int) -> torch.Tensor:
        buffer = torch.empty(nbytes, dtype=torch.uint8)
        if self._poison:
            buffer.fill_(0xFF)
        return buffer

    def hold(self, nbytes: int) -> torch.Tensor | None:
        """None: CPU memory has no planned addresses."""
        return None

    def allocate_block(self, sizes: Sequence[int]) -> list[torch.Tensor]:
        whole = self.allocate(sum(map(rounded, sizes)))
        places = itertools.accumulate(map(rounded, sizes), initial=0)
        self._blocks.append((whole.data_ptr(), whole.data_ptr() + len(whole)))
        return [
            torch.frombuffer(whole.numpy(), dtype=torch.uint8, count=n, offset=at)
            for at, n in zip(places, sizes, strict=False)
        ]

    def block_of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        return next((one for one in self._blocks if one[0] <= tensor.data_ptr() < one[1]), None)

    def persistent_stream(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def release_cached(self, budget: int | None) -> None:
        """Do nothing: CPU memory is freed at once."""

    def set_arena(self, nbytes: int, updates: int = 0) -> None:
        """Do nothing: each tensor has its own memory."""

    def in_arena(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def updating(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def within(self, budget: int | None) -> AbstractContextManager[Any]:
        return nullcontext()

    def call(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return operation(*args, **kwargs)

    def slack(self, budget: int) -> int:
        return 0

    def allocate_host(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def pin(self, buffer: torch.Tensor) -> None:
        """Do nothing: CPU memory is copied as it is."""

    def in_use(self) -> int:
        return 0

    def copy_out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None:
        self._outs[which] = (here, there)
        if not self._delayed():
            self._finish_out(which)

    def wait_evict(self, which: int) -> None:
        here = self._outs[which][0] if which in self._outs else None
        self._finish_out(which)
        if self._poison and here is not None:
            here.fill_(0xFF)

    def copy_in(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None:
        self._finish_out(which)  # the copy from the host follows the one to it
        self._ins[which] = (there, here)
        if not self._delayed():
            self._finish_in(which)

    def wait_in(self, which: int) -> None:
        self._finish_in(which)

    def wait_out(self, which: int) -> None:
        self._finish_out(which)

    def alias(self, here: torch.Tensor, owner: Any = None) -> torch.Tensor:
        return here

    def begin_recording(self, nbytes: int, updates: int = 0) -> None:
        """Do nothing: CPU memory needs no preparation."""

    def end_recording(self) -> None:
        """Do nothing."""

    def recorded(self, act: Callable[[], None]) -> Callable[[], None]:
        raise NotRecorded("the CPU records no CUDA graphs")

    def computing(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def settle(self) -> None:
        for which in list(self._outs):
            self._finish_out(which)
        for which in list(self._ins):
            self._finish_in(which)

    def reset_peak(self) -> None:
        """Do nothing: CPU memory is not measured."""

    def peak(self) -> int | None:
        return None

    def reserved(self) -> int | None:
        return None

    def _delayed(self) -> bool:
        if self._late is None:
            return False
        for which in [*self._outs, *self._ins]:  # other copies may be made at any time, for example now
            if self._random.random() < 0.2:
                (self._finish_out if which in self._outs else self._finish_in)(which)
        return self._random.random() < self._late

    def _finish_out(self, which: int) -> None:
        if which in self._outs:
            here, there = self._outs.pop(which)
            there.copy_(here)

    def _finish_in(self, which: int) -> None:
        if which in self._ins:
            there, here = self._ins.pop(which)
            here.copy_(there)
