"""`LocalStep`: the part of a step for one device, as a `LiftedStep` with its own numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch.utils import _pytree as pytree

from stretto.memory.capture.lifted import LiftedStep, OpCall, OptimizerUpdate, Ref, Value
from stretto.memory.capture.traced_state import TracedState
from stretto.memory.run.execute import Runner
from stretto.memory.run.persistent_storages import _version

from .mailbox import Mailbox
from .split import DevicePart, ReceiveNode, SendNode


@dataclass
class _Copy:
    """A tensor that devices only read, on a device that does not own it."""

    local: int  # its storage on this device
    source: torch.Tensor  # the tensor that was copied
    seen: tuple[int, int]  # its `_state` when it was last copied


class LocalStep:
    """The part of a step for one device, as a `LiftedStep` with its own numbers.

    Attributes
    ----------
    lifted : LiftedStep
        With the numbers of the part's storages.
    watched : TracedState
        Parameters and buffers that this device owns.
    leaves : list of int
        Which tensors of the batch it reads.
    """

    def __init__(
        self,
        whole: LiftedStep,
        part: DevicePart,
        watched: TracedState,
        mailbox: Mailbox,
        turns: Mapping[int, int],
        owned: set[int],
    ) -> None:
        self.whole, self.part, self._mailbox, self._turns = whole, part, mailbox, turns
        self._values: list[Value] = []
        self._known: dict[tuple[int, int], int] = {}  # by value of the whole and storage of the part
        # A storage that was received from another device has the number of the one that was sent.
        at = {w: s for s, w in enumerate(part.storages) if part.graph.maker[s] < 0}
        first: dict[int, int] = {}  # by storage of the whole: its first value
        for v, value in enumerate(whole.values):
            first.setdefault(value.storage, v)
        inputs = [(k, at[w]) for k, w in enumerate(whole.inputs) if w in at]
        self.leaves = [k for k, _ in inputs]
        for _, s in inputs:
            self._value(first[part.storages[s]], s)  # the first value of a storage has the layout of the batch
        kept = {}
        constants: dict[int, torch.Tensor] = {}
        self._copies: list[_Copy] = []
        for kind, tensors, numbers in (
            ("parameter", watched.parameters, whole.parameters),
            ("buffer", watched.buffers, whole.buffers),
        ):
            mine = [n for n, w in enumerate(numbers) if w in at and w not in owned]
            kept[kind] = {n: k for k, n in enumerate(mine)}
            for n, w in enumerate(numbers):
                if w in at and w in owned:
                    constants[at[w]] = self._copy(at[w], tensors[n])
        for w, tensor in whole.constants.items():
            if w in at:
                constants[at[w]] = self._copy(at[w], tensor)
        self._numbers = kept["parameter"]
        self.watched = TracedState(
            (),
            tuple(watched.parameters[n] for n in kept["parameter"]),
            (),
            tuple(watched.buffers[n] for n in kept["buffer"]),
            (),
        )
        states = {
            self._numbers[n]: {name: at[w] for name, w in of.items()}
            for n, of in whole.states.items()
            if n in self._numbers and all(w in at for w in of.values())
        }
        results = {part.storages[s]: s for s in part.graph.results}
        shown = [
            Ref(self._value(x.value, results[whole.values[x.value].storage]))
            for x in whole.shown
            if isinstance(x, Ref) and whole.values[x.value].storage in results
        ]
        runs = tuple(self._run(n) for n in range(len(part.graph.nodes)))
        self.lifted = LiftedStep(
            graph=part.graph,
            runs=runs,
            values=self._values,
            nbytes=[whole.nbytes[w] for w in part.storages],
            parameters=[at[whole.parameters[n]] for n in kept["parameter"]],
            buffers=[at[whole.buffers[n]] for n in kept["buffer"]],
            inputs=[s for _, s in inputs],
            outside=[],
            states=states,
            shown=shown,
            constants=constants,
        )

    def _copy(self, s: int, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor for this device alone: its memory may be overwritten while the storage is on the host."""
        self._copies.append(_Copy(s, tensor, _state(tensor)))
        return tensor.detach().clone()

    def refresh(self, runner: Runner) -> None:
        """Copy tensors again that were changed since, such as a frozen parameter that was loaded."""
        for one in self._copies:
            if (now := _state(one.source)) != one.seen:
                runner.settle()
                runner._copy_into_place(one.local, one.source.detach())
                one.seen = now

    # -- numbers of the part -------------------------------------------------------------------------------------------

    def _value(self, v: int, s: int) -> int:
        """The number of a value of the whole step, as a view of a storage of the part."""
        if (v, s) not in self._known:
            self._known[v, s] = self._add(replace(self.whole.values[v], storage=s))
        return self._known[v, s]

    def _add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _run(self, n: int) -> OpCall | OptimizerUpdate:
        """The call or update of a node of the part."""
        node = self.part.graph.nodes[n]
        if isinstance(node, SendNode):
            return OpCall(functools.partial(self._mailbox.post, node.pair), (self._bytes(node.reads[0]),), {}, (), True)
        if isinstance(node, ReceiveNode):
            made = self._bytes(node.makes[0]).value
            return OpCall(functools.partial(self._mailbox.take, node.pair), (), {}, (made,), True)
        number = self.part.nodes[n]
        before, run = self.whole.graph.nodes[number], self.whole.runs[number]
        old, new = (*before.reads, *before.makes, *before.writes), (*node.reads, *node.makes, *node.writes)
        at = dict(zip(old, new, strict=True))

        def local_value(v: int) -> int:
            return self._value(v, at[self.whole.values[v].storage]) if v >= 0 else v

        if isinstance(run, OptimizerUpdate):
            numbers = tuple(self._numbers[p] for p in run.parameters)
            return replace(
                run, parameters=numbers, values=tuple((local_value(p), local_value(grad)) for p, grad in run.values)
            )
        args, kwargs = pytree.tree_map(
            lambda x: Ref(local_value(x.value)) if isinstance(x, Ref) else x, (run.args, run.kwargs)
        )
        target = run.target
        if number in self._turns:
            target = functools.partial(self._mailbox.in_turn, self._turns[number], target)
        return OpCall(target, args, kwargs, tuple(local_value(v) for v in run.makes), run.single)

    def _bytes(self, s: int) -> Ref:
        """A storage as a tensor of bytes."""
        return Ref(self._add(Value(s, torch.uint8, (self.whole.nbytes[self.part.storages[s]],), (1,), 0)))


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """The version of a tensor (how often it was changed in place) and the address of its data."""
    return _version(tensor), tensor.data_ptr()
