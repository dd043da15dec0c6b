"""When a step cannot be written down: run it as it is, and keep what backward needs on the host meanwhile.

This saves activations only; parameters and optimizer state stay where they are. It is what is left for steps that look
at values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

_LARGE = 1 << 20  # bytes: smaller tensors are not worth a copy


class HookedStep:
    """Runs the step function itself; saved tensors of a megabyte or more wait on the host. why: why not planned."""

    report = None

    def __init__(self, function: Callable[[Any], Any], why: str) -> None:
        self._function, self.why = function, why

    def __call__(self, batch: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            return self._function(batch)

    @contextlib.contextmanager
    def paused(self, device: Any = None) -> Iterator[None]:
        """Parameters are where they always are."""
        yield

    def settle(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing was moved."""


def _pack(tensor: torch.Tensor) -> Any:
    small = tensor.numel() * tensor.element_size() < _LARGE
    if small or isinstance(tensor, torch.nn.Parameter) or tensor.device.type == "cpu":
        return tensor
    host = torch.empty(tensor.size(), dtype=tensor.dtype, layout=tensor.layout, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return tensor.device, host


def _unpack(packed: Any) -> torch.Tensor:
    if isinstance(packed, torch.Tensor):
        return packed
    device, host = packed
    back: torch.Tensor = host.to(device, non_blocking=True)
    return back
