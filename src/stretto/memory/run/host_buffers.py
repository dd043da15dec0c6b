"""Host memory that the plans of one step share, so that switching between plans copies as little as possible.

A persistent storage (a parameter, a buffer, optimizer state) has one host buffer, the same in every plan. Temporary
storages of all plans use one scratch buffer: only one plan runs at a time.

    host = HostBuffers(device)
    places = host.reserve(program, owner_of)   # {storage: its bytes on the host}
    host.pin()                                 # copies from and to it overlap with computation
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch

from stretto.memory.planner.host_slots import places
from stretto.memory.planner.instructions import DeviceProgram

from .devices import Device
from .views import own_storage

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
        self._fixed: dict[Owner, torch.Tensor] = {}  # buffers of persistent storages, not rounded
        self._scratch: torch.Tensor | None = None
        self._unpinned: list[torch.Tensor] = []

    def place(self, owner: Owner, nbytes: int) -> torch.Tensor:
        """The host buffer of one persistent storage, which may be in no program."""
        if owner not in self._fixed:
            self._fixed[owner] = slab = self._device.allocate_host(nbytes)
            self._unpinned.append(slab)
            self.nbytes += nbytes
        return self._fixed[owner]

    def missing(self, program: DeviceProgram, owners: Mapping[int, Owner]) -> int:
        """Bytes that `reserve` would allocate for a program."""
        fixed, scratch = self._wanted(program, owners)
        return sum(program.graph.storages[s].nbytes for s in fixed) + scratch

    def reserve(
        self, program: DeviceProgram, owners: Mapping[int, Owner], nbytes: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """Host buffers for all storages of a program that are ever on the host.

        Parameters
        ----------
        program : DeviceProgram
            The plan.
        owners : mapping
            By persistent storage: what it belongs to.
        nbytes : sequence
            By storage: its bytes, not rounded.
        """
        storages = program.graph.storages
        fixed, scratch = self._wanted(program, owners)
        size = self.missing(program, owners)
        if size:
            slab = self._device.allocate_host(size)
            self._unpinned.append(slab)
            self.nbytes += size
            at = 0
            for s in fixed:
                self._fixed[owners[s]] = own_storage(slab, at, nbytes[s])
                at += storages[s].nbytes
            if scratch:
                self._scratch = slab[at:]
        offsets, _ = places(program)
        found = {s: self._fixed[owners[s]] for s in offsets if storages[s].persistent}
        temporary = {s: at for s, at in offsets.items() if not storages[s].persistent}
        first = min(temporary.values(), default=0)
        for s, at in temporary.items():
            assert self._scratch is not None
            found[s] = own_storage(self._scratch, at - first, nbytes[s])
        return found

    def holds(self, owner: Owner, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in its owner's host buffer. Its device does not show that where the device is the CPU."""
        place = self._fixed.get(owner)
        return place is not None and place.device == tensor.device and place.data_ptr() == tensor.data_ptr()

    def pin(self) -> None:
        """Pin all reserved memory that is not pinned yet."""
        while self._unpinned:
            self._device.pin(self._unpinned.pop())

    def _wanted(self, program: DeviceProgram, owners: Mapping[int, Owner]) -> tuple[list[int], int]:
        """Persistent storages without a host buffer, and bytes of a new scratch buffer (0 if not needed)."""
        storages = program.graph.storages
        offsets, _ = places(program)
        fixed = [s for s in sorted(offsets) if storages[s].persistent and owners[s] not in self._fixed]
        spans = [(at, at + storages[s].nbytes) for s, at in offsets.items() if not storages[s].persistent]
        scratch = max((end for _, end in spans), default=0) - min((at for at, _ in spans), default=0)
        have = 0 if self._scratch is None else self._scratch.numel()
        return fixed, scratch if scratch > have else 0
