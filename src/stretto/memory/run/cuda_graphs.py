"""Record a step as CUDA graphs and replay them: one graph for the operations between two updates.

Python calls every operation of a plain step, which takes longer than many operations do. A GPU that replays a CUDA
graph has all of them queued at once. Everything has the same address in every step: a batch is copied to its buffer,
results are copied from theirs, and the memory belongs to the recording for as long as it exists.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stretto.memory.addresses.fixed_addresses import FROM_BUFFER, TO_BUFFER, order_moves
from stretto.memory.addresses.fragmentation import arena_bytes
from stretto.memory.capture.lifted import UPDATES, Ref
from stretto.memory.planner.instructions import OUT, WAIT_OUT, Instruction
from stretto.text import show_bytes

from .codegen import Part, StepWriter
from .devices import NotRecorded
from .graph_segments import Segment
from .runner_state import RunnerState
from .updates import Updater
from .views import flat

_LOG = logging.getLogger("stretto.memory")
_WARM = 2  # steps before recording: optimizers make their state, libraries choose their algorithms
_AFTER_DROP = 1  # the same for a step that was recorded before: a shape that occurs once is not recorded

Act = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class _GraphSegment:
    """A segment, ready to run."""

    segment: Segment
    before: list[Part]
    inside: list[Part]
    after: list[Part]
    updater: Updater | None


class GraphRecording:
    """The steps of a runner, in segments."""

    def __init__(self, runner: RunnerState, cut: Sequence[Segment]) -> None:
        self._runner, self._warm = runner, _WARM
        writer = StepWriter(runner)
        self._segments = [
            _GraphSegment(
                one,
                writer.parts(one.before, last=False),
                writer.parts(one.inside, last=one is cut[-1]),
                writer.parts(one.after, last=False),
                None if one.update is None else Updater(runner, runner.runs[one.update]),
            )
            for one in cut
        ]
        self._batch_buffers: list[torch.Tensor] | None = None  # buffers for the batch
        self._actions: list[Act] = []  # of a recorded step
        self._shown: dict[int, torch.Tensor] = {}  # by storage: results
        self._fixed_addresses: dict[int, torch.Tensor] = {}  # by storage
        self._fixed_memory: Act | None = None
        self.failed = ""

    def __call__(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        runner = self._runner
        with torch.no_grad():
            with runner.device.computing():
                self._copy_batch(batch)
                if not self._warm and not self._actions and not self.failed and runner.complete():
                    self._record()
                for action in self._actions:
                    action()
                if not self._actions:
                    self._run()
                    self._warm = max(0, self._warm - 1)
            # On the caller's own stream, which has waited: the results belong to the caller.
            return [runner.shown(x, self._shown).clone() if isinstance(x, Ref) else x for x in runner.lifted.shown]

    def _copy_batch(self, batch: Sequence[torch.Tensor]) -> None:
        if self._batch_buffers is None:
            with self._runner.device.persistent_stream():
                self._batch_buffers = [
                    torch.empty_strided(one.size, one.stride, dtype=one.dtype, device=self._runner.device.torch)
                    for one in self._runner.layouts
                ]
            for s, tensor in zip(self._runner.lifted.inputs, self._batch_buffers, strict=True):
                self._runner.a[s] = tensor
        for place, tensor in zip(self._batch_buffers, batch, strict=True):
            place.copy_(tensor, non_blocking=True)

    def _run(self) -> None:
        """Run one step segment by segment, by calls."""
        runner = self._runner
        self._shown = {}
        with runner.device.in_arena():
            runner.reload()
            for s in runner.swapped:
                runner.expose(s, away=True)
            for prepared in self._segments:
                for parts in (prepared.before, prepared.inside, prepared.after):
                    self._call_parts(parts)
                if prepared.updater is not None:
                    prepared.updater()
        for s in runner.swapped:
            runner.expose(s, away=False)
        runner.offload_if_moved()
        self._release_results()

    def _release_results(self) -> None:
        """Release results, except those that the step returns."""
        runner = self._runner
        results = self._results()
        self._shown = {s: runner.a[s] for s in results}
        for s in results:
            if not runner.lifted.graph.storages[s].persistent and s not in runner.lifted.inputs:
                runner.drop(s)

    def _record(self) -> None:
        """Record a step. Nothing is computed meanwhile, so nothing is lost if recording fails."""
        runner, swapped = self._runner, set(self._runner.swapped)
        self._shown = {}
        actions: list[Act] = []
        try:
            runner.offload()
            runner.device.set_arena(0)  # memory of the steps before; the recording has its own
            runner.device.begin_recording(self._pool_bytes(), runner.lifted.other_bytes.get(UPDATES, 0))
            self._allocate_fixed()
            # Tensors in this list stay allocated while recording, so it has none that is ever swapped.
            held = [None if s in swapped else tensor for s, tensor in enumerate(runner.a)], list(runner.v)
            for s in swapped:
                runner.expose(s, away=True)
            try:
                for prepared in self._segments:
                    actions += self._record_segment(prepared)
                if swapped:
                    actions.append(self._restore_addresses())
                self._check_budget()
            except (NotRecorded, torch.OutOfMemoryError):
                runner.a[:], runner.v[:] = held
                raise
            finally:
                for s in swapped:
                    runner.a[s] = self._fixed_addresses[s]
                    runner.expose(s, away=False)
        except (NotRecorded, torch.OutOfMemoryError) as error:
            _LOG.warning("the step is not recorded as a CUDA graph, so Python calls its operations: %s", error)
            self.failed = str(error)
            actions.clear()
            self._drop_attempt()
            runner.device.reset_peak()  # the memory of the attempt is free again
            return
        self._release_results()
        self._actions = actions

    def _pool_bytes(self) -> int:
        """Bytes of the memory pool for the whole recording."""
        runner, need = self._runner, arena_bytes(self._runner.program)
        reserved, updates = runner.device.reserved(), runner.lifted.other_bytes.get(UPDATES, 0)
        if reserved is not None and runner.budget is not None and reserved + need + updates > runner.budget:
            raise NotRecorded(
                f"the recording needs {show_bytes(need)} beside {show_bytes(reserved + updates)} in use on the device, "
                "more than the budget"
            )
        return need

    def _check_budget(self) -> None:
        """Refuse a recording with which the device has reserved more than the budget."""
        reserved, budget = self._runner.device.reserved(), self._runner.budget
        if reserved is not None and budget is not None and reserved > budget:
            raise NotRecorded(f"with it {show_bytes(reserved)} are in use on the device, more than the budget")

    def _drop_attempt(self) -> None:
        """Free the memory of a failed recording; storages in it go to their host buffers."""
        runner = self._runner
        runner.offload()
        self._fixed_addresses, self._fixed_memory = {}, None
        runner.device.end_recording()
        runner.reserve_arena()

    def drop(self) -> None:
        """Forget the recording and free its memory; no storage of the runner is in it any more.

        The step is recorded again when training continues.
        """
        recorded = bool(self._actions)
        self._actions, self._shown, self._fixed_addresses = [], {}, {}
        self._batch_buffers = self._fixed_memory = None
        self._warm = _AFTER_DROP if recorded else max(self._warm, _AFTER_DROP)
        if recorded:
            self._runner.device.end_recording()

    def _record_segment(self, prepared: _GraphSegment) -> list[Act]:
        """Record one segment; the actions that replay it."""
        device = self._runner.device
        actions = [self._wait(one) for one in self._nonempty(prepared.segment.before)]
        if prepared.segment.inside:
            actions.append(device.recorded(functools.partial(self._call_parts, prepared.inside)))
        actions += [self._copy(one) for one in self._nonempty(prepared.segment.after)]
        if prepared.updater is not None:
            actions.append(_with_fixed_memory(prepared.updater))
        return actions

    def _allocate_fixed(self) -> None:
        """Allocate swapped persistent storages at fixed addresses in the memory of the recording."""
        runner = self._runner
        if not runner.swapped:
            return

        try:
            self._fixed_memory = runner.device.recorded(runner.allocate_swapped)  # keeps the fixed addresses allocated
        except NotRecorded:
            for s in runner.swapped:  # their host buffers have the values
                runner.drop(s)
            raise
        for s in runner.swapped:
            runner.a[s].copy_(runner.host_bytes[s][: runner.lifted.nbytes[s]])
            # An alias that keeps the memory alive: parameters may outlive the step.
            self._fixed_addresses[s] = runner.device.alias(runner.a[s], self._fixed_memory)
        runner.offloaded.clear()

    def _restore_addresses(self) -> Act:
        """Copy every swapped storage back to its fixed address, after results, which may occupy one, are copied out."""
        runner, swapped = self._runner, self._runner.swapped
        targets = [self._fixed_addresses[s] for s in swapped]
        here = [flat(runner.a[s]) for s in swapped]
        moves = order_moves([_span(one) for one in here], [_span(one) for one in targets])
        # Buffers are outside the recording's memory, which may be a fixed address of another storage.
        shown = {s: flat(runner.a[s]) for s in self._results() if s not in swapped}
        with runner.device.persistent_stream():
            buffers = {k: torch.empty_like(here[k]) for what, k in moves if what == TO_BUFFER}
            result_buffers = {s: torch.empty_like(one) for s, one in shown.items()}

        def move() -> None:
            for s, one in shown.items():
                result_buffers[s].copy_(one)
            for what, k in moves:
                source, target = (
                    (buffers[k] if what == FROM_BUFFER else here[k]),
                    (buffers[k] if what == TO_BUFFER else targets[k]),
                )
                target.copy_(source)

        action = runner.device.recorded(move)
        for s, one in result_buffers.items():
            if not runner.lifted.graph.storages[s].persistent:
                runner.a[s] = one
        return action

    def _results(self) -> set[int]:
        """Storages of the results of a step."""
        lifted = self._runner.lifted
        return {lifted.values[x.value].storage for x in lifted.shown if isinstance(x, Ref)}

    def _call_parts(self, parts: list[Part]) -> None:
        for part in parts:
            part(self._runner.a, self._runner.v)

    def _nonempty(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """Instructions on storages that are not empty."""
        return [one for one in instructions if self._runner.lifted.graph.storages[one[1]].nbytes]

    def _wait(self, instruction: Instruction) -> Act:
        (what, s), device = instruction, self._runner.device
        return (lambda: device.wait_out(s)) if what == WAIT_OUT else (lambda: device.wait_in(s))

    def _copy(self, instruction: Instruction) -> Act:
        what, s = instruction
        device, here = self._runner.device, self._runner.bytes_of(s)
        here, there = device.alias(here), self._runner.host_bytes[s][: len(here)]
        return (lambda: device.copy_out(s, here, there)) if what == OUT else (lambda: device.copy_in(s, there, here))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def _with_fixed_memory(updater: Updater) -> Act:
    operands = updater.operands(fixed=True)
    return lambda: updater.apply(operands)
