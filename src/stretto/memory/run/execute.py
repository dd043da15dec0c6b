"""Run a program: its instructions become generated Python that calls the operations and the device.

    runner = Runner(lifted, program, order, watched, optimizers, device)
    loss = runner(batch_tensors)

The runner moves parameters, buffers and optimizer state to where the program stores them between steps: a parameter's
`.data` is then a view of host memory, or of device memory. Tensors of the step are in two lists: `a` has one tensor for
every storage that is on the device, `v` has the views of it that operations use. `suspend()` frees the device memory
and keeps the code, until `resume()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stretto.memory.capture.lifted import LiftedStep, OptimizerUpdate, Ref
from stretto.memory.capture.traced_state import TracedState
from stretto.memory.planner.instructions import ALLOCATE, HOLD, DeviceProgram

from .codegen import StepWriter
from .cuda_graphs import GraphRecording
from .devices import Device
from .graph_segments import Segment
from .host_buffers import HostBuffers
from .optimizers import OptimizerCounters, keeps_numbers
from .persistent_storages import PersistentStorages
from .views import in_layout, view


class Runner(PersistentStorages):
    """Runs a program once per call.

    Parameters
    ----------
    lifted : LiftedStep
        The traced step.
    program : DeviceProgram
        Its plan.
    order : sequence of int
        By node of the program's graph: its number in `lifted`.
    watched : TracedState
        Parameters, buffers and other tensors of the caller.
    optimizers : sequence
        They update the parameters.
    device : Device
        Where the program runs.
    watch : callable, optional
        Called after every instruction.
    record : sequence of Segment, optional
        The program in segments, which the device records in the third step and replays from then on.
    host : HostBuffers, optional
        Host memory that other plans of the same step share.
    budget : int, optional
        Bytes on the device beyond which a recording is dropped.

    Attributes
    ----------
    a : list
        By storage: its tensor on the device.
    v : list
        By value: its view.
    host_bytes : dict
        By storage: its bytes on the host.
    initialized : set of int
        State storages that their optimizer has created by now.
    swapped : list of int
        Persistent storages that are on the device between steps and away for a part of the step.
    """

    def __init__(
        self,
        lifted: LiftedStep,
        program: DeviceProgram,
        order: Sequence[int],
        watched: TracedState,
        optimizers: Sequence[torch.optim.Optimizer],
        device: Device,
        watch: Callable[[int], None] | None = None,
        *,
        record: Sequence[Segment] | None = None,
        host: HostBuffers | None = None,
        budget: int | None = None,
    ) -> None:
        super().__init__(
            lifted, program, watched, optimizers, device, records=record is not None, host=host, budget=budget
        )
        self.watch = watch
        self.runs = [lifted.runs[n] for n in order]
        self.counts = {k: OptimizerCounters(one) for k, one in enumerate(optimizers) if keeps_numbers(one)}
        self._start_addresses: dict[int, int] = {}  # by swapped storage: its address when a step begins
        self._held: list[torch.Tensor | None] = []
        self._recording = None if record is None else GraphRecording(self, record)
        self._parts = [] if record is not None else StepWriter(self).parts(program.instructions)

    def suspend(self) -> None:
        """Free all device memory except that of persistent storages that are stored there, and that of a recording."""
        super().suspend()
        if self._recording is not None:
            self._recording.drop()

    def abandon(self) -> None:
        """End a step before it has changed anything persistent. The next step begins as if this one had not run."""
        self.release()
        self.suspend()
        self.resume()

    def reload(self) -> None:
        """Bring offloaded storages back; within the arena, to their planned addresses.

        State that its optimizer has yet to create gets its memory, too.
        """
        if any(self.a[s] is None for s in self.swapped):
            self.allocate_swapped()
            self._start_addresses = {s: self.a[s].data_ptr() for s in self.swapped}
        for s in sorted(self.offloaded):
            self.a[s].copy_(self.host_bytes[s][: self.lifted.nbytes[s]])
            self.expose(s, away=False)
        self.offloaded.clear()

    def allocate_swapped(self) -> None:
        """Allocate the swapped persistent storages in the order of the plan; then those too small for the plan."""
        for what, which in self.program.opening:
            if what == HOLD:
                self.hold(which)
            elif what == ALLOCATE:
                self.allocate(which)
        self.release()
        for s in self.swapped:
            if self.a[s] is None:
                self.allocate(s)

    def offload_if_moved(self) -> None:
        """Offload all swapped storages if one came back to another address: the next step begins as planned."""
        if self.device.reserved() is not None and any(
            self.a[s].data_ptr() != at for s, at in self._start_addresses.items()
        ):
            self.offload()

    # -- a step --------------------------------------------------------------------------------------------------------

    def __call__(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        """The results of one step on the tensors of a batch."""
        self._detect_changes()
        # The program contains the casts: autocast must not add others.
        computing = torch.no_grad(), torch.autocast(self.device.torch.type, enabled=False)
        with computing[0], computing[1], self.device.within(self.budget):
            shown = self._called(batch) if self._recording is None else self._recording(batch)
        self._places = [p.data_ptr() for p in self.watched.parameters]
        return shown

    def _called(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        for s, tensor, layout in zip(self.lifted.inputs, batch, self.layouts, strict=True):
            self.a[s] = in_layout(tensor, layout, self.device.torch)
        with self.device.computing(), self.device.in_arena():
            self.reload()
            for s in self.swapped:
                self.expose(s, away=True)
            for part in self._parts:
                part(self.a, self.v)
        for s in self.swapped:
            self.expose(s, away=False)
        self.offload_if_moved()
        shown = [self.shown(x, self.a) for x in self.lifted.shown]
        if self.device.retries:  # results must not keep memory of the arena
            shown = [x.clone() if isinstance(x, torch.Tensor) else x for x in shown]
        for s in (*self.lifted.inputs, *self.lifted.graph.results):
            if not self.lifted.graph.storages[s].persistent:
                self.drop(s)
        return shown

    def shown(self, x: Any, tensors: Any) -> Any:
        """A result, from the tensors of storages."""
        if not isinstance(x, Ref):
            return x
        value = self.lifted.values[x.value]
        tensor = view(tensors[value.storage], value)
        return tensor.clone() if self.lifted.graph.storages[value.storage].persistent else tensor

    def complete(self) -> bool:
        """Whether the optimizers have created all their state, where updates may have been left out so far."""
        left_out = [run for run in self.lifted.runs if isinstance(run, OptimizerUpdate) and run.unless is not None]
        return all(
            s in self.initialized for run in left_out for n in run.parameters for s in self.lifted.states[n].values()
        )

    def hold(self, nbytes: int) -> None:
        """Allocate unused bytes, so that the next allocation gets its planned address."""
        self._held.append(self.device.hold(nbytes))

    def unhold(self, which: int) -> None:
        """Free one of the held allocations: an operation allocates there."""
        self._held[which] = None

    def release(self) -> None:
        """Free all held allocations."""
        self._held.clear()

    def allocate(self, s: int) -> None:
        """Allocate memory for a storage that comes from the host, or for state that is not created yet.

        It is as large as what an operation allocates for the storage, which may be more than it fills, as planned.
        """
        self.a[s] = self.device.allocate(max(self.lifted.nbytes[s], self._planned_bytes(s)))

    def _planned_bytes(self, s: int) -> int:
        planned, traced = self.program.graph.storages[s].nbytes, self.lifted.graph.storages[s].nbytes
        return planned if planned > traced else 0

    def begin_copy_in(self, s: int) -> None:
        """Copy a storage from the host into its memory."""
        if self._exists(s):
            here = self.bytes_of(s)
            self.device.copy_in(s, self.host_bytes[s][: len(here)], here)

    def copy_in(self, s: int) -> None:
        """Allocate memory for a storage, and copy it from the host."""
        self.allocate(s)
        self.begin_copy_in(s)

    def wait_in(self, s: int) -> None:
        """Wait for a copy from the host."""
        if self._exists(s):
            self.device.wait_in(s)

    def _exists(self, s: int) -> bool:
        """Whether a storage has a value: state has none before the first update, which may be left out."""
        return s not in self._states or s in self.initialized

    def copy_out(self, s: int) -> None:
        """Copy a storage to the host."""
        if not self._exists(s):
            return
        here = self.bytes_of(s)
        self.device.copy_out(s, here, self.host_bytes[s][: len(here)])
