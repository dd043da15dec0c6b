"""Where a program runs: room for storages, and copies between the device and the host that go on beside the computing.

    CudaDevice   a GPU: one stream for copies to the host, one for copies from it, events between them and the compute
    PlainDevice  ordinary memory that plays the device: for machines without a GPU, and for tests. Its copies can be
                 made as late or as early as the events allow, in random order: that shows races without a GPU.

Room is taken and given back on the compute stream only; the other streams copy and do nothing else. So no piece of
memory is ever handed on while a copy still touches it, and what is in use does not depend on timing.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

import torch


class Device(Protocol):
    """copies are named by the storage they are of; one at a time in each direction."""

    torch: torch.device

    def room(self, nbytes: int) -> torch.Tensor: ...
    def host_room(self, nbytes: int) -> torch.Tensor: ...
    def out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None: ...
    def gone(self, which: int) -> None: ...
    def into(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None: ...
    def ready(self, which: int) -> None: ...
    def settle(self) -> None: ...
    def watch_peak(self) -> None: ...
    def peak(self) -> int | None: ...


class PlainDevice:
    """late: the chance that a copy is made at its last moment; None: always at once. poison: fill new room with NaN
    bytes, and room that was given back."""

    def __init__(self, late: float | None = None, seed: int = 0, *, poison: bool = False) -> None:
        self.torch = torch.device("cpu")
        self._late, self._random, self._poison = late, random.Random(seed), poison
        self._outs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._ins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def room(self, nbytes: int) -> torch.Tensor:
        room = torch.empty(nbytes, dtype=torch.uint8)
        if self._poison:
            room.fill_(0xFF)
        return room

    def host_room(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

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

    def settle(self) -> None:
        for which in list(self._outs):
            self._make_out(which)

    def watch_peak(self) -> None:
        """Ordinary memory is not counted."""

    def peak(self) -> int | None:
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


class CudaDevice:
    """A GPU. Pinned memory comes from one slab of exactly the size asked for."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.torch = device or torch.device("cuda", torch.cuda.current_device())
        self._out_stream, self._in_stream = torch.cuda.Stream(self.torch), torch.cuda.Stream(self.torch)
        self._passed = torch.cuda.Event()  # who waits for it has seen its last record: one will do for all
        self._out_events: dict[int, Any] = {}
        self._in_events: dict[int, Any] = {}

    def room(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.torch)

    def host_room(self, nbytes: int) -> torch.Tensor:
        return pinned(nbytes)

    def out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None:
        self._copy(self._out_stream, here, there, _event(self._out_events, which))

    def gone(self, which: int) -> None:
        torch.cuda.current_stream(self.torch).wait_event(self._out_events[which])

    def into(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None:
        if which in self._out_events:
            self._in_stream.wait_event(self._out_events[which])
        self._copy(self._in_stream, there, here, _event(self._in_events, which))

    def _copy(self, stream: Any, source: torch.Tensor, target: torch.Tensor, made: Any) -> None:
        """Copy on a stream of its own, after all that was computed until now: who had this room before is done."""
        computing = torch.cuda.current_stream(self.torch)
        self._passed.record(computing)
        stream.wait_event(self._passed)
        torch.cuda.set_stream(stream)  # by hand: the context manager takes longer than the copy's launch
        try:
            target.copy_(source, non_blocking=True)
        finally:
            torch.cuda.set_stream(computing)
        made.record(stream)

    def ready(self, which: int) -> None:
        torch.cuda.current_stream(self.torch).wait_event(self._in_events[which])

    def settle(self) -> None:
        self._out_stream.synchronize()

    def watch_peak(self) -> None:
        torch.cuda.synchronize(self.torch)
        torch.cuda.reset_peak_memory_stats(self.torch)

    def peak(self) -> int | None:
        """Bytes in use at most since `watch_peak`, whoever took them."""
        torch.cuda.synchronize(self.torch)
        return int(torch.cuda.max_memory_allocated(self.torch))


def _event(events: dict[int, Any], which: int) -> Any:
    found = events.get(which)
    if found is None:
        found = events[which] = torch.cuda.Event()
    return found


def pinned(nbytes: int) -> torch.Tensor:
    """Host memory of exactly so many bytes that the device can copy from and to by itself. It is given back when nobody
    holds a view of it any more."""
    import mmap
    import weakref

    size = max(nbytes, 1)
    room = mmap.mmap(-1, size)
    tensor = torch.frombuffer(room, dtype=torch.uint8)
    address = tensor.data_ptr()
    result = torch.cuda.cudart().cudaHostRegister(address, size, 0)
    if int(result) != 0:
        raise MemoryError(f"the host could not pin {nbytes / 2**30:.1f} GiB for copies: error {int(result)}")
    weakref.finalize(room, lambda: torch.cuda.cudart().cudaHostUnregister(address))
    return tensor[:nbytes]
