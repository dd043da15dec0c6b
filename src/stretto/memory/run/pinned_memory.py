"""Host memory for copies: one slab of exactly the size asked for, that takes memory only where it is written, until it
is pinned.

Torch's own pinned memory is rounded up to powers of two. Here a slab is mapped first, parameters move into it one by
one (each leaves its old place), and only then is it pinned as a whole: at no time is everything there twice.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref

import torch

_PAGE = 4096
_MAPS: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()  # by address, while they are there


def slab(nbytes: int) -> torch.Tensor:
    """So many bytes, zero, page by page there once they are written. They are given back when nobody holds a view of
    them any more.

    >>> slab(3)
    tensor([0, 0, 0], dtype=torch.uint8)
    """
    room = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):  # a child process must not get a copy of what is pinned
        with contextlib.suppress(OSError, AttributeError):  # a system that knows no such advice will do
            room.madvise(getattr(mmap, advice))
    tensor = torch.frombuffer(room, dtype=torch.uint8)
    _MAPS[tensor.data_ptr()] = room
    return tensor[:nbytes]


def fault(room: torch.Tensor) -> None:
    """Let all pages of a slab be there, on all cores at once (pinning does it on one). Bytes stay as they are."""
    room[::_PAGE].add_(0)


def pin(room: torch.Tensor) -> None:
    """Let a GPU copy from and to a slab by itself, until it is given back."""
    fault(room)
    address = room.data_ptr()
    result = int(torch.cuda.cudart().cudaHostRegister(address, max(room.numel(), 1), 0))
    if result != 0:
        raise MemoryError(
            f"the host could not pin {room.numel() / 2**30:.1f} GiB for copies: CUDA error {result}; give host_budget= "
            "less than the memory that is free there"
        )
    weakref.finalize(_MAPS[address], lambda: torch.cuda.cudart().cudaHostUnregister(address))
