"""Measure what optimizer updates allocate on a GPU besides parameters, gradients and state.

memory = UpdateMemory(optimizers, device)
memory.bytes(parameters, update, sizes)      # for one update
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from stretto.memory.run.optimizers import group_of, keeps_numbers, workspace_ratios

if TYPE_CHECKING:
    from stretto.memory.capture.lifted import OptimizerUpdate
    from stretto.memory.run.devices import Device

_UNKNOWN = 4.0  # workspace as a multiple of a parameter's bytes, if it cannot be measured


class UpdateMemory:
    """Workspaces of updates as multiples of a parameter's bytes.

    They are measured by optimizer, group, dtype, and whether the parameter is a matrix: some optimizers keep state for
    rows and columns of a matrix. Measuring runs where updates run later. Memory that libraries then keep permanently,
    such as the workspace of matrix products, is in use from then on and counted with everything else on the device.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], device: Device) -> None:
        self._optimizers = optimizers
        self._together = [keeps_numbers(one) for one in optimizers]
        self._known: dict[Any, tuple[float, float]] = {}
        with device.updating():
            for number, optimizer in enumerate(optimizers):
                for p, group in ((p, one) for one in optimizer.param_groups for p in one["params"]):
                    key = self._key(number, group, p)
                    if key not in self._known:
                        self._known[key] = _UNKNOWN, _UNKNOWN
                        with contextlib.suppress(Exception):  # it may need more than a parameter and a gradient
                            self._known[key] = workspace_ratios(optimizer, p, device.torch)

    def _key(self, number: int, group: dict[str, Any], p: torch.nn.Parameter) -> Any:
        return number, id(group), p.dtype, p.dim() > 1

    def bytes(self, parameters: Sequence[torch.nn.Parameter], update: OptimizerUpdate, sizes: Sequence[int]) -> int:
        """Bytes for an update of parameters of these sizes.

        A first update creates their state, for one parameter after another.
        """
        number, optimizer = update.optimizer, self._optimizers[update.optimizer]
        keys = [self._key(number, group_of(optimizer, p), p) for p in (parameters[n] for n in update.parameters)]
        found = [self._known.get(key, (_UNKNOWN, _UNKNOWN)) for key in keys]
        if len(sizes) == 1:
            return int(max(found[0]) * min(sizes[0], update.chunk_bytes or sizes[0]))
        first = [ratio * size for (ratio, _), size in zip(found, sizes, strict=True)]
        later = max(ratio for _, ratio in found) * sum(sizes)
        return int(max(later, sum(first) if self._together[number] else max(first)))
