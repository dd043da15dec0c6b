"""Pinned host memory for copies: a buffer of exactly the requested size, paged in where it is written.

Torch's own pinned memory is rounded up to powers of two. Here a buffer is mapped first, parameters move into it one by
one (each frees its old memory), and only then is the whole buffer pinned: no two copies of everything exist at once.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref

import torch

from stretto.text import show_gib

_PAGE = 4096
_MAPS: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()  # by address, while they exist


def slab(nbytes: int) -> torch.Tensor:
    """A buffer of `nbytes` zero bytes, paged in where it is written, and freed with the last view of it.

    >>> slab(3)
    tensor([0, 0, 0], dtype=torch.uint8)
    """
    buffer = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):  # a child process must not get a copy of pinned memory
        with contextlib.suppress(OSError, AttributeError):  # optional: some systems do not support it
            buffer.madvise(getattr(mmap, advice))
    tensor = torch.frombuffer(buffer, dtype=torch.uint8)
    _MAPS[tensor.data_ptr()] = buffer
    return tensor[:nbytes]


def fault(buffer: torch.Tensor) -> None:
    """Page in a whole buffer, on all cores at once (pinning uses one). Its bytes stay the same."""
    buffer[::_PAGE].add_(0)


def pin(buffer: torch.Tensor) -> None:
    """Pin a buffer, so that a GPU can copy from and to it asynchronously, until it is freed."""
    fault(buffer)
    address = buffer.data_ptr()
    result = int(torch.cuda.cudart().cudaHostRegister(address, max(buffer.numel(), 1), 0))
    if result != 0:
        raise MemoryError(
            f"pinning {show_gib(buffer.numel())} of host memory for copies failed with CUDA error {result}; pass "
            "host_budget= with less than the free host memory"
        )
    weakref.finalize(_MAPS[address], lambda: torch.cuda.cudart().cudaHostUnregister(address))
