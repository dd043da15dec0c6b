"""A step that is recorded: what runs between two updates is taken down once by the device and played from then on.

Python calls every operation of a plain step, which takes longer than many operations do. A GPU that plays a recording
(a CUDA graph) has all of them before it at once. Everything has the same address in every step: a batch is copied to
its place, results are copied from theirs, and rooms belong to the recording for as long as it exists.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from stretto.memory.addresses.fixed_addresses import ASIDE, BACK, orderly
from stretto.memory.addresses.fragmentation import arena_bytes
from stretto.memory.capture.lifted import UPDATES, Ref
from stretto.memory.planner.program import LEFT, OUT, Instruction
from stretto.plan.cost import show_bytes

from .codegen import Part, Writer
from .devices import NotRecorded
from .graph_segments import Segment
from .updates import Updater
from .views import flat

if TYPE_CHECKING:
    from .execute import Runner

_LOG = logging.getLogger("stretto.memory")
_WARM = 2  # steps before recording: optimizers make their state, libraries choose their algorithms
_AFTER_DROP = 1  # likewise for a step that was recorded before: a shape that comes once is not recorded for it

Act = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A segment, ready to run."""

    segment: Segment
    before: list[Part]
    inside: list[Part]
    after: list[Part]
    updater: Updater | None


