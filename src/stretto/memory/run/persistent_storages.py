"""Parameters, buffers and optimizer state of a planned step: on the device or on the host, as the program stores them.

A parameter's `.data` is a view of host memory or of device memory. `suspend()` frees the device memory and `resume()`
moves everything to its place again; data that the caller assigned or loaded meanwhile are taken over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from stretto.memory.addresses.fragmentation import arena_bytes, small_bytes
from stretto.memory.addresses.lifetimes import swapped_persistent
from stretto.memory.capture.lifted import UPDATES, LiftedStep, OptimizerUpdate, generators
from stretto.memory.capture.traced_state import TracedState
from stretto.memory.planner.instructions import DeviceProgram

from .devices import Device
from .host_buffers import HostBuffers
from .views import flat, layout_of, placed, view

_BLOCK = 128 << 20  # bytes of persistent storages that are moved at a time
_LOST = 2 << 20  # bytes of a block that may be unused
_SMALL_BLOCKS = 8 << 20  # bytes of blocks for small tensors that are in use in part


class PersistentStorages:
    """The storages of a step between its calls.

    Parameters
    ----------
    lifted : LiftedStep
        The traced step.
    program : DeviceProgram
        Its plan.
    watched : TracedState
        Parameters, buffers and other tensors of the caller.
    optimizers : sequence
        They update the parameters.
    device : Device
        Where the program runs.
    records : bool
        Whether the device records the program and replays it.
    host : HostBuffers or None
        Host memory that other plans of the same step share.
    budget : int or None
        Bytes on the device that a step may take.
    """

    def __init__(
        self,
        lifted: LiftedStep,
        program: DeviceProgram,
        watched: TracedState,
        optimizers: Sequence[torch.optim.Optimizer],
        device: Device,
        *,
        records: bool,
        host: HostBuffers | None,
        budget: int | None,
    ) -> None:
        self.lifted, self.program, self.watched, self.device = lifted, program, watched, device
        self.optimizers, self.budget = list(optimizers), budget
        self.a: list[Any] = [None] * len(lifted.graph.storages)
        self.v: list[Any] = [None] * len(lifted.values)
        self._of: dict[int, list[int]] = {}  # by storage: its values
        for number, value in enumerate(lifted.values):
            self._of.setdefault(value.storage, []).append(number)
        self.layouts = [lifted.values[self._of[s][0]] for s in lifted.inputs]  # the batch itself, before views of it
        self._states = {s: (number, name) for number, of in lifted.states.items() for name, s in of.items()}
        self._owner = {n: k for k, _, n in self._updated()}
        self._holders = self._find_holders()
        self.initialized: set[int] = set()
        self.offloaded: set[int] = set()
        self.blocks: dict[int, torch.Tensor] = {}  # by storage that stays on the device: its bytes there
        self._copied: dict[int, tuple[torch.Tensor, int]] = {}  # by storage: a constant, and its version
        self.swapped = sorted(swapped_persistent(program))
        self._records = records
        self.over = 0  # bytes that steps will take beyond the budget, as far as known before the first
        self.host, self._owners = host or HostBuffers(device), owners(lifted)
        self.host_bytes = self.host.reserve(program, self._owners, lifted.nbytes)
        self.streamed = self._reserve_streamed_state()  # by parameter and name of its state: host memory
        self.resume()

    def _updated(self) -> list[tuple[int, int, int]]:
        found = []
        for n, run in enumerate(self.lifted.runs):
            if isinstance(run, OptimizerUpdate):
                found += [(run.optimizer, n, p) for p in run.parameters]
        return found

    def resume(self) -> None:
        """Move persistent storages to where this program stores them.

        Those that go to the host move first, so that the device never holds more than it did or will.
        """
        watched, lifted = self.watched, self.lifted
        self.device.generators = generators(lifted)
        at_once = all(p.device == self.device.torch for p in watched.parameters)
        if at_once:
            self.host.pin()
        self.initialized.clear()
        self._copied.clear()
        with torch.no_grad():
            self._place_streamed_state()
            for to_host in (True, False):
                self._move(to_host)
            for tensor, s in zip(watched.outside, lifted.outside, strict=True):
                self.a[s] = flat(tensor)  # the user's own tensor stays where it is
            for s, tensor in lifted.constants.items():
                if self._relocate(s, tensor) is not tensor or s in self.swapped:  # the user may change it
                    self._copied[s] = tensor, _version(tensor)
        self.host.pin()  # not before parameters have left their old host memory
        self._compact()
        self.reserve_arena()
        self._places = [p.data_ptr() for p in watched.parameters]  # addresses of parameters between steps

    def _reserve_streamed_state(self) -> dict[int, dict[str, torch.Tensor]]:
        found: dict[int, dict[str, torch.Tensor]] = {}
        for run in self.lifted.runs:
            if isinstance(run, OptimizerUpdate) and run.streamed and run.parameters[0] not in found:
                n = run.parameters[0]
                found[n] = {name: self.host.place(("state", n, name, size), size) for name, size in run.streamed}
        return found

    def _place_streamed_state(self) -> None:
        """Move state that stays on the host there, from where another plan or the user had it."""
        for number, places in self.streamed.items():
            state = self.optimizers[self._owner[number]].state.get(self.watched.parameters[number], {})
            for name, place in places.items():
                if name in state and state[name].data_ptr() != place.data_ptr():
                    here = placed(place, layout_of(0, state[name]))
                    here.copy_(state[name])
                    state[name] = here

    def _move(self, to_host: bool) -> None:
        """Move parameters, buffers and optimizer state that are stored on the host, or those stored on the device."""
        for s, holder in self._holders.items():
            if (s in self.program.on_host) == to_host:
                holder.data = self._relocate(s, holder.data)
        for s, (number, name) in self._states.items():
            state = self.optimizers[self._owner[number]].state.get(self.watched.parameters[number])
            if (s in self.program.on_host) == to_host and state and name in state:
                state[name] = self._relocate(s, state[name])
                self.initialized.add(s)

    def _compact(self) -> None:
        """Put persistent storages that stay on the device next to one another, with space for state to be created.

        Scattered among temporary storages they would keep the allocator from reusing that memory.
        """
        staying = [
            s for s in (*self._holders, *self._states) if s not in self.program.on_host and s not in self.swapped
        ]
        staying = [s for s in staying if self.lifted.graph.storages[s].nbytes and self.lifted.nbytes[s]]
        there = [s for s in staying if self.a[s] is not None]
        self.blocks.update((s, flat(self.a[s])) for s in self._in_full_blocks(there))
        left = sorted((s for s in there if s not in self.blocks), key=lambda s: int(self.a[s].data_ptr()))
        left += [s for s in staying if self.a[s] is None]
        with torch.no_grad():
            while left:
                some = [left.pop(0)]
                while left and sum(self.lifted.nbytes[s] for s in (*some, left[0])) <= _BLOCK:
                    some.append(left.pop(0))
                for s, place in zip(
                    some, self.device.allocate_block([self.lifted.nbytes[s] for s in some]), strict=True
                ):
                    self.blocks[s] = place
                    if self.a[s] is not None:
                        place.copy_(self.bytes_of(s))
                        self.drop(s)
                        self.a[s] = place
                        self.expose(s, away=False)
                self.device.release_cached(self.budget)

    def _in_full_blocks(self, storages: Sequence[int]) -> list[int]:
        """Those storages whose blocks hold nothing else: memory in a block is lost until the whole block is freed."""
        inside: dict[tuple[int, int], list[int]] = {}
        for s in storages:
            if (block := self.device.block_of(self.a[s])) is not None:
                inside.setdefault(block, []).append(s)
        return [
            s
            for (begin, end), those in inside.items()
            if sum(self.lifted.nbytes[s] for s in those) + _LOST >= end - begin
            for s in those
        ]

    def reserve_arena(self) -> None:
        """Reserve a block of the planned size for temporary storages, and another one for updates."""
        self.over = 0
        if self.budget is None or self.device.reserved() is None:
            return
        self.offload()
        arena, updates = arena_bytes(self.program), self.lifted.other_bytes.get(UPDATES, 0)
        self.device.set_arena(arena, updates)
        # Present memory stays: persistent storages, the caller's tensors, and free parts of blocks with them.
        places = sum(value.dtype.itemsize * math.prod(value.size) for value in self.layouts) if self._records else 0
        will = (self.device.reserved() or 0) + arena + updates + small_bytes(self.program) + _SMALL_BLOCKS + places
        self.over = will - self.budget

    def offload(self) -> None:
        """Move storages that are swapped in every step to their host buffers, out of the arena."""
        self.settle()
        for s in self.swapped:
            if self.a[s] is not None:
                self.host_bytes[s].copy_(self.bytes_of(s))
                self.expose(s, away=True)
                self.drop(s)
                self.offloaded.add(s)

    def suspend(self) -> None:
        """Free all device memory except that of persistent storages that are stored there.

        Storages in a recording's memory go to their host buffers: the device may have no space for a second copy.
        """
        self.settle()
        self.offload()
        self.offloaded.clear()  # `resume` finds it in its host buffer
        self.a[:] = [None] * len(self.a)
        self.v[:] = [None] * len(self.v)
        self.blocks.clear()  # tensors in them keep them alive
        self.device.set_arena(0)

    def _relocate(self, s: int, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor's bytes to where the program stores them; the tensor there."""
        layout = layout_of(s, tensor)
        if s in self.program.on_host:
            here = placed(self.host_bytes[s], layout)
            if here.data_ptr() != tensor.data_ptr() or here.device != tensor.device:
                here.copy_(tensor)
            return here
        own = tensor.device == self.device.torch and not self.host.holds(self._owners[s], tensor)
        if own and tensor.untyped_storage().nbytes() == self.lifted.nbytes[s]:
            self.a[s] = tensor
            return tensor
        here = view(self.device.allocate(self.lifted.nbytes[s]), layout)
        here.copy_(tensor)
        self.a[s] = here
        return here

    def _find_holders(self) -> dict[int, torch.Tensor]:
        """By storage: the parameter or buffer whose data it is."""
        lifted = self.lifted
        held = dict(zip(lifted.parameters, self.watched.parameters, strict=True))
        return held | dict(zip(lifted.buffers, self.watched.buffers, strict=True))

    def expose(self, s: int, *, away: bool) -> None:
        """Point a parameter, buffer or state at its present memory, so that nothing else holds its device memory."""
        holder = self._holders.get(s)
        if holder is not None:
            tensor = holder.data
        elif s in self._states and s in self.initialized:
            number, name = self._states[s]
            state = self.optimizers[self._owner[number]].state[self.watched.parameters[number]]
            tensor = state[name]
        else:
            return
        layout = layout_of(s, tensor)
        seen = placed(self.host_bytes[s], layout) if away else view(self.a[s], layout)
        if holder is not None:
            holder.data = seen
        else:
            state[name] = seen

    def _detect_changes(self) -> None:
        """Take over data that the caller assigned to parameters, and changes of tensors that belong to no module.

        Copies of the step before may still use their host buffers, so this waits for them first.
        """
        parameters = zip(self.watched.parameters, self.lifted.parameters, self._places, strict=True)
        moved = [(p, s) for p, s, place in parameters if p.data_ptr() != place]
        outside = zip(self.watched.outside, self.lifted.outside, strict=True)
        moved += [(t, s) for t, s in outside if t.data_ptr() != self.a[s].data_ptr()]
        changed = [(s, tensor) for s, (tensor, version) in self._copied.items() if _version(tensor) != version]
        if moved or changed:
            self.settle()
        for p, s in moved:
            p.data = self._copy_into_place(s, p.data)
        for s, tensor in changed:
            self._copied[s] = tensor, _version(tensor)
            self._copy_into_place(s, tensor)

    def adopt_loaded_state(self) -> None:
        """Move state that was loaded into the optimizers to where the program stores it."""
        self.settle()
        with torch.no_grad():
            self._place_streamed_state()
        for s, (number, name) in self._states.items():
            p = self.watched.parameters[number]
            state = self.optimizers[self._owner[number]].state.get(p)
            if not state or name not in state:
                continue
            if s in self.program.on_host or (s in self.swapped and self.a[s] is not None):
                state[name] = self._copy_into_place(s, state[name])
            else:
                state[name] = self._relocate(s, state[name])
            self.initialized.add(s)

    def _copy_into_place(self, s: int, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor to where its storage already is."""
        layout = layout_of(s, tensor)
        here = placed(self.host_bytes[s], layout) if s in self.program.on_host else view(self.a[s], layout)
        with torch.no_grad():
            return here.copy_(tensor)

    def settle(self) -> None:
        """Wait until all persistent storages are where they are stored between steps."""
        self.device.settle()

    def detach(self) -> None:
        """Copy persistent storages out of the host buffers and out of a recording's memory.

        The host buffers are freed with the runner: the host need not have space for a second set.
        """
        self.settle()
        seated = self.swapped if self._records else ()
        with torch.no_grad():
            for s in (*self.program.on_host, *seated):
                if s in self._holders:
                    self._holders[s].data = self._holders[s].data.clone()
                elif s in self._states and s in self.initialized:
                    number, name = self._states[s]
                    state = self.optimizers[self._owner[number]].state[self.watched.parameters[number]]
                    state[name] = state[name].clone()

    def bytes_of(self, s: int) -> torch.Tensor:
        """A storage on the device as bytes. Some operations allocate more for a result than they fill."""
        return flat(self.a[s])[: self.lifted.nbytes[s]]

    def drop(self, s: int) -> None:
        """Forget the tensor and the views of a storage."""
        self.a[s] = None
        for number in self._of.get(s, ()):
            self.v[number] = None

    # -- called by generated code --------------------------------------------------------------------------------------


def owners(lifted: LiftedStep) -> dict[int, Any]:
    """By persistent storage: a key of what it belongs to, the same in all plans of the step.

    Returns
    -------
    dict
        ("parameter", its number), ("buffer", its number), ("state", the parameter's number, its name) and constants.
    """
    found: dict[int, Any] = {}
    for s, tensor in lifted.constants.items():
        found[s] = "constant", id(tensor), lifted.nbytes[s]
    found.update({s: ("outside", number) for number, s in enumerate(lifted.outside)})
    for number, of in lifted.states.items():
        found.update({s: ("state", number, name, lifted.nbytes[s]) for name, s in of.items()})
    for kind, storages in (("parameter", lifted.parameters), ("buffer", lifted.buffers)):
        found.update({s: (kind, number) for number, s in enumerate(storages)})
    return found


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)
