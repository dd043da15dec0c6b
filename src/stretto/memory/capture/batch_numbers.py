"""Python numbers in a batch: values that change from step to step without a new plan.

A trace sees tensors; a Python number that meets one would be written down as a constant. While a step is traced, every
int and float of its batch is a `Number` instead, which behaves like the number and records how it is used:

    n * 2 + 1          another `Number`: Python computes it anew before each step, with the number of that step
    loss * n           a tensor of no dimensions, filled before each step: the same bits as with the number itself
    if n > 100         a condition: the plan is for batches for which it has the same outcome
    range(n), f"{n}"   the value itself: the plan is for batches with this value

A plan therefore holds for all batches whose numbers meet its conditions (`Numbers.fit`). Others have their own plan.
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
from .traced_number import Evaluate, Number

_LARGEST = 1 << 53  # integers up to here are exact as floating-point numbers of eight bytes


@dataclass(frozen=True, slots=True)
class Condition:
    """What the numbers of a batch must give for a plan to hold.

    Attributes
    ----------
    evaluate : callable
        From the numbers of a batch.
    outcome : object
        What it gave when the step was traced.
    entries : tuple of int
        Which numbers of the batch it depends on.
    exact : bool
        The value itself was used; otherwise only a comparison of it.
    line : str
        Where the step function did so.
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
class Slot:
    """A tensor of no dimensions that has a number's value in every step. inverse: 1 / the value, as a GPU divides."""

    evaluate: Evaluate
    tensor: torch.Tensor
    inverse: bool

    def fill(self, values: Sequence[Any]) -> None:
        value, dtype = self.evaluate(values), self.tensor.dtype
        if self.inverse:
            kind = np.float64 if dtype == torch.float64 else np.float32
            with np.errstate(all="ignore"):
                value = float(kind(1) / kind(value))
        if dtype.is_floating_point:  # rounded as an operation would; `fill_` itself refuses what is too large
            value = float(torch.tensor(value, dtype=torch.float64).to(dtype))
        self.tensor.fill_(value)


class Numbers:
    """What a trace does with the numbers of its batch.

    numbers = Numbers(batch, device)
    traced = trace(numbers.traced(step), …, batch)   # conditions and slots are known now
    if numbers.fit(values): numbers.fill(values)     # before a step with other numbers
    """

    # No dictionary of attributes: what a step keeps for the next one is looked for in those.
    __slots__ = ("_slots", "_small", "conditions", "device", "log", "names", "results", "tracing", "values")

    def __init__(self, batch: Any, device: torch.device) -> None:
        found = [(path, x) for path, x in pytree.tree_flatten_with_path(batch)[0] if is_number(x)]
        self.names = ["batch" + pytree.keystr(path) for path, _ in found]
        self.values: list[Any] = [x for _, x in found]
        self.device = device
        self.tracing = False  # numbers are plain ones at other times
        self._reset()

    def _reset(self) -> None:
        self.conditions: list[Condition] = []
        self.log: list[str] = []  # arithmetic and comparisons with other numbers, which may change between steps
        self._slots: dict[Any, tuple[Number, Slot]] = {}
        self._small: dict[int, tuple[Number, bool]] = {}  # numbers are held: no other may have their identity
        self.results: dict[int, Number] = {}  # by place among the results

    def traced(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The step function for a trace: its numbers are watched, and results that are numbers are remembered."""

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
            self.results.update((k, x) for k, x in enumerate(flat) if type(x) is Number and x.numbers is self)
            return pytree.tree_unflatten([None if k in self.results else x for k, x in enumerate(flat)], shape)

        return watched

    def constant(self) -> None:
        """The trace has the values themselves: the plan is for them alone."""
        self._reset()
        self.conditions = [
            Condition(operator.itemgetter(k), value, (k,), exact=True, line="") for k, value in enumerate(self.values)
        ]

    def fit(self, values: Sequence[Any]) -> bool:
        return self.unmet(values) is None

    def unmet(self, values: Sequence[Any]) -> Condition | None:
        """The first condition that does not hold."""
        return next((one for one in self.conditions if not one.holds(values)), None)

    def fill(self, values: Sequence[Any]) -> None:
        """Let slots have the values of a batch."""
        self.values = list(values)
        for _, slot in self._slots.values():
            slot.fill(values)

    def shown(self, results: list[Any]) -> list[Any]:
        """Results of a step, with the numbers among them."""
        for place, number in self.results.items():
            results[place] = number.evaluate(self.values)
        return results

    def _given(self, k: int) -> Number:
        return Number(self, operator.itemgetter(k), self.values[k], (k,))

    # -- what numbers report -------------------------------------------------------------------------------------------

    def compared(self, evaluate: Evaluate, outcome: Any, entries: tuple[int, ...]) -> None:
        self._condition(evaluate, outcome, entries, exact=False)

    def used(self, number: Number) -> Any:
        """The value of a number, which the plan then depends on."""
        self._condition(number.evaluate, number.value, number.entries, exact=True)
        return number.value

    def _condition(self, evaluate: Evaluate, outcome: Any, entries: tuple[int, ...], *, exact: bool) -> None:
        if self.tracing:
            self.conditions.append(Condition(evaluate, outcome, entries, exact, users_line()))

    def small(self, number: Number) -> bool:
        """Whether an integer is exact as a floating-point number; the plan is for those that are like it."""
        if id(number) not in self._small:
            evaluate = number.derived(lambda value: abs(value) <= _LARGEST)
            self._small[id(number)] = number, bool(evaluate(self.values))
            self.compared(evaluate, evaluate(self.values), number.entries)
        return bool(self._small[id(number)][1])

    def slot(self, number: Number, dtype: torch.dtype, *, inverse: bool = False) -> torch.Tensor:
        """The tensor for a number."""
        key = id(number), dtype, inverse
        if key not in self._slots:
            with _disable_current_modes():
                tensor = torch.zeros((), dtype=dtype, device=self.device)
            slot = Slot(number.evaluate, tensor, inverse)
            self._slots[key] = number, slot
        return self._slots[key][1].tensor


def is_number(x: Any) -> bool:
    """Whether something is an int or a float of Python; True and False are not, they choose between two plans."""
    return type(x) in (int, float)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return bool(a.hex() == b.hex())  # 0.0 is not -0.0, and NaN is NaN
    return bool(a == b)