class Recording:
    """The steps of a runner, in segments."""

    def __init__(self, runner: Runner, cut: Sequence[Segment]) -> None:
        self._runner, self._warm = runner, _WARM
        writer = Writer(runner)
        self._pieces = [
            _Piece(
                one,
                writer.parts(one.before, last=False),
                writer.parts(one.inside, last=one is cut[-1]),
                writer.parts(one.after, last=False),
                None if one.update is None else Updater(runner, runner.runs[one.update]),  # type: ignore[arg-type]
            )
            for one in cut
        ]
        self._given: list[torch.Tensor] | None = None  # where batches are put
        self._acts: list[Act] = []  # of a recorded step
        self._shown: dict[int, torch.Tensor] = {}  # by storage: where results are
        self._seats: dict[int, torch.Tensor] = {}  # by storage
        self._taken: Act | None = None
        self.failed = ""

    def __call__(self, batch: Sequence[torch.Tensor]) -> list[Any]:
        runner = self._runner
        with torch.no_grad():
            with runner.device.computing():
                self._put(batch)
                if not self._warm and not self._acts and not self.failed and runner.complete():
                    self._record()
                for act in self._acts:
                    act()
                if not self._acts:
                    self._run()
                    self._warm = max(0, self._warm - 1)
            # On the caller's own stream, which has waited: what is handed out is the caller's.
            return [runner.shown(x, self._shown).clone() if isinstance(x, Ref) else x for x in runner.lifted.shown]

    def _put(self, batch: Sequence[torch.Tensor]) -> None:
        if self._given is None:
            with self._runner.device.staying():
                self._given = [
                    torch.empty_strided(one.size, one.stride, dtype=one.dtype, device=self._runner.device.torch)
                    for one in self._runner.layouts
                ]
            for s, tensor in zip(self._runner.lifted.inputs, self._given, strict=True):
                self._runner.a[s] = tensor
        for place, tensor in zip(self._given, batch, strict=True):
            place.copy_(tensor, non_blocking=True)

    def _run(self) -> None:
        """One step, piece by piece, called."""
        runner = self._runner
        self._shown = {}
        with runner.device.in_arena():
            runner.unpark()
            for s in runner.travels:
                runner.show(s, away=True)
            for piece in self._pieces:
                for parts in (piece.before, piece.inside, piece.after):
                    self._follow(parts)
                if piece.updater is not None:
                    piece.updater()
        for s in runner.travels:
            runner.show(s, away=False)
        runner.reseat()
        self._end()

    def _end(self) -> None:
        """Let go of results, but for what is shown."""
        runner = self._runner
        results = self._results()
        self._shown = {s: runner.a[s] for s in results}
        for s in results:
            if not runner.lifted.graph.storages[s].lasting and s not in runner.lifted.inputs:
                runner.drop(s)

    def _record(self) -> None:
        """Take a step down. Nothing is computed meanwhile, so nothing is lost if it cannot be done."""
        runner, travels = self._runner, set(self._runner.travels)
        self._shown = {}
        acts: list[Act] = []
        try:
            runner.park()
            runner.device.set_arena(0)  # what the steps before took; the recording has memory of its own
            runner.device.begin_recording(self._piece(), runner.lifted.besides.get(UPDATES, 0))
            self._take_seats()
            # What is held here is not given back while recording: nothing that is ever away.
            held = [None if s in travels else tensor for s, tensor in enumerate(runner.a)], list(runner.v)
            for s in travels:
                runner.show(s, away=True)
            try:
                for piece in self._pieces:
                    acts += self._taken_down(piece)
                if travels:
                    acts.append(self._sit_down())
                self._check_budget()
            except (NotRecorded, torch.OutOfMemoryError):
                runner.a[:], runner.v[:] = held
                raise
            finally:
                for s in travels:
                    runner.a[s] = self._seats[s]
                    runner.show(s, away=False)
        except (NotRecorded, torch.OutOfMemoryError) as error:
            _LOG.warning("the step is not recorded, Python calls its operations: %s", error)
            self.failed = str(error)
            acts.clear()
            self._give_up()
            runner.device.watch_peak()  # what the attempt took is given back
            return
        self._end()
        self._acts = acts

    def _piece(self) -> int:
        """Bytes from which all of the recording is cut."""
        runner, need = self._runner, arena_bytes(self._runner.program)
        reserved, updates = runner.device.reserved(), runner.lifted.besides.get(UPDATES, 0)
        if reserved is not None and runner.budget is not None and reserved + need + updates > runner.budget:
            raise NotRecorded(f"beside {show_bytes(reserved + updates)} on the device it needs {show_bytes(need)}")
        return need

    def _check_budget(self) -> None:
        """Refuse a recording with which the device has given out more than the budget."""
        reserved, budget = self._runner.device.reserved(), self._runner.budget
        if reserved is not None and budget is not None and reserved > budget:
            raise NotRecorded(f"with it {show_bytes(reserved)} are in use on the device, more than the budget")

    def _give_up(self) -> None:
        """Give the memory of the recording back; what sits there waits on the host."""
        runner = self._runner
        runner.park()
        self._seats, self._taken = {}, None
        runner.device.end_recording()
        runner.take_arena()

    def drop(self) -> None:
        """Forget the recording and give its memory back; nothing of the runner's is in it any more. The step is
        recorded again when it goes on."""
        recorded = bool(self._acts)
        self._acts, self._shown, self._seats = [], {}, {}
        self._given = self._taken = None
        self._warm = _AFTER_DROP if recorded else max(self._warm, _AFTER_DROP)
        if recorded:
            self._runner.device.end_recording()

    def _taken_down(self, piece: _Piece) -> list[Act]:
        device = self._runner.device
        acts = [self._wait(one) for one in self._real(piece.segment.before)]
        if piece.segment.inside:
            acts.append(device.recorded(functools.partial(self._follow, piece.inside)))
        acts += [self._copy(one) for one in self._real(piece.segment.after)]
        if piece.updater is not None:
            acts.append(_fixed(piece.updater))
        return acts

    def _take_seats(self) -> None:
        """Give what travels a seat in the memory of the recording."""
        runner = self._runner
        if not runner.travels:
            return

        try:
            self._taken = runner.device.recorded(runner.open)  # held: it holds the seats
        except NotRecorded:
            for s in runner.travels:  # they wait on the host; what was allocated for them holds nothing
                runner.drop(s)
            raise
        for s in runner.travels:
            runner.a[s].copy_(runner.there[s][: runner.lifted.nbytes[s]])
            self._seats[s] = runner.device.alias(runner.a[s], self._taken)  # parameters may outlive the step
        runner.parked.clear()

    def _sit_down(self) -> Act:
        """Everything that travelled goes back to its seat; results step aside first, they may sit in one."""
        runner, travels = self._runner, self._runner.travels
        seats = [self._seats[s] for s in travels]
        here = [flat(runner.a[s]) for s in travels]
        moves = orderly([_span(one) for one in here], [_span(one) for one in seats])
        # What is put aside is the recording's no more: its own memory may be somebody's seat.
        shown = {s: flat(runner.a[s]) for s in self._results() if s not in travels}
        with runner.device.staying():
            aside = {k: torch.empty_like(here[k]) for what, k in moves if what == ASIDE}
            apart = {s: torch.empty_like(one) for s, one in shown.items()}

        def move() -> None:
            for s, one in shown.items():
                apart[s].copy_(one)
            for what, k in moves:
                source, target = (aside[k] if what == BACK else here[k]), (aside[k] if what == ASIDE else seats[k])
                target.copy_(source)

        act = runner.device.recorded(move)
        for s, one in apart.items():
            if not runner.lifted.graph.storages[s].lasting:
                runner.a[s] = one
        return act

    def _results(self) -> set[int]:
        """Storages of what a step returns."""
        lifted = self._runner.lifted
        return {lifted.values[x.value].storage for x in lifted.shown if isinstance(x, Ref)}

    def _follow(self, parts: list[Part]) -> None:
        for part in parts:
            part(self._runner.a, self._runner.v)

    def _real(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """Those about storages that have any bytes."""
        return [one for one in instructions if self._runner.lifted.graph.storages[one[1]].nbytes]

    def _wait(self, instruction: Instruction) -> Act:
        (what, s), device = instruction, self._runner.device
        return (lambda: device.left(s)) if what == LEFT else (lambda: device.ready(s))

    def _copy(self, instruction: Instruction) -> Act:
        what, s = instruction
        device, here = self._runner.device, self._runner.bytes_of(s)
        here, there = device.alias(here), self._runner.there[s][: len(here)]
        return (lambda: device.out(s, here, there)) if what == OUT else (lambda: device.into(s, there, here))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def _fixed(updater: Updater) -> Act:
    hands = updater.hands(fixed=True)
    return lambda: updater.apply(hands)
