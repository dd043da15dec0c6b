"""Update parameters that are on the device, with their optimizer's own step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from stretto.memory.capture.lifted import OptimizerUpdate, Ref, Value
from stretto.memory.chunk.embedding_rows import rows

from .optimizers import PartialUpdates, Rows
from .runner_state import RunnerState
from .views import flat, in_place, layout_of, placed, view


@dataclass(frozen=True, slots=True, eq=False)
class ParameterUpdate:
    """A parameter and the operands of its update."""

    parameter: torch.nn.Parameter
    data: torch.Tensor | None  # None if the parameter is always at the same address
    grad: torch.Tensor | None
    # (name, storage, tensor) of its state; the tensor is None if it is not created yet or never moves
    kept: list[tuple[str, int, torch.Tensor | None]]
    unless: torch.Tensor | None = None  # nonzero if the update is to be left out
    rows: Rows | None = None  # gives some rows of the gradient, where `grad` is None


class Updater:
    """Runs an optimizer for some parameters.

    updater()               uses the runner's present tensors
    updater.apply(operands) uses those of `operands(fixed=True)`, whose memory is the same in every step
    """

    def __init__(self, runner: RunnerState, update: OptimizerUpdate) -> None:
        self.runner, self.update = runner, update
        self.optimizer = runner.optimizers[update.optimizer]
        self.parameters = [runner.watched.parameters[n] for n in update.parameters]
        self._partial_step = PartialUpdates(self.optimizer, self.parameters, runner.counts.get(update.optimizer))
        self._not_resident = runner.program.on_host | set(runner.swapped)
        self._host_views: dict[int, torch.Tensor] = {}  # by storage: its view on the host

    def __call__(self) -> None:
        states = self.runner.lifted.states
        first = any(s not in self.runner.initialized for n in self.update.parameters for s in states[n].values())
        if first and len(self.parameters) > 1 and self.update.optimizer not in self.runner.counts:
            for alone in self._one_by_one():
                alone()
        else:
            self.apply(self.operands(), fixed=False)

    def _one_by_one(self) -> Iterator[Updater]:
        """An update of each parameter alone: an optimizer that creates the state of many at once takes much memory."""
        update = self.update
        for number, value, read in zip(update.parameters, update.values, update.read, strict=True):
            yield Updater(self.runner, replace(update, parameters=(number,), values=(value,), read=(read,)))

    def operands(self, *, fixed: bool = False) -> list[ParameterUpdate]:
        """The operands of the update. fixed: as aliases that own no memory, for memory that is reused meanwhile."""
        runner, values = self.runner, self.runner.lifted.values

        def seen(s: int, value: Value) -> torch.Tensor:
            return view(runner.device.alias(flat(runner.a[s])), value) if fixed else view(runner.a[s], value)

        found = None
        if self.update.unless is not None:
            decides = values[self.update.unless]
            found = seen(decides.storage, decides)
        operands = []
        for (value, grad), p, number in zip(self.update.values, self.parameters, self.update.parameters, strict=True):
            own, gradient = values[value], values[grad]
            state = self.optimizer.state[p]
            kept: list[tuple[str, int, torch.Tensor | None]] = []
            for name, s in runner.lifted.states[number].items():
                there = s in runner.initialized and s in self._not_resident
                kept.append((name, s, seen(s, layout_of(s, state[name])) if there else None))
            data = seen(own.storage, own) if own.storage in self._not_resident else None
            made = self.update.gradient
            if made is None:
                operands.append(ParameterUpdate(p, data, seen(gradient.storage, gradient), kept, found))
                continue
            args = [seen(values[x.value].storage, values[x.value]) if isinstance(x, Ref) else x for x in made.args]
            operands.append(ParameterUpdate(p, data, None, kept, found, partial(rows, made.target, args)))
        return operands

    def apply(self, operands: list[ParameterUpdate], *, fixed: bool = True) -> None:
        """One step of the optimizer for these parameters alone."""
        if operands[0].unless is not None and bool(
            operands[0].unless
        ):  # waits for the device, as a gradient scaler does
            return
        optimizer, a, made = self.optimizer, self.runner.a, self.runner.initialized
        stored = [operand.parameter.data for operand in operands]
        before = [dict(optimizer.state[operand.parameter]) for operand in operands] if fixed else []
        for operand, read in zip(operands, self.update.read, strict=True):
            if operand.data is not None:
                operand.parameter.data = operand.data
            operand.parameter.grad = operand.grad.clone() if read and operand.grad is not None else operand.grad
            state = optimizer.state[operand.parameter]
            for name, _, tensor in operand.kept:
                if tensor is not None:
                    state[name] = tensor
        places = {} if fixed else {n: flat(p) for n, s, _ in operands[0].kept if (p := self._place(s)) is not None}
        places |= self.runner.streamed.get(self.update.parameters[0], {})
        with self.runner.device.updating():
            self._partial_step.run(self.update.chunk_bytes, places, operands[0].rows)
        for k, (operand, stored_at) in enumerate(zip(operands, stored, strict=True)):
            operand.parameter.grad = None
            if operand.data is not None:
                operand.parameter.data = stored_at
            state = optimizer.state[operand.parameter]
            for name, s, tensor in operand.kept:
                now = state[name]
                if fixed:
                    there = before[k][name] if tensor is None else tensor
                    if now is not there:
                        there.copy_(now)  # an optimizer that creates new state instead of changing the old
                    state[name] = before[k][name]
                    continue
                made.add(s)
                if (place := self._place(s)) is not None:  # newly created state goes to its planned memory
                    now = in_place(flat(place), layout_of(s, now), now)
                a[s] = now
                state[name] = self._host_view(s, now) if s in self._not_resident else now

    def _place(self, s: int) -> torch.Tensor | None:
        """The memory that the plan has for a state."""
        found: torch.Tensor | None = self.runner.a[s] if s in self._not_resident else self.runner.blocks.get(s)
        return found

    def _host_view(self, s: int, tensor: Any) -> torch.Tensor:
        """The host buffer of a state, as a tensor."""
        found = self._host_views.get(s)
        if found is None:
            found = self._host_views[s] = placed(self.runner.host_bytes[s], layout_of(s, tensor))
        return found
