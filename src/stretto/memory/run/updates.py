"""Updates of parameters that are on the device now, by their optimizer's own step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from stretto.memory.capture.lifted import Ref, Update, Value
from stretto.memory.chunk.embedding_rows import rows

from .optimizers import Rows, Turns
from .views import flat, in_place, layout_of, placed, view

if TYPE_CHECKING:
    from .execute import Runner


@dataclass(frozen=True, slots=True, eq=False)
class Hand:
    """A parameter and what it is updated with. data: None if the parameter is where it always is. kept: by name in the
    optimizer's state, (storage, tensor), the tensor None likewise or if it is not made yet. unless: not zero if the
    update is to be left out. rows: some rows of the gradient, where there is no grad."""

    parameter: torch.nn.Parameter
    data: torch.Tensor | None
    grad: torch.Tensor | None
    kept: list[tuple[str, int, torch.Tensor | None]]
    unless: torch.Tensor | None = None
    rows: Rows | None = None


class Updater:
    """Runs an optimizer for some parameters.

    updater()            takes them from where the runner has them now
    updater.apply(hands) with hands from `hands(fixed=True)`: places that stay as they are from step to step
    """

    def __init__(self, runner: Runner, update: Update) -> None:
        self.runner, self.update = runner, update
        self.optimizer = runner.optimizers[update.optimizer]
        self.parameters = [runner.watched.parameters[n] for n in update.parameters]
        self._turns = Turns(self.optimizer, self.parameters, runner.counts.get(update.optimizer))
        self._away = runner.program.on_host | set(runner.travels)
        self._homes: dict[int, torch.Tensor] = {}  # by storage: its view on the host

    def __call__(self) -> None:
        states = self.runner.lifted.states
        first = any(s not in self.runner.made for n in self.update.parameters for s in states[n].values())
        if first and len(self.parameters) > 1 and self.update.optimizer not in self.runner.counts:
            for alone in self._one_by_one():
                alone()
        else:
            self.apply(self.hands(), fixed=False)

    def _one_by_one(self) -> Iterator[Updater]:
        """An update of each parameter alone: an optimizer that makes the state of many at once takes much memory."""
        update = self.update
        for number, value, read in zip(update.parameters, update.values, update.read, strict=True):
            yield Updater(self.runner, replace(update, parameters=(number,), values=(value,), read=(read,)))

    def hands(self, *, fixed: bool = False) -> list[Hand]:
        """What the update needs. fixed: as tensors that own nothing, for rooms that others use at other times."""
        runner, values = self.runner, self.runner.lifted.values

        def seen(s: int, value: Value) -> torch.Tensor:
            return view(runner.device.alias(flat(runner.a[s])), value) if fixed else view(runner.a[s], value)

        found = None
        if self.update.unless is not None:
            decides = values[self.update.unless]
            found = seen(decides.storage, decides)
        hands = []
        for (value, grad), p, number in zip(self.update.values, self.parameters, self.update.parameters, strict=True):
            own, slope = values[value], values[grad]
            state = self.optimizer.state[p]
            kept: list[tuple[str, int, torch.Tensor | None]] = []
            for name, s in runner.lifted.states[number].items():
                there = s in runner.made and s in self._away
                kept.append((name, s, seen(s, layout_of(s, state[name])) if there else None))
            data = seen(own.storage, own) if own.storage in self._away else None
            made = self.update.gradient
            if made is None:
                hands.append(Hand(p, data, seen(slope.storage, slope), kept, found))
                continue
            args = [seen(values[x.value].storage, values[x.value]) if isinstance(x, Ref) else x for x in made.args]
            hands.append(Hand(p, data, None, kept, found, partial(rows, made.target, args)))
        return hands

    def apply(self, hands: list[Hand], *, fixed: bool = True) -> None:
        """One step of the optimizer for these parameters alone."""
        if hands[0].unless is not None and bool(hands[0].unless):  # waits for the device, as a gradient scaler does
            return
        optimizer, a, made = self.optimizer, self.runner.a, self.runner.made
        homes = [hand.parameter.data for hand in hands]
        before = [dict(optimizer.state[hand.parameter]) for hand in hands] if fixed else []
        for hand, read in zip(hands, self.update.read, strict=True):
            if hand.data is not None:
                hand.parameter.data = hand.data
            hand.parameter.grad = hand.grad.clone() if read and hand.grad is not None else hand.grad
            state = optimizer.state[hand.parameter]
            for name, _, tensor in hand.kept:
                if tensor is not None:
                    state[name] = tensor
        places = {} if fixed else {n: flat(p) for n, s, _ in hands[0].kept if (p := self._place(s)) is not None}
        places |= self.runner.streamed.get(self.update.parameters[0], {})
        with self.runner.device.updating():
            self._turns.run(self.update.piece, places, hands[0].rows)
        for k, (hand, home) in enumerate(zip(hands, homes, strict=True)):
            hand.parameter.grad = None
            if hand.data is not None:
                hand.parameter.data = home
            state = optimizer.state[hand.parameter]
            for name, s, tensor in hand.kept:
                now = state[name]
                if fixed:
                    there = before[k][name] if tensor is None else tensor
                    if now is not there:
                        there.copy_(now)  # an optimizer that makes new state instead of changing the old
                    state[name] = before[k][name]
                    continue
                made.add(s)
                if (
                    place := self._place(s)
                ) is not None:  # state that the optimizer has just made goes where the plan has a place for it
                    now = in_place(flat(place), layout_of(s, now), now)
                a[s] = now
                state[name] = self._home(s, now) if s in self._away else now

    def _place(self, s: int) -> torch.Tensor | None:
        """The memory that the plan has for a state."""
        found: torch.Tensor | None = self.runner.a[s] if s in self._away else self.runner.blocks.get(s)
        return found

    def _home(self, s: int, tensor: Any) -> torch.Tensor:
        found = self._homes.get(s)
        if found is None:
            found = self._homes[s] = placed(self.runner.there[s], layout_of(s, tensor))
        return found
