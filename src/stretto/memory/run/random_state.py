"""Random numbers of a step that begins again are those of its first beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .devices import Device


class RandomState:
    """The state of the generators that a step on a device may draw from, when it was made."""

    def __init__(self, device: Device) -> None:
        self._device = device.torch
        self._own = [(one, one.get_state()) for one in device.generators]
        cuda = self._device.type == "cuda"
        self._state = torch.cuda.get_rng_state(self._device) if cuda else torch.get_rng_state()

    def restore(self) -> None:
        """Draw the same numbers again."""
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(self._state, self._device)
        else:
            torch.set_rng_state(self._state)
        for generator, state in self._own:
            generator.set_state(state)
