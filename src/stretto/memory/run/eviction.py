"""Evict tensors to the host for a while, to free space on their device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch


@contextlib.contextmanager
def evicted(tensors: Iterable[torch.Tensor], device: torch.device) -> Iterator[None]:
    """Free the device memory of tensors within the block; their contents are on the host meanwhile.

    Storages stay the same objects, so views of them and tensors that share them are unchanged afterwards.

    with evicted(model.parameters(), device):
        ...                       # the parameters must not be read here
    """
    storages = {one.untyped_storage()._cdata: one for one in tensors if one.device == device}
    there = [one.untyped_storage() for one in storages.values() if one.untyped_storage().resizable()]
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # wait for operations that still use them
    kept = []
    with torch.no_grad():
        try:
            for storage in there:
                kept.append((storage, storage.nbytes(), _bytes(storage).to("cpu", copy=True)))
                storage.resize_(0)
            yield
        finally:
            for storage, nbytes, saved in kept:
                storage.resize_(nbytes)
                _bytes(storage).copy_(saved)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
