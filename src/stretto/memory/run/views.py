"""Make tensors that are views of storages."""

from __future__ import annotations

import torch

from stretto.memory.capture.lifted import Value


def view(anchor: torch.Tensor, value: Value) -> torch.Tensor:
    """A value from any tensor of its storage."""
    if anchor.dtype == value.dtype:
        return torch.as_strided(anchor, value.size, value.stride, value.offset)
    empty = torch.empty(0, dtype=value.dtype, device=anchor.device)
    return empty.set_(anchor.untyped_storage(), value.offset, value.size, value.stride)


def layout_of(s: int, tensor: torch.Tensor) -> Value:
    """The layout of a tensor in a storage of its own."""
    return Value(s, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), 0)


def own_storage(slab: torch.Tensor, at: int, nbytes: int) -> torch.Tensor:
    """Some bytes of a host buffer as a storage of their own, so that saving it does not save the whole buffer."""
    if not nbytes:
        return slab[:0]
    return torch.frombuffer(slab.numpy(), dtype=torch.uint8, count=nbytes, offset=at)


def in_layout(tensor: torch.Tensor, value: Value, device: torch.device) -> torch.Tensor:
    """A tensor on a device, in the layout of a value: one batch may be a transpose or a slice, and the next one not."""
    there = tensor.to(device, non_blocking=True)
    if there.stride() == value.stride and there.storage_offset() == 0:
        return there
    return torch.empty_strided(value.size, value.stride, dtype=value.dtype, device=device).copy_(there)


def in_traced_layout(tensor: torch.Tensor, value: Value) -> torch.Tensor:
    """A result in the layout of its trace, in which all its views are taken.

    Some operations return another layout than torch predicts without running them: the gradient of mse_loss for a
    transpose, a copy into a slice.
    """
    if tensor.stride() == value.stride and tensor.storage_offset() == value.offset:
        return tensor
    if not layout_differs(tensor, value):
        return tensor
    span = 1 + sum((n - 1) * k for n, k in zip(value.size, value.stride, strict=True))
    buffer = torch.empty(value.offset + span, dtype=tensor.dtype, device=tensor.device)
    return buffer.as_strided(value.size, value.stride, value.offset).copy_(tensor)


def layout_differs(tensor: torch.Tensor, value: Value) -> bool:
    """Whether a result of the traced size has another layout in memory."""
    if tensor.shape != value.size or 0 in value.stride or 0 in value.size:
        return False
    if tensor.storage_offset() != value.offset:
        return True
    return any(n > 1 and a != b for n, a, b in zip(value.size, tensor.stride(), value.stride, strict=True))


def placed(place: torch.Tensor, value: Value) -> torch.Tensor:
    """A value whose storage is a part of a larger one: `place` has its bytes. The value begins there."""
    return place.view(value.dtype).as_strided(value.size, value.stride)


def in_place(place: torch.Tensor, value: Value, tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to `place`, all bytes of a storage, unless it is in place already; the tensor in its place."""
    there = view(place, value)
    if there.data_ptr() != tensor.data_ptr():
        there.copy_(tensor)
    return there


def flat(anchor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage."""
    storage = anchor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=anchor.device).set_(storage, 0, (storage.nbytes(),), (1,))
