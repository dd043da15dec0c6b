"""Updates of a lifted step: parameters that optimizers change in place, small ones together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stretto.memory.addresses.arena import ALIGNED
from stretto.memory.planner.graph import Node, Storage

from .lift_values import ValueLifter
from .lifted import OpCall, OptimizerUpdate, Ref, refs
from .trace_step import TracedStep


class UpdateLifter(ValueLifter):
    """Collects the nodes that write to parameters, buffers and optimizer state.

    Parameters
    ----------
    traced : TracedStep
        The step.
    states : callable
        states(optimizer, parameter) returns {name: bytes} of the state that the optimizer keeps for a parameter.
    bucket : int
        Bytes of small parameters that are updated together.
    chunk_bytes : sequence of int
        By optimizer: bytes of a parameter that are updated at a time; 0: the whole parameter.
    batch_held : bool
        Whether the caller holds the batch.
    stream_above : int
        Bytes of a parameter above which its optimizer state stays on the host; 0: of no parameter.
    """

    def __init__(
        self,
        traced: TracedStep,
        states: Callable[[int, int], dict[str, int]],
        bucket: int,
        chunk_bytes: Sequence[int],
        batch_held: bool,
        stream_above: int,
    ) -> None:
        super().__init__(traced, batch_held)
        self.states_of, self.bucket = states, bucket
        self.chunk_bytes, self.stream_above = chunk_bytes, stream_above
        self.nodes: list[Node] = []
        self.runs: list[OpCall | OptimizerUpdate] = []
        self.in_rows: dict[Any, Any] = {}  # by FX node of an update: the operation that computes its gradient
        self.gradients: dict[int, OpCall] = {}  # by value of a gradient: the call that computes it in rows
        self.streams: dict[int, tuple[tuple[str, int], ...]] = {}  # by parameter: the state that stays on the host
        self.states: dict[int, dict[str, int]] = {}
        self.pending: dict[int, list[tuple[int, int, int]]] = {}  # by call: (parameter, its value, its gradient)
        self.given: list[int] = []  # values of parameters, buffers and batch
        self.unless: dict[int, int] = {}  # by call: the value that decides whether its updates are skipped
        self.read: list[int] = []  # storages that Python reads; persistent storages change only after these reads
        self.version: dict[int, int] = {}  # by storage of a parameter: how often it was updated

    def _write_to(self, into: int, source: int, name: str) -> None:
        """Add a node that copies a value into a persistent one."""
        self._flush()
        target, origin = self.values[into].storage, self.values[source].storage
        self.runs.append(OpCall(torch.ops.aten.copy_.default, (Ref(into), Ref(source)), {}, (), True))
        reads = tuple(dict.fromkeys((origin, *self.read)))
        self.nodes.append(Node(name, reads, (), (target,), recomputable=False, ordered=False, phase="end"))

    def _update(self, node: Any) -> None:
        param, grad, *found, call, place = node.args
        if found:
            self.unless[call] = self.value_of[found[0]]
        number = self.traced.updates[call][1][place]
        value = self._write_back(number, self.value_of[param])
        if (maker := self.in_rows.get(node)) is not None:
            self.value_of[grad], _ = self._tensor_value(maker.meta["val"], "gradient", maker.name, movable=False)
            args = self._ref(tuple(maker.args))
            self.gradients[self.value_of[grad]] = OpCall(maker.target, args, {}, (), True)
        self.pending.setdefault(call, []).append((number, value, self.value_of[grad]))
        self._bind(node, value)
        storage = self.values[value].storage
        self.version[storage] = self.version.get(storage, 0) + 1

    def _write_back(self, number: int, value: int) -> int:
        """The value of a parameter that is about to be updated.

        The step may have changed the parameter in place since its last update, as SAM and `max_norm` do. The changed
        value is a new tensor of the trace, so a node writes it to the parameter first.
        """
        own = self.given[number]
        target = self.values[own].storage
        if self.values[value].storage == target:
            return value
        self._write_to(own, value, f"write {self.storages[target].name}")
        self.version[target] = self.version.get(target, 0) + 1
        return own

    def _is_copy_of_update(self, node: Any) -> bool:
        into, source = (self.value_of.get(x) for x in node.args[:2])
        if (
            isinstance(into, int)
            and isinstance(source, int)
            and (
                self.values[into].storage == self.values[source].storage
                and self.storages[self.values[into].storage].kind == "parameter"
            )
        ):
            self._bind(node, source)
            return True
        return False

    def _flush(self) -> None:
        """Add nodes for the collected updates: small parameters together, in the order of their gradients."""
        maker = {s: n for n, one in enumerate(self.nodes) for s in one.makes} if self.pending else {}
        for call, all_of in self.pending.items():
            optimizer = self.traced.updates[call][0]
            bucket: list[tuple[int, int, int]] = []
            size = 0
            for item in sorted(all_of, key=lambda one: maker.get(self.values[one[2]].storage, -1)):
                nbytes = self.nbytes[self.values[item[1]].storage]
                if bucket and size + nbytes > self.bucket:
                    self._add_update(optimizer, bucket, self.unless.get(call))
                    bucket, size = [], 0
                bucket.append(item)
                size += nbytes
            if bucket:
                self._add_update(optimizer, bucket, self.unless.get(call))
        self.pending.clear()

    def _is_streamed(self, optimizer: int, items: list[tuple[int, int, int]]) -> bool:
        """Whether the state of a parameter stays on the host, because its update would need too much memory."""
        value = self.values[items[0][1]]
        nbytes, rows = self.nbytes[value.storage], max(zip(value.stride, value.size, strict=True), default=(0, 1))[1]
        able = len(items) == 1 and bool(self.chunk_bytes) and 0 < self.chunk_bytes[optimizer] < nbytes
        able = able and nbytes <= rows * self.chunk_bytes[optimizer]  # a chunk holds at least one row
        return able and 0 < self.stream_above < nbytes and items[0][0] not in self.states

    def _add_update(self, optimizer: int, items: list[tuple[int, int, int]], unless: int | None) -> None:
        first = items[0][0]
        if self._is_streamed(optimizer, items):
            self.streams[first], self.states[first] = tuple(self.states_of(optimizer, first).items()), {}
        reads: list[int] = [*self.read] if unless is None else [*self.read, self.values[unless].storage]
        writes: list[int] = []
        for number, value, grad in items:
            if number not in self.states:
                self.states[number] = {}
                for name, nbytes in self.states_of(optimizer, number).items():
                    self.states[number][name] = len(self.storages)
                    self.storages.append(
                        Storage(-(-nbytes // ALIGNED) * ALIGNED, "state", f"{name} of parameter {number}")
                    )
                    self.nbytes.append(nbytes)
            changed = [self.values[value].storage, *self.states[number].values()]
            made = self.gradients.get(grad)
            if made is None:
                reads.append(self.values[grad].storage)
            else:
                reads += [self.values[ref.value].storage for ref in refs(made.args)]
            reads += changed
            writes += changed
        label = f"update of {len(items)} parameters" if len(items) > 1 else self.storages[writes[0]].name
        numbers = tuple(number for number, _, _ in items)
        chunk = self.chunk_bytes[optimizer] if self.chunk_bytes and len(items) == 1 else 0
        values = tuple((value, grad) for _, value, grad in items)
        streamed, in_rows = self.streams.get(first, ()), self.gradients.get(items[0][2])
        self.runs.append(
            OptimizerUpdate(optimizer, numbers, values, chunk, unless=unless, streamed=streamed, gradient=in_rows)
        )
        self.nodes.append(
            Node(
                f"update {label}",
                tuple(dict.fromkeys(reads)),
                (),
                tuple(dict.fromkeys(writes)),
                recomputable=False,
                ordered=False,
                phase="update",
            )
        )
