"""Tensors that are on the host for a while, so that there is room on their device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch


@contextlib.contextmanager
def aside(tensors: Iterable[torch.Tensor], device: torch.device) -> Iterator[None]:
    """What tensors have on a device is not there within. Storages stay the same ones, so views of them, and tensors
    that share them, are as they were when they come back.

    with aside(model.parameters(), device):
        ...                       # nobody may look at the parameters here
    """
    storages = {one.untyped_storage()._cdata: one for one in tensors if one.device == device}
    there = [one.untyped_storage() for one in storages.values() if one.untyped_storage().resizable()]
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # nobody reads or writes them any more
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
