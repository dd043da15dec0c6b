"""Python numbers in a batch whose values may change from step to step without a new plan.

A trace records tensors. A Python number in an operation would become a constant. So while a step is traced, every int
and float of its batch is replaced by a `TracedNumber`, which behaves like the number and records how it is used:

    n * 2 + 1          another `TracedNumber`: Python computes it before each step, with the number of that step
    loss * n           a tensor of no dimensions, filled before each step: the same bits as with the number itself
    if n > 100         a condition: the plan is for batches for which it has the same outcome
    range(n), f"{n}"   the value itself: the plan is for batches with this value

So a plan holds for all batches whose numbers meet its conditions (`BatchNumbers.fit`). Other batches have their own
plans.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .source_lines import users_line
from .traced_number import Evaluate, TracedNumber

_LARGEST = 1 << 53  # integers up to here are exact as floating-point numbers of eight bytes


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the numbers of a batch under which a plan holds.

    Attributes
    ----------
    evaluate : callable
        Computes a value from the numbers of a batch.
    outcome : object
        That value when the step was traced.
    entries : tuple of int
        Which numbers of the batch it depends on.
    exact : bool
        Whether the step used the value itself, not only a comparison.
    line : str
        The line of the step function that did so.
    """

    evaluate: Evaluate
    outcome: Any
    entries: tuple[int, ...]
    exact: bool
    line: str

    def holds(self, values: Sequence[Any]) -> bool:
        try:
            return _same(self.evaluate(values), self.outcome)
        except (ArithmeticError, TypeError, ValueError):
            return False


@dataclass(frozen=True, slots=True)
class NumberSlot:
    """A tensor of no dimensions that holds a number's value in every step."""

    evaluate: Evaluate
    tensor: torch.Tensor
    inverse: bool  # it holds 1 / the value, because a GPU divides by multiplying

    def fill(self, values: Sequence[Any]) -> None:
        value, dtype = self.evaluate(values), self.tensor.dtype
        if self.inverse:
            kind = np.float64 if dtype == torch.float64 else np.float32
            with np.errstate(all="ignore"):
                value = float(kind(1) / kind(value))
        if dtype.is_floating_point:  # rounded as an operation would; `fill_` itself refuses what is too large
            value = float(torch.tensor(value, dtype=torch.float64).to(dtype))
        self.tensor.fill_(value)


class BatchNumbers:
    """The Python numbers of a batch, and how the traced step uses them.

    numbers = Numbers(batch, device)
    traced = trace(numbers.traced(step), …, batch)   # conditions and slots are known now
    if numbers.fit(values): numbers.fill(values)     # before a step with other numbers
    """

    # Slots instead of a __dict__: `python_state` searches dictionaries for tensors that a step keeps.
    __slots__ = ("_slots", "_small", "conditions", "device", "log", "names", "results", "tracing", "values")

    def __init__(self, batch: Any, device: torch.device) -> None:
        found = [(path, x) for path, x in pytree.tree_flatten_with_path(batch)[0] if is_number(x)]
        self.names = ["batch" + pytree.keystr(path) for path, _ in found]
        self.values: list[Any] = [x for _, x in found]
        self.device = device
        self.tracing = False  # numbers are plain numbers outside a trace
        self._reset()

    def _reset(self) -> None:
        self.conditions: list[Condition] = []
        self.log: list[str] = []  # arithmetic and comparisons with other numbers, which may change between steps
        self._slots: dict[Any, tuple[TracedNumber, NumberSlot]] = {}
        self._small: dict[int, tuple[TracedNumber, bool]] = {}  # by id; holds the numbers, so that no id is used twice
        self.results: dict[int, TracedNumber] = {}  # by position among the results

    def traced(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The step function for a trace: it receives `TracedNumber`s, and results that are numbers are stored in
        `results`."""

        @functools.wraps(step)
        def watched(batch: Any) -> Any:
            self._reset()
            leaves, spec = pytree.tree_flatten(batch)
            numbers = iter(range(len(self.values)))
            given = [self._given(next(numbers)) if is_number(x) else x for x in leaves]
            self.tracing = True
            try:
                result = step(pytree.tree_unflatten(given, spec))
            finally:
                self.tracing = False
            flat, shape = pytree.tree_flatten(result)
            self.results.update((k, x) for k, x in enumerate(flat) if type(x) is TracedNumber and x.numbers is self)
            return pytree.tree_unflatten([None if k in self.results else x for k, x in enumerate(flat)], shape)

        return watched

    def constant(self) -> None:
        """Treat all numbers as constants: the plan holds only for their current values."""
        self._reset()
        self.conditions = [
            Condition(operator.itemgetter(k), value, (k,), exact=True, line="") for k, value in enumerate(self.values)
        ]

    def fit(self, values: Sequence[Any]) -> bool:
        """Whether the plan holds for these numbers."""
        return self.unmet(values) is None

    def unmet(self, values: Sequence[Any]) -> Condition | None:
        """The first condition that does not hold."""
        return next((one for one in self.conditions if not one.holds(values)), None)

    def fill(self, values: Sequence[Any]) -> None:
        """Write the numbers of a batch into the slots."""
        self.values = list(values)
        for _, slot in self._slots.values():
            slot.fill(values)

    def shown(self, results: list[Any]) -> list[Any]:
        """The results of a step, with the numbers among them."""
        for place, number in self.results.items():
            results[place] = number.evaluate(self.values)
        return results

    def _given(self, k: int) -> TracedNumber:
        return TracedNumber(self, operator.itemgetter(k), self.values[k], (k,))

    # -- what numbers report -------------------------------------------------------------------------------------------

    def compared(self, evaluate: Evaluate, outcome: Any, entries: tuple[int, ...]) -> None:
        """Add a condition: a comparison must have this outcome."""
        self._condition(evaluate, outcome, entries, exact=False)

    def used(self, number: TracedNumber) -> Any:
        """The value of a number. Adds the condition that it stays the same."""
        self._condition(number.evaluate, number.value, number.entries, exact=True)
        return number.value

    def _condition(self, evaluate: Evaluate, outcome: Any, entries: tuple[int, ...], *, exact: bool) -> None:
        if self.tracing:
            self.conditions.append(Condition(evaluate, outcome, entries, exact, users_line()))

    def small(self, number: TracedNumber) -> bool:
        """Whether an integer is exact as a floating-point number. Adds the condition that this stays the same."""
        if id(number) not in self._small:
            evaluate = number.derived(lambda value: abs(value) <= _LARGEST)
            self._small[id(number)] = number, bool(evaluate(self.values))
            self.compared(evaluate, evaluate(self.values), number.entries)
        return bool(self._small[id(number)][1])

    def slot(self, number: TracedNumber, dtype: torch.dtype, *, inverse: bool = False) -> torch.Tensor:
        """The tensor that holds a number in every step."""
        key = id(number), dtype, inverse
        if key not in self._slots:
            with _disable_current_modes():
                tensor = torch.zeros((), dtype=dtype, device=self.device)
            slot = NumberSlot(number.evaluate, tensor, inverse)
            self._slots[key] = number, slot
        return self._slots[key][1].tensor


def is_number(x: Any) -> bool:
    """Whether something is an int or a float. Bools are not: each value has its own plan."""
    return type(x) in (int, float)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return bool(a.hex() == b.hex())  # 0.0 is not -0.0, and NaN is NaN
    return bool(a == b)
