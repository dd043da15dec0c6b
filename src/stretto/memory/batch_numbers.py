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
import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

Evaluate = Callable[[Sequence[Any]], Any]  # a value, from the numbers of a batch

_LARGEST = 1 << 53  # integers up to here are the same in every floating-point format that is wide enough
_LOW = (torch.bfloat16, torch.float16)
_COMPARED = ("gt", "lt", "ge", "le", "eq", "ne")
_OPERATIONS = ("add", "sub", "mul", "div", "true_divide", "rsub", *_COMPARED)
_CHANGING = ("add_", "sub_", "mul_", "div_")
_SPECIAL = {"__rsub__": "rsub", "__truediv__": "div", "__itruediv__": "div_"}


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
        value = self.evaluate(values)
        if self.inverse:
            kind = np.float64 if self.tensor.dtype == torch.float64 else np.float32
            with np.errstate(all="ignore"):
                value = float(kind(1) / kind(value))
        self.tensor.fill_(value)


class Numbers:
    """What a trace does with the numbers of its batch.

    numbers = Numbers(batch, device)
    traced = trace(numbers.traced(step), …, batch)   # conditions and slots are known now
    if numbers.fit(values): numbers.fill(values)     # before a step with other numbers
    """

    # No dictionary of attributes: what a step keeps for the next one is looked for in those.
    __slots__ = ("_open", "_slots", "_small", "conditions", "device", "names", "results", "values")

    def __init__(self, batch: Any, device: torch.device) -> None:
        found = [(path, x) for path, x in pytree.tree_flatten_with_path(batch)[0] if is_number(x)]
        self.names = ["batch" + pytree.keystr(path) for path, _ in found]
        self.values: list[Any] = [x for _, x in found]
        self.device = device
        self._open = False
        self._reset()

    def _reset(self) -> None:
        self.conditions: list[Condition] = []
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
            self._open = True
            try:
                result = step(pytree.tree_unflatten(given, spec))
            finally:
                self._open = False
            flat, shape = pytree.tree_flatten(result)
            self.results.update((k, x) for k, x in enumerate(flat) if type(x) is Number)
            return pytree.tree_unflatten([None if type(x) is Number else x for x in flat], shape)

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
        if self._open:
            self.conditions.append(Condition(evaluate, outcome, entries, exact, _line()))

    def small(self, number: Number) -> bool:
        """Whether an integer is exact as a floating-point number; the plan is for those that are like it."""
        if id(number) not in self._small:
            evaluate = number._derived(lambda value: abs(value) <= _LARGEST)
            self._small[id(number)] = number, evaluate(self.values)
            self.compared(evaluate, evaluate(self.values), number.entries)
        return self._small[id(number)][1]

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
        return a.hex() == b.hex()  # 0.0 is not -0.0, and NaN is NaN
    return bool(a == b)


