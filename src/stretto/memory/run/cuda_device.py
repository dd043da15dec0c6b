"""A GPU as the device of a program: copy streams, events between them and the computation, and planned addresses."""

from __future__ import annotations

import functools
import gc
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch

from stretto.memory.addresses.arena import rounded

from . import pinned_memory
from .devices import NotRecorded

_NEAR = 128 << 20  # bytes below the budget at which cached memory is returned
_END = 2 << 20  # bytes: the allocator splits blocks that are at least a megabyte larger than what is asked for
_SMALL_BLOCKS = 32 << 20  # bytes of blocks that hold small tensors, on two streams
_UNKNOWN_SHARE = 64  # 1 / share of the budget: temporary memory of operations is known in part only


class CudaDevice:
    """A GPU. Pinned memory comes from one buffer of exactly the requested size."""

    records = retries = True

    def __init__(self, device: torch.device | None = None) -> None:
        self.torch = device or torch.device("cuda", torch.cuda.current_device())
        # Libraries keep a workspace for every stream that they ever see: all steps share the same five.
        found = _streams(self.torch.index or 0)
        self._out_stream, self._in_stream, self._computing, self._updating, self._staying = found
        self._computed = torch.cuda.Event()  # waiting uses its last record, so one event is enough
        self._out_events: dict[int, Any] = {}
        self._in_events: dict[int, Any] = {}
        self._pool: Any = None  # the memory pool of all recordings
        self._blocks: list[tuple[int, int, Any]] = []  # first byte, one beyond the last, weak reference to the block
        self._recording = False
        self._arena, self._arena_taken, self._update_space = 0, False, 0
        self._cap: float | None = None  # share of the device's memory that was allowed before `within`
        self._bound: float | None = None  # and the share that is allowed now
        self._end: torch.Tensor | None = None  # of the arena
        self._first: Callable[[], None] | None = None
        self.generators: list[torch.Generator] = []

    def allocate(self, nbytes: int) -> torch.Tensor:
        found: torch.Tensor = self.call(torch.empty, nbytes, dtype=torch.uint8, device=self.torch)
        return found

    def hold(self, nbytes: int) -> torch.Tensor | None:
        try:
            return torch.empty(nbytes, dtype=torch.uint8, device=self.torch)
        except torch.OutOfMemoryError:
            return None

    def allocate_block(self, sizes: Sequence[int]) -> list[torch.Tensor]:
        with self.persistent_stream():
            whole = self.allocate(sum(map(rounded, sizes)))
        self._blocks = [one for one in self._blocks if one[2]() is not None]
        self._blocks.append((whole.data_ptr(), whole.data_ptr() + len(whole), weakref.ref(whole)))
        places = itertools.accumulate(map(rounded, sizes), initial=0)
        return [self.alias(whole[at : at + n], whole) for at, n in zip(places, sizes, strict=False)]

    def block_of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        address = tensor.data_ptr()
        found = (span for *span, alive in self._blocks if span[0] <= address < span[1] and alive() is not None)
        return next(((begin, end) for begin, end in found), None)

    @contextmanager
    def persistent_stream(self) -> Iterator[None]:
        """Allocate within on a stream that has no other allocations.

        The allocator keeps memory by stream. On its own stream, a block is not a part of a larger one that could not be
        returned to the device, and tensors with planned addresses do not take the rest of it.
        """
        torch.cuda.synchronize(self.torch)  # earlier memory may still be in use on another stream
        torch.cuda.empty_cache()
        with torch.cuda.stream(self._staying):
            yield

    def release_cached(self, budget: int | None) -> None:
        """Return unused memory to the device, if nearly all of the budget is reserved."""
        if budget is None or torch.cuda.memory_reserved(self.torch) + _NEAR > budget:
            torch.cuda.empty_cache()

    def set_arena(self, nbytes: int, updates: int = 0) -> None:
        """Use one block for temporary tensors.

        What the allocator caches for tensors of many sizes, none of which fits the next one, may be as much again as
        what is in use. The block belongs to the compute stream, since the allocator keeps memory by stream. Nothing
        else of more than a megabyte is allocated on that stream, so that addresses are as planned.
        """
        self._arena, self._arena_taken, self._update_space = nbytes, False, updates
        self._end = None
        torch.cuda.synchronize(self.torch)
        torch.cuda.empty_cache()

    @contextmanager
    def in_arena(self) -> Iterator[None]:
        if self._arena and not self._arena_taken:
            self._arena_taken = True
            torch.cuda.empty_cache()
            with suppress(torch.OutOfMemoryError):  # without it, tensors have blocks of their own
                self._touch_block(self._arena + _END)
                before = self.allocate(self._arena)
                # When memory is short, the allocator returns blocks that are entirely unused to the device. So the end
                # of this one is always in use.
                self._end = self.allocate(_END)
                del before
                with self.updating():
                    self._touch_block(max(1, self._update_space))
        yield

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Run updates on a stream of its own, so that optimizers allocate nothing from the arena.

        The budget does not bind within: an update that fails halfway could not be repeated.
        """
        computing = torch.cuda.current_stream(self.torch)
        self._updating.wait_stream(computing)
        torch.cuda.set_stream(self._updating)
        bound = self._bound
        if bound is not None and self._cap is not None:
            self._bind(self._cap)
        try:
            yield
        finally:
            if bound is not None:
                self._bind(bound)
            torch.cuda.set_stream(computing)
            computing.wait_stream(self._updating)

    @contextmanager
    def within(self, budget: int | None) -> Iterator[None]:
        """Let the allocator return unused memory before it reserves more than the budget."""
        if budget is None:
            yield
            return
        total = torch.cuda.get_device_properties(self.torch).total_memory
        self._cap = _memory_fraction(self.torch)
        self._bind(min(self._cap, budget / total))
        try:
            yield
        finally:
            self._bind(self._cap)
            self._cap = self._bound = None

    def _bind(self, share: float) -> None:
        """Let the allocator reserve this share of the device's memory."""
        self._bound = share
        torch.cuda.set_per_process_memory_fraction(share, self.torch)

    def call(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an operation. If the budget leaves no memory for it, call it once more without that bound.

        `peak` then shows the memory in use.
        """
        try:
            return operation(*args, **kwargs)
        except torch.OutOfMemoryError:
            if self._cap is None or self._recording:
                raise
            self._bind(self._cap)
        return operation(*args, **kwargs)

    def slack(self, budget: int) -> int:
        """Blocks of small tensors that are in use in part, and memory that plans do not know."""
        return _SMALL_BLOCKS + budget // _UNKNOWN_SHARE

    def allocate_host(self, nbytes: int) -> torch.Tensor:
        return pinned_memory.slab(nbytes)

    def pin(self, buffer: torch.Tensor) -> None:
        pinned_memory.pin(buffer)

    def in_use(self) -> int:
        """Bytes in use, with the workspaces that matrix products keep for each stream: they run here first."""
        for stream in (nullcontext(), self.computing()):
            with stream:
                for dtype in (torch.float32, torch.bfloat16):
                    one = torch.ones(64, 64, dtype=dtype, device=self.torch)
                    torch.addmm(one, one, one)
                    torch.addmm(one[0], one, one)  # uses another library
                    del one
        gc.collect()
        torch.cuda.synchronize(self.torch)
        return int(torch.cuda.memory_allocated(self.torch))

    def copy_out(self, which: int, here: torch.Tensor, there: torch.Tensor) -> None:
        self._copy(self._out_stream, here, there, _event(self._out_events, which))

    def wait_evict(self, which: int) -> None:
        if which in self._out_events:  # absent if an update was left out before its state existed
            torch.cuda.current_stream(self.torch).wait_event(self._out_events[which])

    def copy_in(self, which: int, there: torch.Tensor, here: torch.Tensor) -> None:
        if which in self._out_events:
            self._in_stream.wait_event(self._out_events[which])
        self._copy(self._in_stream, there, here, _event(self._in_events, which))

    def _copy(self, stream: Any, source: torch.Tensor, target: torch.Tensor, made: Any) -> None:
        """Copy on a stream of its own, after all computation so far: earlier users of the memory are done."""
        computing = torch.cuda.current_stream(self.torch)
        self._computed.record(computing)
        stream.wait_event(self._computed)
        torch.cuda.set_stream(stream)  # the context manager takes longer than the copy's launch
        try:
            target.copy_(source, non_blocking=True)
        finally:
            torch.cuda.set_stream(computing)
        made.record(stream)

    def wait_in(self, which: int) -> None:
        torch.cuda.current_stream(self.torch).wait_event(self._in_events[which])

    def wait_out(self, which: int) -> None:
        self.wait_evict(which)

    def alias(self, here: torch.Tensor, owner: Any = None) -> torch.Tensor:
        return torch.as_tensor(_Bytes(here.data_ptr(), here.numel(), owner), device=self.torch)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute on a stream of its own, which can be recorded; the caller's stream waits for it."""
        callers = torch.cuda.current_stream(self.torch)
        self._computing.wait_stream(callers)
        with torch.cuda.stream(self._computing):
            yield
        callers.wait_stream(self._computing)

    def begin_recording(self, nbytes: int, updates: int = 0) -> None:
        torch.cuda.synchronize(self.torch)
        torch.cuda.empty_cache()
        with self.updating():
            self._touch_block(max(1, updates))
        self._pool = torch.cuda.graph_pool_handle()
        # One block for everything: blocks of many sizes would fragment. This first graph keeps the block: the allocator
        # would free memory that no graph uses, while others are still being recorded.
        self._first = self.recorded(lambda: self._touch_block(max(1, nbytes)))

    def end_recording(self) -> None:
        self._first = self._pool = None
        torch.cuda.synchronize(self.torch)
        torch.cuda.empty_cache()

    def _touch_block(self, nbytes: int) -> None:
        """Allocate and free a block, so that the allocator keeps it."""
        self.allocate(nbytes).narrow(0, 0, 1).zero_()

    def recorded(self, act: Callable[[], None]) -> Callable[[], None]:
        """Record a CUDA graph of an action; its replay.

        Copies that begin within end within: their events belong to the recording.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        outside = self._out_events, self._in_events, self._computed
        self._out_events, self._in_events, self._computed = {}, {}, torch.cuda.Event()
        self._recording = True
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                act()
                for stream, events in ((self._out_stream, self._out_events), (self._in_stream, self._in_events)):
                    if events:
                        joined = torch.cuda.Event()
                        joined.record(stream)
                        self._computing.wait_event(joined)
            finally:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the warning that the graph is empty: it only allocates
                    graph.capture_end()
        except RuntimeError as error:
            self._abandon(graph)
            raise NotRecorded((str(error).strip() or type(error).__name__).splitlines()[0]) from error
        finally:
            self._recording = False
            self._out_events, self._in_events, self._computed = outside
        replay: Callable[[], None] = graph.replay
        return replay

    def _abandon(self, graph: Any) -> None:
        """Close a recording that failed.

        Torch leaves it half open: its random numbers, and the allocator, which then no longer frees memory when it is
        short.
        """
        graph.reset()
        with suppress(RuntimeError, AttributeError):  # it was closed properly
            torch._C._cuda_endAllocateToPool(self.torch.index or 0, self._pool)
            torch._C._cuda_releasePool(self.torch.index or 0, self._pool)

    def settle(self) -> None:
        for stream in (self._computing, self._updating, self._out_stream, self._in_stream):
            stream.synchronize()

    def reset_peak(self) -> None:
        torch.cuda.synchronize(self.torch)
        if not self._arena_taken:
            torch.cuda.empty_cache()  # memory cached before does not belong to the step
        torch.cuda.reset_peak_memory_stats(self.torch)

    def peak(self) -> int | None:
        """The most bytes that the allocator has reserved since `reset_peak`, with the memory of recordings.

        Torch's count of allocated bytes leaves out what a recording uses.
        """
        torch.cuda.synchronize(self.torch)
        return int(torch.cuda.max_memory_reserved(self.torch))

    def reserved(self) -> int | None:
        """Bytes that the allocator has reserved now."""
        return int(torch.cuda.memory_reserved(self.torch))


def _memory_fraction(device: torch.device) -> float:
    """The share of a device's memory that the process may reserve."""
    find = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    return float(find(device)) if find is not None else 1.0


@functools.cache
def _streams(device: int) -> tuple[Any, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(5))


class _Bytes:
    """Bytes on a GPU with another owner. A tensor made of it keeps it alive."""

    def __init__(self, address: int, nbytes: int, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 2}


def _event(events: dict[int, Any], which: int) -> Any:
    found = events.get(which)
    if found is None:
        found = events[which] = torch.cuda.Event()
    return found
