"""Where a program runs: room for storages, and copies between the device and the host that go on beside the computing.

    CudaDevice   a GPU, see `cuda_device`
    PlainDevice  ordinary memory that plays the device: for machines without a GPU, and for tests. Its copies can be
                 made as late or as early as the events allow, in random order: that shows races without a GPU.

Room is taken and given back on the compute stream only; the other streams copy and do nothing else. So no piece of
memory is ever handed on while a copy still touches it, and what is in use does not depend on timing.
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
    """Some operation cannot be recorded."""


class Device(Protocol):
    """Copies are named by the storage they are of; one at a time in each direction. left: waits for a copy to the host.
    pin: room on the host is used for copies from now on. in_use: bytes on the device by now, with what libraries keep.

    generators: the user's own, from which a step draws random numbers.
    records: whether it can play what it once did. begin_recording: how many bytes recordings will need at once, and
    updates between them; end_recording: there will be none.
    recorded(act): what act would do, to be played.
    alias: the same bytes, without owning them; owner: whose they are, who then lives as long as the alias. computing:
    what computes between recordings is done within.

    hold(nbytes): memory that nothing uses, if there is any, so that the next allocation goes elsewhere.
    block(sizes): memory for tensors that stay, next to one another; block_of(tensor): where the block that it is in
    begins and ends, None if it is in none. staying: what is allocated within is not in the way of anything else.
    set_arena(nbytes, updates): temporary tensors are cut from one block of that size, within `in_arena`, and those of
    updates from another one, within `updating`; 0: no longer.
    within(budget): the device gives out no more than that within, unless an operation would fail otherwise: `retries`
    says whether operations are to be made by `call` for that. slack(budget): bytes that
    the allocator may need beside what is in use.
    peak, reserved: bytes that the device has given out, at most since `watch_peak`, and now.
    """

    torch: torch.device
    records: bool
    retries: bool
    generators: list[torch.Generator]

    def room(self, nbytes: int) -> torch.Tensor: ...
    def hold(self, nbytes: int) -> torch.Tensor | None: ...
    def block(self, sizes: Sequence[int]) -> list[torch.Tensor]: ...
    def block_of(self, tensor: torch.Tensor) -> tuple[int, int] | None: ...
    def staying(self) -> AbstractContextManager[Any]: ...
    def give_back(self, budget: int | None) -> None: ...
    def set_arena(self, nbytes: int, updates: int = 0) -> None: ...
    def in_arena(self) -> AbstractContextManager[Any]: ...
    def updating(self) -> AbstractContextManager[Any]: ...
    def within(self, budget: int | None) -> AbstractContextManager[Any]: ...
    def call(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
    def slack(self, budget: int) -> int: ...
    def host_room(self, nbytes: int) -> torch.Tensor: ...
    def pin(self, room: torch.Tensor) -> None: ...
    def in_use(self) -> int: ...
    def out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None: ...
    def gone(self, which: int) -> None: ...
    def into(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None: ...
    def ready(self, which: int) -> None: ...
    def left(self, which: int) -> None: ...
    def alias(self, here: torch.Tensor, owner: Any = None) -> torch.Tensor: ...
    def begin_recording(self, nbytes: int, updates: int = 0) -> None: ...
    def end_recording(self) -> None: ...
    def recorded(self, act: Callable[[], None]) -> Callable[[], None]: ...
    def computing(self) -> AbstractContextManager[Any]: ...
    def settle(self) -> None: ...
    def watch_peak(self) -> None: ...
    def peak(self) -> int | None: ...
    def reserved(self) -> int | None: ...


class PlainDevice:
    """late: the chance that a copy is made at its last moment; None: always at once. poison: fill new room with NaN
    bytes, and room that was given back."""

    records = retries = False

    def __init__(self, late: float | None = None, seed: int = 0, *, poison: bool = False) -> None:
        self.torch = torch.device("cpu")
        self._late, self._random, self._poison = late, random.Random(seed), poison
        self._blocks: list[tuple[int, int]] = []
        self.generators: list[torch.Generator] = []
        self._outs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._ins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def room(self, nbytes: int) -> torch.Tensor:
        room = torch.empty(nbytes, dtype=torch.uint8)
        if self._poison:
            room.fill_(0xFF)
        return room

    def hold(self, nbytes: int) -> torch.Tensor | None:
        """Ordinary memory has no addresses that were planned."""
        return None

    def block(self, sizes: Sequence[int]) -> list[torch.Tensor]:
        whole = self.room(sum(map(rounded, sizes)))
        places = itertools.accumulate(map(rounded, sizes), initial=0)
        self._blocks.append((whole.data_ptr(), whole.data_ptr() + len(whole)))
        return [
            torch.frombuffer(whole.numpy(), dtype=torch.uint8, count=n, offset=at)
            for at, n in zip(places, sizes, strict=False)
        ]

    def block_of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        return next((one for one in self._blocks if one[0] <= tensor.data_ptr() < one[1]), None)

    def staying(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def give_back(self, budget: int | None) -> None:
        """Ordinary memory is given back at once."""

    def set_arena(self, nbytes: int, updates: int = 0) -> None:
        """Ordinary memory is found for every tensor."""

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

    def host_room(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def pin(self, room: torch.Tensor) -> None:
        """Ordinary memory is copied as it is."""

    def in_use(self) -> int:
        return 0

    def out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None:
        self._outs[which] = (here, there)
        if not self._delayed():
            self._make_out(which)

    def gone(self, which: int) -> None:
        here = self._outs[which][0] if which in self._outs else None
        self._make_out(which)
        if self._poison and here is not None:
            here.fill_(0xFF)

    def into(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None:
        self._make_out(which)  # the copy from the host follows the one to it
        self._ins[which] = (there, here)
        if not self._delayed():
            self._make_in(which)

    def ready(self, which: int) -> None:
        self._make_in(which)

    def left(self, which: int) -> None:
        self._make_out(which)

    def alias(self, here: torch.Tensor, owner: Any = None) -> torch.Tensor:
        return here

    def begin_recording(self, nbytes: int, updates: int = 0) -> None:
        """Ordinary memory needs no preparing."""

    def end_recording(self) -> None:
        """Nor has it anything to give back."""

    def recorded(self, act: Callable[[], None]) -> Callable[[], None]:
        raise NotRecorded("ordinary memory plays no recordings")

    def computing(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def settle(self) -> None:
        for which in list(self._outs):
            self._make_out(which)
        for which in list(self._ins):
            self._make_in(which)

    def watch_peak(self) -> None:
        """Ordinary memory is not counted."""

    def peak(self) -> int | None:
        return None

    def reserved(self) -> int | None:
        return None

    def _delayed(self) -> bool:
        if self._late is None:
            return False
        for which in [*self._outs, *self._ins]:  # others may be made at any moment, this one for instance
            if self._random.random() < 0.2:
                (self._make_out if which in self._outs else self._make_in)(which)
        return self._random.random() < self._late

    def _make_out(self, which: int) -> None:
        if which in self._outs:
            here, there = self._outs.pop(which)
            there.copy_(here)

    def _make_in(self, which: int) -> None:
        if which in self._ins:
            there, here = self._ins.pop(which)
            here.copy_(there)