def _line() -> str:
    """The line of the step function that is running: the nearest that is neither ours nor torch's."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != __name__ and not module.startswith(("torch.", "torch._")) and module != "torch":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class Number:
    """Stands for a Python number while a step is traced; see the module. To `isinstance` it is an int or a float."""

    __slots__ = ("entries", "evaluate", "numbers", "value")
    __array_ufunc__ = None  # NumPy leaves arithmetic to us

    def __init__(self, numbers: Numbers, evaluate: Evaluate, value: Any, entries: tuple[int, ...]) -> None:
        self.numbers, self.evaluate, self.value, self.entries = numbers, evaluate, value, entries

    @property
    def __class__(self) -> Any:
        return type(self.value)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        name = _SPECIAL.get(name, name.strip("_") if name.startswith("__") else name)
        if name in (*_OPERATIONS, *_CHANGING) and len(args) == 2 and not kwargs and type(args[1]) is Number:
            return args[1]._with(name, args[0], func)
        plain = pytree.tree_map(lambda x: x.numbers.used(x) if type(x) is Number else x, (args, kwargs))
        return func(*plain[0], **plain[1])

    def _with(self, name: str, x: Any, func: Any) -> Any:
        """An operation of a tensor and this number: bits are those of the number itself."""
        numbers = self.numbers
        if not self._can_be_slot(name, x):
            return func(x, numbers.used(self))
        cuda, dividing = numbers.device.type == "cuda", name in ("div", "div_", "true_divide")
        # Of a tensor with few bits and a number, a GPU computes in single precision and rounds once; so does a CPU, but
        # for sums: there it rounds the number first.
        low = x.dtype in _LOW and (cuda or name not in ("add", "sub", "rsub"))
        wide = x.to(torch.float32) if low else x
        if dividing and cuda:
            name, slot = "mul_" if name == "div_" else "mul", numbers.slot(self, wide.dtype, inverse=True)
        else:
            slot = numbers.slot(self, wide.dtype)
        result = slot - wide if name == "rsub" else getattr(wide, name)(slot)
        return result.to(x.dtype) if low else result

    def _can_be_slot(self, name: str, x: Any) -> bool:
        if not isinstance(x, torch.Tensor) or x.device.type != self.numbers.device.type or not self.numbers._open:
            return False
        whole = isinstance(self.value, int)
        if whole and not self.numbers.small(self):
            return False
        if x.dtype == torch.int64:
            return whole and "div" not in name
        if x.dtype in _LOW:
            return name not in (*_CHANGING, *_COMPARED)
        return x.dtype in (torch.float32, torch.float64)

    def _derived(self, of: Callable[[Any], Any]) -> Evaluate:
        evaluate = self.evaluate
        return lambda values: of(evaluate(values))

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _both(self, other: Any, operation: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
        """This and another number: a new one, which is computed for every batch."""
        mine = self.evaluate
        if type(other) is Number:
            others: Evaluate = other.evaluate
            entries, value = (*self.entries, *other.entries), other.value
        elif type(other) in (int, float, bool):
            others, entries, value = (lambda _: other), self.entries, other
        else:
            plain = self.numbers.used(self)
            return operation(other, plain) if swapped else operation(plain, other)

        def evaluate(values: Sequence[Any]) -> Any:
            a, b = mine(values), others(values)
            return operation(b, a) if swapped else operation(a, b)

        result = operation(value, self.value) if swapped else operation(self.value, value)
        return self._made(evaluate, result, tuple(dict.fromkeys(entries)))

    def _made(self, evaluate: Evaluate, result: Any, entries: tuple[int, ...]) -> Any:
        if type(result) in (int, float):
            return Number(self.numbers, evaluate, result, entries)
        self.numbers.compared(evaluate, result, entries)  # a bool, or the complex root of a negative number
        return result

    def _one(self, operation: Callable[[Any], Any]) -> Any:
        return self._made(self._derived(operation), operation(self.value), self.entries)

    def _order(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, torch.Tensor):
            back = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
            return self._with(back.get(operation.__name__, operation.__name__), other, lambda x, n: operation(n, x))
        if other is None or isinstance(other, str):
            return operation(self.value, other)  # the same for all numbers
        return self._both(other, operation)

    def _tensor(self, name: str, other: Any, operation: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
        if isinstance(other, torch.Tensor):  # tensors on the left ask `__torch_function__`
            return self._with(name, other, lambda x, n: operation(n, x))
        return self._both(other, operation, swapped=swapped)

    def __add__(self, other: Any) -> Any:
        return self._tensor("add", other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._both(other, operator.add, swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._tensor("rsub", other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._both(other, operator.sub, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._tensor("mul", other, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._both(other, operator.mul, swapped=True)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return self._with("mul", other.reciprocal(), lambda x, n: n / other)  # as torch does it
        return self._both(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._both(other, operator.truediv, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._both(other, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._both(other, operator.floordiv, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._both(other, operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return self._both(other, operator.mod, swapped=True)

    def __pow__(self, other: Any) -> Any:
        return self._both(other, operator.pow)

    def __rpow__(self, other: Any) -> Any:
        return self._both(other, operator.pow, swapped=True)

    def __neg__(self) -> Any:
        return self._one(operator.neg)

    def __pos__(self) -> Any:
        return self._one(operator.pos)

    def __abs__(self) -> Any:
        return self._one(abs)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Any:
        return self._order(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._order(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._order(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._order(other, operator.ge)

    def __eq__(self, other: Any) -> Any:
        return self._order(other, operator.eq)

    def __ne__(self, other: Any) -> Any:
        return self._order(other, operator.ne)

    def __bool__(self) -> bool:
        return bool(self._one(bool))

    # -- the value itself ----------------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        return hash(self.numbers.used(self))

    def __index__(self) -> int:
        return operator.index(self.numbers.used(self))

    def __int__(self) -> int:
        return int(self.numbers.used(self))

    def __float__(self) -> float:
        return float(self.numbers.used(self))

    def __complex__(self) -> complex:
        return complex(self.numbers.used(self))

    def __round__(self, *digits: int) -> Any:
        return round(self.numbers.used(self), *digits)

    def __trunc__(self) -> int:
        return math.trunc(self.numbers.used(self))

    def __floor__(self) -> int:
        return math.floor(self.numbers.used(self))

    def __ceil__(self) -> int:
        return math.ceil(self.numbers.used(self))

    def __repr__(self) -> str:
        return repr(self.numbers.used(self))

    def __format__(self, how: str) -> str:
        return format(self.numbers.used(self), how)

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: Any) -> Number:
        return self

    def __reduce__(self) -> Any:
        return type(self.value), (self.numbers.used(self),)

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the number itself, such as `bit_length`."""
        if not hasattr(self.value, name):
            raise AttributeError(f"{type(self.value).__name__!r} object has no attribute {name!r}")
        return getattr(self.numbers.used(self), name)
