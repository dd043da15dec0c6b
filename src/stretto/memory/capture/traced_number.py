"""`TracedNumber`, a stand-in for a Python number while a step is traced. It behaves like the number and reports its
uses.

`batch_numbers.BatchNumbers` and `read_values.ValueReads` receive the reports.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

Evaluate = Callable[[Sequence[Any]], Any]  # computes a value from the numbers of a batch

_LOW = (torch.bfloat16, torch.float16)
_COMPARED = ("gt", "lt", "ge", "le", "eq", "ne")
_OPERATIONS = ("add", "sub", "mul", "div", "true_divide", "rsub", *_COMPARED)
_CHANGING = ("add_", "sub_", "mul_", "div_")
_SPECIAL = {"__rsub__": "rsub", "__truediv__": "div", "__itruediv__": "div_"}


class TracedNumber:
    """A number of a batch or a value that the step reads, or computed from such. `isinstance` sees an int or a float.

    Attributes
    ----------
    numbers : Numbers or Reads
        Receives reports of its uses.
    evaluate : callable
        Computes its value from the numbers of a batch.
    value : int or float
        Its value while the step is traced.
    entries : tuple of int
        Which numbers of the batch it depends on.
    """

    __slots__ = ("entries", "evaluate", "numbers", "value")
    __array_ufunc__ = None  # NumPy calls our operators instead of its own

    def __init__(self, numbers: Any, evaluate: Evaluate, value: Any, entries: tuple[int, ...]) -> None:
        self.numbers, self.evaluate, self.value, self.entries = numbers, evaluate, value, entries

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.value)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        name = _SPECIAL.get(name, name.strip("_") if name.startswith("__") else name)
        if name in (*_OPERATIONS, *_CHANGING) and len(args) == 2 and not kwargs and type(args[1]) is TracedNumber:
            return args[1]._with_tensor(name, args[0], func)
        plain = pytree.tree_map(lambda x: x.numbers.used(x) if type(x) is TracedNumber else x, (args, kwargs))
        return func(*plain[0], **plain[1])

    def _with_tensor(self, name: str, x: Any, func: Any) -> Any:
        """An operation of a tensor and this number, with the same bits as for the plain number."""
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
        if not self.numbers.tracing or not isinstance(x, torch.Tensor) or x.device.type != self.numbers.device.type:
            return False
        whole = isinstance(self.value, int)
        if whole and not self.numbers.small(self):
            return False
        if x.dtype == torch.int64:
            return whole and "div" not in name
        if x.dtype in _LOW:
            return name not in (*_CHANGING, *_COMPARED)
        return x.dtype in (torch.float32, torch.float64)

    def derived(self, of: Callable[[Any], Any]) -> Evaluate:
        evaluate = self.evaluate
        return lambda values: of(evaluate(values))

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _binary(self, other: Any, operation: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
        """An operation of this and another number: a new `TracedNumber`, evaluated for every batch."""
        mine = self.evaluate
        # One number of the batch, and one that the step has read.
        if type(other) is TracedNumber and other.numbers is not self.numbers:
            other = other.numbers.used(other)
        if type(other) is TracedNumber:
            others: Evaluate = other.evaluate
            entries, value = (*self.entries, *other.entries), other.value
        elif type(other) in (int, float, bool):
            others, entries, value = (lambda _: other), self.entries, other
            self.numbers.log.append(f"{operation.__name__} {other!r}")
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
            return TracedNumber(self.numbers, evaluate, result, entries)
        self.numbers.compared(evaluate, result, entries)  # a bool, or the complex root of a negative number
        return result

    def _unary(self, operation: Callable[[Any], Any]) -> Any:
        return self._made(self.derived(operation), operation(self.value), self.entries)

    def converted(self, kind: Any) -> Any:
        """This number as a float or an int."""
        return self._unary(kind)

    def _comparison(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, torch.Tensor):
            back = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
            return self._with_tensor(
                back.get(operation.__name__, operation.__name__), other, lambda x, n: operation(n, x)
            )
        if other is None or isinstance(other, str):
            return operation(self.value, other)  # the outcome is the same for all numbers
        return self._binary(other, operation)

    def _tensor(self, name: str, other: Any, operation: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
        if isinstance(other, torch.Tensor):  # a tensor on the left calls `__torch_function__` instead
            return self._with_tensor(name, other, lambda x, n: operation(n, x))
        return self._binary(other, operation, swapped=swapped)

    def __add__(self, other: Any) -> Any:
        return self._tensor("add", other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._binary(other, operator.add, swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._tensor("rsub", other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._binary(other, operator.sub, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._tensor("mul", other, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._binary(other, operator.mul, swapped=True)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return self._with_tensor("mul", other.reciprocal(), lambda x, n: n / other)  # as torch does it
        return self._binary(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary(other, operator.truediv, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary(other, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary(other, operator.floordiv, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._binary(other, operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return self._binary(other, operator.mod, swapped=True)

    def __pow__(self, other: Any) -> Any:
        return self._binary(other, operator.pow)

    def __rpow__(self, other: Any) -> Any:
        return self._binary(other, operator.pow, swapped=True)

    def __neg__(self) -> Any:
        return self._unary(operator.neg)

    def __pos__(self) -> Any:
        return self._unary(operator.pos)

    def __abs__(self) -> Any:
        return self._unary(abs)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Any:
        return self._comparison(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._comparison(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._comparison(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._comparison(other, operator.ge)

    def __eq__(self, other: Any) -> Any:
        return self._comparison(other, operator.eq)

    def __ne__(self, other: Any) -> Any:
        return self._comparison(other, operator.ne)

    def __bool__(self) -> bool:
        return bool(self._unary(bool))

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
        return operator.index(math.trunc(self.numbers.used(self)))

    def __floor__(self) -> int:
        return operator.index(math.floor(self.numbers.used(self)))

    def __ceil__(self) -> int:
        return operator.index(math.ceil(self.numbers.used(self)))

    def __repr__(self) -> str:
        return repr(self.numbers.used(self))

    def __format__(self, how: str) -> str:
        return format(self.numbers.used(self), how)

    def __copy__(self) -> TracedNumber:
        return self

    def __deepcopy__(self, memo: Any) -> TracedNumber:
        return self

    def __reduce__(self) -> Any:
        return type(self.value), (self.numbers.used(self),)

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the number itself, such as `bit_length`."""
        if not hasattr(self.value, name):
            raise AttributeError(f"{type(self.value).__name__!r} object has no attribute {name!r}")
        return getattr(self.numbers.used(self), name)
