"""Run a step that cannot be planned: unchanged, with activations for backward on the host meanwhile.

This saves activations only; parameters, gradients and optimizer state stay where they are. The budget still holds: a
step that takes more is refused, before it runs where that is known, otherwise after the first step that exceeds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stretto.errors import PlanError, RunError
from stretto.text import show_bytes

from .devices import Device

_LARGE = 1 << 20  # bytes: smaller tensors are not worth a copy
_WATCHED = 3  # first steps that are measured; later ones only with batches of new shapes


class HookedStep:
    """An unplanned step: the step function itself, with saved tensors of a megabyte or more on the host.

    Parameters
    ----------
    function : callable
        The step function.
    why : str
        Why the step is not planned.
    budget : int
        Bytes that the step may take on the device. A device that does not measure (`peak()` is None) has no bound.
    device : Device
        Measures what a step takes.
    modules : sequence of Module, default ()
        Modules that are on the device all the time, with their gradients.
    optimizers : sequence of Optimizer, default ()
        Optimizers whose state is on the device all the time.

    Attributes
    ----------
    report : None
        There is no plan.
    why : str
        Why the step is not planned.
    """

    report = None

    def __init__(
        self,
        function: Callable[[Any], Any],
        why: str,
        budget: int,
        device: Device,
        modules: Sequence[nn.Module] = (),
        optimizers: Sequence[torch.optim.Optimizer] = (),
    ) -> None:
        self._function, self.why = function, why
        self._budget, self._device = budget, device
        self._left, self._known = _WATCHED, set[Any]()
        always = _always_resident(modules, optimizers, device.torch)
        if device.peak() is not None and always > budget:
            raise PlanError(
                f"budget={show_bytes(budget)} cannot be met: parameters, gradients and optimizer state take "
                f"{show_bytes(always)} on {device.torch}, and only a planned step can move them. The step is not "
                f"planned, since {why}. Change that, or pass a budget of more than {show_bytes(always)}"
            )

    def __call__(self, batch: Any) -> Any:
        """Train on one batch; the result of the step function."""
        shapes = tuple(tuple(x.shape) for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor))
        watched = self._left > 0 or shapes not in self._known
        if watched:
            self._device.reset_peak()
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            result = self._function(batch)
        if watched:
            self._left -= 1
            self._known.add(shapes)
            self._check()
        return result

    def _check(self) -> None:
        real = self._device.peak()
        if real is not None and real > self._budget:
            raise RunError(
                f"budget={show_bytes(self._budget)}: the step takes {show_bytes(real)} on {self._device.torch}. It is "
                f"not planned, since {self.why}. Change that, or pass a larger budget or a smaller batch"
            )

    @contextlib.contextmanager
    def paused(self, device: Any = None) -> Iterator[None]:
        """Does nothing: parameters stay where they are.

        Parameters
        ----------
        device : torch.device, str or None, default None
            Not used.
        """
        yield

    def settle(self) -> None:
        """Does nothing: no copies are in progress."""

    def close(self) -> None:
        """Does nothing: nothing was moved."""


def _always_resident(
    modules: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], device: torch.device
) -> int:
    """Bytes on a device of parameters and buffers, of gradients after backward, and of optimizer state."""
    parameters = {id(p): p for module in modules for p in module.parameters()}.values()
    tensors = [*parameters, *(b for module in modules for b in module.buffers())]
    tensors += [p for p in parameters if p.requires_grad]  # gradients are as large
    tensors += [
        x for one in optimizers for x in pytree.tree_leaves(list(one.state.values())) if isinstance(x, torch.Tensor)
    ]
    return sum(x.numel() * x.element_size() for x in tensors if x.device == device)


def _pack(tensor: torch.Tensor) -> Any:
    small = tensor.numel() * tensor.element_size() < _LARGE
    persistent = isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)
    if small or persistent or tensor.device.type == "cpu":
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
