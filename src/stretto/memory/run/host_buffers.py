"""Host memory that the plans of one step share, so that switching between plans moves as little as possible.

A persistent storage (a parameter, a buffer, optimizer state) has one place on the host, the same in every plan.
Temporary storages of all plans use one scratch area: only one plan runs at a time.

    host = HostBuffers(device)
    places = host.reserve(program, owner_of)   # {storage: its bytes on the host}
    host.pin()                                 # copies from and to it go on beside the computing
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch

from stretto.memory.planner.host_slots import places
from stretto.memory.planner.program import Program

from .devices import Device
from .views import alone

Owner = (
    Hashable  # what a persistent storage belongs to, the same in every plan: ("parameter", 3), ("state", 3, "exp_avg")
)


class HostBuffers:
    """Host memory of a step.

    Attributes
    ----------
    nbytes : int
        Bytes allocated so far, for all plans together.
    """

    def __init__(self, device: Device) -> None:
        self.nbytes = 0
        self._device = device
        self._fixed: dict[Owner, torch.Tensor] = {}  # places of persistent storages, not rounded
        self._scratch: torch.Tensor | None = None
        self._unpinned: list[torch.Tensor] = []

    def place(self, owner: Owner, nbytes: int) -> torch.Tensor:
        """The place of one persistent storage, which may be in no program."""
        if owner not in self._fixed:
            self._fixed[owner] = slab = self._device.host_room(nbytes)
            self._unpinned.append(slab)
            self.nbytes += nbytes
        return self._fixed[owner]

    def missing(self, program: Program, owners: Mapping[int, Owner]) -> int:
        """Bytes that `reserve` would allocate for a program."""
        fixed, scratch = self._wanted(program, owners)
        return sum(program.graph.storages[s].nbytes for s in fixed) + scratch

    def reserve(self, program: Program, owners: Mapping[int, Owner], nbytes: Sequence[int]) -> dict[int, torch.Tensor]:
        """Places on the host for all storages of a program that are ever there.

        Parameters
        ----------
        program : Program
        owners : mapping
            By persistent storage: what it belongs to.
        nbytes : sequence
            By storage: its bytes, not rounded.
        """
        storages = program.graph.storages
        fixed, scratch = self._wanted(program, owners)
        size = self.missing(program, owners)
        if size:
            slab = self._device.host_room(size)
            self._unpinned.append(slab)
            self.nbytes += size
            at = 0
            for s in fixed:
                self._fixed[owners[s]] = alone(slab, at, nbytes[s])
                at += storages[s].nbytes
            if scratch:
                self._scratch = slab[at:]
        offsets, _ = places(program)
        found = {s: self._fixed[owners[s]] for s in offsets if storages[s].lasting}
        temporary = {s: at for s, at in offsets.items() if not storages[s].lasting}
        first = min(temporary.values(), default=0)
        for s, at in temporary.items():
            assert self._scratch is not None
            found[s] = alone(self._scratch, at - first, nbytes[s])
        return found

    def holds(self, owner: Owner, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in its owner's place on the host: where the device is ordinary memory, too, its name does
        not say so."""
        place = self._fixed.get(owner)
        return place is not None and place.device == tensor.device and place.data_ptr() == tensor.data_ptr()

    def pin(self) -> None:
        """Let the device copy from and to all memory that was reserved."""
        while self._unpinned:
            self._device.pin(self._unpinned.pop())

    def _wanted(self, program: Program, owners: Mapping[int, Owner]) -> tuple[list[int], int]:
        """Persistent storages without a place yet, and bytes of a new scratch area (0 if the present one is enough)."""
        storages = program.graph.storages
        offsets, _ = places(program)
        fixed = [s for s in sorted(offsets) if storages[s].lasting and owners[s] not in self._fixed]
        spans = [(at, at + storages[s].nbytes) for s, at in offsets.items() if not storages[s].lasting]
        scratch = max((end for _, end in spans), default=0) - min((at for at, _ in spans), default=0)
        have = 0 if self._scratch is None else self._scratch.numel()
        return fixed, scratch if scratch > have else 0
