"""Save and restore random number generators, so that a step that begins again draws the same numbers."""

from __future__ import annotations

import torch

from .devices import Device


class RandomState:
    """The state, at its creation, of the generators that a step on a device may use."""

    def __init__(self, device: Device) -> None:
        self._device = device.torch
        self._own = [(one, one.get_state()) for one in device.generators]
        cuda = self._device.type == "cuda"
        self._state = torch.cuda.get_rng_state(self._device) if cuda else torch.get_rng_state()

    def restore(self) -> None:
        """Restore the generators, so that the same numbers are drawn again."""
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(self._state, self._device)
        else:
            torch.set_rng_state(self._state)
        for generator, state in self._own:
            generator.set_state(state)
