"""Running a program: instructions become straight lines of Python that call the operations and the device.

    runner = Runner(lifted, program, watched, optimizers, device)
    loss = runner(batch_tensors)

Parameters, buffers and what optimizers keep are moved to their homes when the runner is made: a parameter's `.data` is
then a view of host memory, or of the device's. Tensors of the step live in two lists: `a` has one tensor for every
storage that is on the device, `v` has the views of it that operations want. `suspend()` gives the device's memory back
and keeps the code, until `resume()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stretto.memory.addresses.fragmentation import arena_bytes, small_bytes
from stretto.memory.addresses.lifetimes import travelling
from stretto.memory.capture.lifted import UPDATES, Lifted, Ref, Update, generators
from stretto.memory.capture.traced_state import Watched
from stretto.memory.planner.program import HOLD, ROOM, Program

from .codegen import Writer
from .cuda_graphs import Recording
from .devices import Device
from .graph_segments import Segment
from .host_buffers import HostBuffers
from .optimizers import Counts, keeps_numbers
from .views import flat, laid_out, layout_of, placed, view

_BLOCK = 128 << 20  # bytes of persistent storages that are moved at a time
_LOST = 2 << 20  # bytes of a block that may be lost
_SMALL_BLOCKS = 8 << 20  # bytes of blocks for small tensors that are in use in part


class Runner:
    """Runs a program once per call. a: by storage, its tensor on the device; v: by value, its view. there: by storage,
    its bytes on the host. made: states that their optimizer has made by now. travels: what is at home on the device and
    away for a while."""

    def __init__(
        self,
        lifted: Lifted,
        program: Program,
        order: Sequence[int],
        watched: Watched,
        optimizers: Sequence[torch.optim.Optimizer],
        device: Device,
        watch: Callable[[int], None] | None = None,
        *,
        record: Sequence[Segment] | None = None,
        host: HostBuffers | None = None,
        budget: int | None = None,
    ) -> None:
        """order: by node of the program's graph, its number in `lifted`. watch: called after every instruction. record:
        the program in segments that the device records in the third step and plays from then on. host: host memory
        that is shared with other plans of the same step. budget: bytes on the device beyond which a recording is
        dropped."""
        self.lifted, self.program, self.watched, self.device = lifted, program, watched, device
        self.optimizers, self.watch, self.budget = list(optimizers), watch, budget
        self.runs = [lifted.runs[n] for n in order]
        self.a: list[Any] = [None] * len(lifted.graph.storages)
        self.v: list[Any] = [None] * len(lifted.values)
        self._of: dict[int, list[int]] = {}  # by storage: its values
        for number, value in enumerate(lifted.values):
            self._of.setdefault(value.storage, []).append(number)
        self.layouts = [lifted.values[self._of[s][0]] for s in lifted.inputs]  # the batch itself, before views of it
        self._states = {s: (number, name) for number, of in lifted.states.items() for name, s in of.items()}
        self._owner = {n: k for k, _, n in self._updated()}
        self.counts = {k: Counts(one) for k, one in enumerate(optimizers) if keeps_numbers(one)}
        self._holders = self._find_holders()
        self.made: set[int] = set()
        self._held: list[torch.Tensor | None] = []
        self._seats: dict[int, int] = {}  # by travelling storage: its address when a step begins
        self.parked: set[int] = set()
        self.blocks: dict[int, torch.Tensor] = {}  # by storage that stays on the device: its bytes there
        self._copied: dict[int, tuple[torch.Tensor, int]] = {}  # by storage: a constant, and how often it had changed
        self.travels = sorted(travelling(program))
        self._records = record is not None
        self.over = 0  # bytes that steps will take beyond the budget, as far as that is known before the first
        self.host, self._owners = host or HostBuffers(device), owners(lifted)
        self.there = self.host.reserve(program, self._owners, lifted.nbytes)
        self.streamed = self._streams()  # by parameter and name of its state: memory on the host where it stays
        self.resume()
        self._recording = None if record is None else Recording(self, record)
        self._parts = [] if record is not None else Writer(self).parts(program.instructions)

    def _updated(self) -> list[tuple[int, int, int]]:
        found = []
        for n, run in enumerate(self.lifted.runs):
            if isinstance(run, Update):
                found += [(run.optimizer, n, p) for p in run.parameters]
        return found

    # -- homes ---------------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Move persistent storages to where this program wants them. Those that go to the host go first, so that the
        device never holds more than it did or will."""
        watched, lifted = self.watched, self.lifted
        self.device.generators = generators(lifted)
        at_once = all(p.device == self.device.torch for p in watched.parameters)
        if at_once:
            self.host.pin()
        self.made.clear()
        self._copied.clear()
        with torch.no_grad():
            self._stream()
            for to_host in (True, False):
                self._move(to_host)
            for tensor, s in zip(watched.outside, lifted.outside, strict=True):
                self.a[s] = flat(tensor)  # the user's own: it stays where it is
            for s, tensor in lifted.constants.items():
                if self._home(s, tensor) is not tensor or s in self.travels:  # others may change it
                    self._copied[s] = tensor, _version(tensor)
        self.host.pin()  # not before parameters have left their old places on the host
        self._compact()
        self.take_arena()
        self._places = [p.data_ptr() for p in watched.parameters]  # where parameters are between steps

    def _streams(self) -> dict[int, dict[str, torch.Tensor]]:
        found: dict[int, dict[str, torch.Tensor]] = {}
        for run in self.lifted.runs:
            if isinstance(run, Update) and run.streamed and run.parameters[0] not in found:
                n = run.parameters[0]
                found[n] = {name: self.host.place(("state", n, name, size), size) for name, size in run.streamed}
        return found

    def _stream(self) -> None:
        """State that stays on the host goes there, wherever another plan or the user had it."""
        for number, places in self.streamed.items():
            state = self.optimizers[self._owner[number]].state.get(self.watched.parameters[number], {})
            for name, place in places.items():
                if name in state and state[name].data_ptr() != place.data_ptr():
                    here = placed(place, layout_of(0, state[name]))
                    here.copy_(state[name])
                    state[name] = here

    def _move(self, to_host: bool) -> None:
        """Move parameters, buffers and optimizer state that belong on the host, or those that belong on the device."""
        for s, holder in self._holders.items():
            if (s in self.program.on_host) == to_host:
                holder.data = self._home(s, holder.data)
        for s, (number, name) in self._states.items():
            state = self.optimizers[self._owner[number]].state.get(self.watched.parameters[number])
            if (s in self.program.on_host) == to_host and state and name in state:
                state[name] = self._home(s, state[name])
                self.made.add(s)

    def _compact(self) -> None:
        """Put persistent storages that stay on the device next to one another, with places for optimizer state that is
        yet to be made. Scattered among temporary storages they would keep the allocator from reusing that memory."""
        staying = [
            s for s in (*self._holders, *self._states) if s not in self.program.on_host and s not in self.travels
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
                for s, place in zip(some, self.device.block([self.lifted.nbytes[s] for s in some]), strict=True):
                    self.blocks[s] = place
                    if self.a[s] is not None:
                        place.copy_(self.bytes_of(s))
                        self.drop(s)
                        self.a[s] = place
                        self.show(s, away=False)
                self.device.give_back(self.budget)

    def _in_full_blocks(self, storages: Sequence[int]) -> list[int]:
        """Those of some storages whose blocks hold nothing else: what left a block is lost until the block is freed."""
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

    def take_arena(self) -> None:
        """Let temporary storages have a block of the size that was planned, and updates another one."""
        self.over = 0
        if self.budget is None or self.device.reserved() is None:
            return
        self.park()
        arena, updates = arena_bytes(self.program), self.lifted.besides.get(UPDATES, 0)
        self.device.set_arena(arena, updates)
        # What is there now stays: persistent storages, the caller's tensors, and what is free in blocks with them.
        places = sum(value.dtype.itemsize * math.prod(value.size) for value in self.layouts) if self._records else 0
        will = (self.device.reserved() or 0) + arena + updates + small_bytes(self.program) + _SMALL_BLOCKS + places
        self.over = will - self.budget

    def park(self) -> None:
        """Let storages that are away in a part of every step wait on the host, which has a place for them: they are in
        the arena otherwise, or keep memory from it."""
        self.settle()
        for s in self.travels:
            if self.a[s] is not None:
                self.there[s].copy_(self.bytes_of(s))
                self.show(s, away=True)
                self.drop(s)
                self.parked.add(s)

    def unpark(self) -> None:
        """Bring back what waits on the host; within the arena, to the places that the plan has for them. State that is
        yet to be made has a place, too."""
        if any(self.a[s] is None for s in self.travels):
            self.open()
            self._seats = {s: self.a[s].data_ptr() for s in self.travels}
        for s in sorted(self.parked):
            self.a[s].copy_(self.there[s][: self.lifted.nbytes[s]])
            self.show(s, away=False)
        self.parked.clear()

    def open(self) -> None:
        """Allocate the storages that travel, in the order of the plan; then those that are too small for a plan."""
        for what, which in self.program.opening:
            if what == HOLD:
                self.hold(which)
            elif what == ROOM:
                self.take(which)
        self.release()
        for s in self.travels:
            if self.a[s] is None:
                self.take(s)

    def reseat(self) -> None:
        """If a storage came back to another address than it had, all that travel wait on the host: the next step begins
        as it was planned."""
        if self.device.reserved() is not None and any(self.a[s].data_ptr() != at for s, at in self._seats.items()):
            self.park()

    def suspend(self) -> None:
        """Give back all memory on the device but that of persistent storages at home there. What sits in a recording's
        memory waits on the host, which has a place for it: there need not be space for a second copy on the device."""
        self.settle()
        self.park()
        self.parked.clear()  # it is found again where it waits
        self.a[:] = [None] * len(self.a)
        self.v[:] = [None] * len(self.v)
        self.blocks.clear()  # tensors that are there hold on to them
        self.device.set_arena(0)
        if self._recording is not None:
            self._recording.drop()

    def abandon(self) -> None:
        """End a step halfway, before anything persistent has changed. The next one begins as if there had been none."""
        self.release()
        self.suspend()
        self.resume()

    def _home(self, s: int, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor's bytes, at home; the tensor there."""
        layout = layout_of(s, tensor)
        if s in self.program.on_host:
            here = placed(self.there[s], layout)
            if here.data_ptr() != tensor.data_ptr() or here.device != tensor.device:
                here.copy_(tensor)
            return here
        own = tensor.device == self.device.torch and not self.host.holds(self._owners[s], tensor)
        if own and tensor.untyped_storage().nbytes() == self.lifted.nbytes[s]:
            self.a[s] = tensor
            return tensor
        here = view(self.device.room(self.lifted.nbytes[s]), layout)
        here.copy_(tensor)
        self.a[s] = here
        return here

    def _find_holders(self) -> dict[int, torch.Tensor]:
        """By storage: the parameter or buffer whose data it is."""
        lifted = self.lifted
        held = dict(zip(lifted.parameters, self.watched.parameters, strict=True))
        return held | dict(zip(lifted.buffers, self.watched.buffers, strict=True))

    def show(self, s: int, *, away: bool) -> None:
        """Let a parameter, buffer or state be seen where it is: nobody else may hold on to its room on the device."""
        holder = self._holders.get(s)
        if holder is not None:
            tensor = holder.data
        elif s in self._states and s in self.made:
            number, name = self._states[s]
            state = self.optimizers[self._owner[number]].state[self.watched.parameters[number]]
            tensor = state[name]
        else:
            return
        layout = layout_of(s, tensor)
        seen = placed(self.there[s], layout) if away else view(self.a[s], layout)
        if holder is not None:
            holder.data = seen
        else:
            state[name] = seen

    # -- a step --------------------------------------------------------------------------------------------------------

    def __call__(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        """The results of one step on the tensors of a batch."""
        self._look_around()
        # Casts are in the program: operations must not be cast once more.
        computing = torch.no_grad(), torch.autocast(self.device.torch.type, enabled=False)
        with computing[0], computing[1], self.device.within(self.budget):
            shown = self._called(batch) if self._recording is None else self._recording(batch)
        self._places = [p.data_ptr() for p in self.watched.parameters]
        return shown

    def _called(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        for s, tensor, layout in zip(self.lifted.inputs, batch, self.layouts, strict=True):
            self.a[s] = laid_out(tensor, layout, self.device.torch)
        with self.device.computing(), self.device.in_arena():
            self.unpark()
            for s in self.travels:
                self.show(s, away=True)
            for part in self._parts:
                part(self.a, self.v)
        for s in self.travels:
            self.show(s, away=False)
        self.reseat()
        shown = [self.shown(x, self.a) for x in self.lifted.shown]
        if self.device.retries:  # what is handed out must not keep memory of the arena
            shown = [x.clone() if isinstance(x, torch.Tensor) else x for x in shown]
        for s in (*self.lifted.inputs, *self.lifted.graph.results):
            if not self.lifted.graph.storages[s].lasting:
                self.drop(s)
        return shown

    def shown(self, x: Any, tensors: Any) -> Any:
        """A result, from the tensors of storages."""
        if not isinstance(x, Ref):
            return x
        value = self.lifted.values[x.value]
        tensor = view(tensors[value.storage], value)
        return tensor.clone() if self.lifted.graph.storages[value.storage].lasting else tensor

    def _look_around(self) -> None:
        """Others may have given parameters new data, or changed tensors that are not the modules'. Copies of the step
        before may still be reading and writing their homes."""
        parameters = zip(self.watched.parameters, self.lifted.parameters, self._places, strict=True)
        moved = [(p, s) for p, s, place in parameters if p.data_ptr() != place]
        outside = zip(self.watched.outside, self.lifted.outside, strict=True)
        moved += [(t, s) for t, s in outside if t.data_ptr() != self.a[s].data_ptr()]
        changed = [(s, tensor) for s, (tensor, version) in self._copied.items() if _version(tensor) != version]
        if moved or changed:
            self.settle()
        for p, s in moved:
            p.data = self._into_home(s, p.data)
        for s, tensor in changed:
            self._copied[s] = tensor, _version(tensor)
            self._into_home(s, tensor)

    def adopt(self) -> None:
        """State that was loaded into the optimizers goes to its home."""
        self.settle()
        with torch.no_grad():
            self._stream()
        for s, (number, name) in self._states.items():
            p = self.watched.parameters[number]
            state = self.optimizers[self._owner[number]].state.get(p)
            if not state or name not in state:
                continue
            if s in self.program.on_host or (s in self.travels and self.a[s] is not None):
                state[name] = self._into_home(s, state[name])
            else:
                state[name] = self._home(s, state[name])
            self.made.add(s)

    def _into_home(self, s: int, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor to where its storage already is."""
        layout = layout_of(s, tensor)
        here = placed(self.there[s], layout) if s in self.program.on_host else view(self.a[s], layout)
        with torch.no_grad():
            return here.copy_(tensor)

    def settle(self) -> None:
        """Wait until everything that lasts is at home."""
        self.device.settle()

    def leave(self) -> None:
        """Take what lasts out of the room on the host, which is given back once the runner is gone (there need not be
        as much again for the next one), and out of a recording's memory."""
        self.settle()
        seated = () if self._recording is None else self.travels
        with torch.no_grad():
            for s in (*self.program.on_host, *seated):
                if s in self._holders:
                    self._holders[s].data = self._holders[s].data.clone()
                elif s in self._states and s in self.made:
                    number, name = self._states[s]
                    state = self.optimizers[self._owner[number]].state[self.watched.parameters[number]]
                    state[name] = state[name].clone()

    def complete(self) -> bool:
        """Whether the optimizers have made all their state, as far as updates may have been left out so far."""
        left_out = [run for run in self.lifted.runs if isinstance(run, Update) and run.unless is not None]
        return all(s in self.made for run in left_out for n in run.parameters for s in self.lifted.states[n].values())

    def bytes_of(self, s: int) -> torch.Tensor:
        """A storage on the device as bytes. Some operations take more room for a result than they fill."""
        return flat(self.a[s])[: self.lifted.nbytes[s]]

    def drop(self, s: int) -> None:
        self.a[s] = None
        for number in self._of.get(s, ()):
            self.v[number] = None

    # -- what the lines call -------------------------------------------------------------------------------------------

    def hold(self, nbytes: int) -> None:
        """Allocate what nothing uses, so that the next allocation goes where it is wanted."""
        self._held.append(self.device.hold(nbytes))

    def unhold(self, which: int) -> None:
        """Free one of what is held: an operation allocates there."""
        self._held[which] = None

    def release(self) -> None:
        """Free what is held."""
        self._held.clear()

    def take(self, s: int) -> None:
        """Memory for a storage that comes from the host; for state that is not made yet, the place where it will be.
        It is as large as what an operation allocates for it, which may be more than it fills: so it was planned."""
        self.a[s] = self.device.room(max(self.lifted.nbytes[s], self._planned_bytes(s)))

    def _planned_bytes(self, s: int) -> int:
        planned, traced = self.program.graph.storages[s].nbytes, self.lifted.graph.storages[s].nbytes
        return planned if planned > traced else 0

    def begin(self, s: int) -> None:
        """Copy a storage from the host into its memory."""
        if self._exists(s):
            here = self.bytes_of(s)
            self.device.into(s, self.there[s][: len(here)], here)

    def into(self, s: int) -> None:
        """Take memory for a storage, and copy it from the host."""
        self.take(s)
        self.begin(s)

    def ready(self, s: int) -> None:
        """Wait for a copy from the host."""
        if self._exists(s):
            self.device.ready(s)

    def _exists(self, s: int) -> bool:
        """Whether a storage has a value: state has none before the first update, which may be left out."""
        return s not in self._states or s in self.made

    def out(self, s: int) -> None:
        """Copy a storage to the host."""
        if not self._exists(s):
            return
        here = self.bytes_of(s)
        self.device.out(s, here, self.there[s][: len(here)])


def owners(lifted: Lifted) -> dict[int, Any]:
    """By persistent storage: what it belongs to, said in a way that other plans of the same step share.

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
