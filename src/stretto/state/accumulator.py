"""`Accumulator` (`st.accumulator`): a reduction variable, a number or small array that every iteration adds to.

    loss = st.accumulator(0.0)                     worst = st.accumulator(-np.inf, op=max)
    for (i, j), r in ratings:                      for i, x in values:
        loss += (r - W[i] @ H[j]) ** 2                 worst += x          # `+=` means: fold in
    print(loss.get())

Addition is the usual operator; any other commutative and associative one may be given. In a parallel loop each visit
folds into its own part, which begins as the operator's identity. The parts are folded in visit order (`fold`), so the
result does not depend on which worker ran a visit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike, NDArray

from stretto.errors import DataError

# Python operators that stand for NumPy ufuncs.
_KNOWN: dict[Any, np.ufunc] = {
    operator.add: np.add, operator.iadd: np.add, operator.mul: np.multiply, operator.imul: np.multiply,
    max: np.maximum, min: np.minimum, operator.or_: np.bitwise_or, operator.and_: np.bitwise_and,
    operator.xor: np.bitwise_xor,
}  # fmt: skip

_LARGE = 1 << 10  # elements from which parts are folded one by one, without a copy of all of them


class Accumulator(NDArrayOperatorsMixin):
    """A number or a small array that every iteration of a loop adds to.

    Parameters
    ----------
    initial : array_like
        Where it starts.
    op : callable or None, default None
        Commutative and associative operator; see `st.accumulator`.
    identity : number or None, default None
        The value that folding in does not change anything.

    Attributes
    ----------
    array : ndarray
        The current value.
    initial : ndarray
        Where it started.
    op : callable
        A NumPy ufunc, or the user's own function of two numbers.
    identity : number
        The value that folding in does not change anything.
    """

    __slots__ = ("__weakref__", "array", "identity", "initial", "op")

    def __init__(self, initial: ArrayLike, op: Callable[..., Any] | None = None, identity: Any = None) -> None:
        self.array: NDArray[Any] = np.array(initial)
        if self.array.dtype.kind not in "biuf":
            raise DataError(f"an accumulator holds numbers, got {self.array.dtype}")
        self.initial = self.array.copy()
        self.op: Callable[..., Any] = np.add if op is None else _KNOWN.get(op, op)
        self.identity = _identity(self.op, self.dtype) if identity is None else self.dtype.type(identity)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value; () for a number."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim

    @property
    def adds(self) -> bool:
        """Whether the operator is addition."""
        return self.op is np.add

    @property
    def value(self) -> Any:
        """The number, or a copy of the array."""
        return self.array.item() if not self.shape else self.array.copy()

    def get(self) -> Any:
        """The number, or a copy of the array."""
        return self.value

    def reset(self, value: ArrayLike | None = None) -> None:
        """Set it back to the initial value, or to another one.

        Parameters
        ----------
        value : array_like or None, default None
            The new value; None for the initial one.
        """
        self.array[...] = self.initial if value is None else value

    def blank(self, count: int) -> NDArray[Any]:
        """Parts [count, …] that hold the identity: folding them in changes nothing.

        Parameters
        ----------
        count : int
            Number of parts.
        """
        return np.full((count, *self.shape), self.identity, dtype=self.dtype)

    @np.errstate(all="ignore")  # as in the loop: inf - inf is NaN, and nobody is warned
    def fold(self, parts: NDArray[Any]) -> None:
        """Fold in parts, in order.

        Parameters
        ----------
        parts : ndarray [V, …]
            The parts, one for each visit.
        """
        if self.op in (np.maximum, np.minimum):
            # NumPy does not specify which of 0.0 and -0.0 it returns; this keeps the first, and NaN wins.
            for part in parts:
                better = part > self.array if self.op is np.maximum else part < self.array
                self.array[...] = np.where(better | np.isnan(part), part, self.array)
            return
        if isinstance(self.op, np.ufunc) and self.array.size >= _LARGE:
            for part in parts:
                self.op(self.array, part, out=self.array, casting="unsafe", dtype=self.dtype)
            return
        if isinstance(self.op, np.ufunc) and len(parts):
            # One call for all: NumPy accumulates strictly from first to last, which is the order of the visits.
            line = np.concatenate([self.array[None], parts.astype(self.dtype, copy=False)])
            self.array[...] = self.op.accumulate(line, axis=0, dtype=self.dtype)[-1]
            return
        for part in parts:
            self._fold((), part)

    def __iadd__(self, value: Any) -> Accumulator:
        self._fold((), value)
        return self

    def __isub__(self, value: Any) -> Accumulator:
        if not self.adds:
            raise DataError("`-=` on an accumulator needs addition as its operator; fold with `+=`")
        check_kind(value, self.dtype, "an accumulator")
        self.array[...] = np.subtract(self.array, value)
        return self

    def __getitem__(self, key: Any) -> Any:
        """An element, or a place that `+=` folds into where the operator is not addition."""
        return self.array[key] if self.adds else AccumulatorElement(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, AccumulatorElement):
            if value.owner is self:  # second half of `acc[k] += x`, which has been folded in already
                return
            value = np.asarray(value)
        check_kind(value, self.dtype, "an accumulator")
        self.array[key] = value

    def __len__(self) -> int:
        return len(self.array)

    def __float__(self) -> float:
        return float(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Arithmetic with an accumulator, such as `loss / n`, gives plain numbers; only `+=` and `-=` change it."""
        if any(isinstance(out, Accumulator) for out in kwargs.get("out", ())):
            raise DataError("an accumulator is folded into with `+=`; for other arithmetic take its value: get()")
        plain = [part.array if isinstance(part, Accumulator) else part for part in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __repr__(self) -> str:
        name = "" if self.adds else f", op={getattr(self.op, '__name__', self.op)}"
        return f"accumulator({self.array!s}, {self.dtype}{name})"

    def _fold(self, key: Any, value: Any) -> None:
        check_kind(value, self.dtype, "an accumulator")
        into = self.array[key]
        if isinstance(self.op, np.ufunc):
            self.array[key] = self.op(into, value)
            return
        given = np.broadcast_to(np.asarray(value, dtype=self.dtype), np.shape(into))
        folded = [self.op(a, b) for a, b in zip(np.ravel(into), given.ravel(), strict=True)]  # a user's, one at a time
        self.array[key] = np.array(folded, dtype=self.dtype).reshape(np.shape(into))


class AccumulatorElement:
    """`acc[k]` of an accumulator whose operator is not addition: `+=` folds, reading gives the number."""

    __slots__ = ("key", "owner")

    def __init__(self, owner: Accumulator, key: Any) -> None:
        self.owner, self.key = owner, key

    def __iadd__(self, value: Any) -> AccumulatorElement:
        self.owner._fold(self.key, value)
        return self

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.owner.array[self.key], dtype=dtype)

    def __float__(self) -> float:
        return float(self.owner.array[self.key])

    def __int__(self) -> int:
        return int(self.owner.array[self.key])

    def __repr__(self) -> str:
        return repr(self.owner.array[self.key])


def accumulator(initial: ArrayLike, op: Callable[..., Any] | None = None, identity: Any = None) -> Accumulator:
    """An accumulator: a number or a small array that every iteration of a loop adds to with `+=`.

    Parameters
    ----------
    initial : array_like
        Where it starts.
    op : callable or None, default None
        A commutative and associative operator: None for addition, `max`, `min`, `operator.mul`, a NumPy ufunc, or
        f(a, b). `max` and `min` are NumPy's: NaN stays NaN.
    identity : number or None, default None
        The value that the operator leaves others unchanged with, such as 1 for a product. Needed for f(a, b).

    Returns
    -------
    Accumulator

    Examples
    --------
    >>> import stretto as st
    >>> worst = st.accumulator(0.0, op=max)
    >>> for x in (3.0, 1.0):
    ...     worst += x
    >>> worst.get()
    3.0
    """
    return Accumulator(initial, op, identity)


def check_kind(value: Any, dtype: np.dtype[Any], what: str) -> None:
    """Refuse conversions that NumPy's in-place operators refuse, such as adding a float to integers."""
    given = np.asarray(value).dtype
    if not np.can_cast(given, dtype, casting="same_kind"):
        raise DataError(f"{what} of {dtype} cannot take {given}; start it as {given} or convert what is added")


def _identity(op: Any, dtype: np.dtype[Any]) -> Any:
    if op in (np.maximum, np.minimum, np.fmax, np.fmin):
        sign = -1 if op in (np.maximum, np.fmax) else 1
        if dtype.kind == "f":
            return dtype.type(sign * np.inf)
        if dtype.kind == "b":
            return dtype.type(sign > 0)
        return dtype.type(np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max)
    known = getattr(op, "identity", None)
    if known is None:
        name = getattr(op, "__name__", repr(op))
        raise DataError(
            f"accumulator: the identity element of {name} is not known; pass identity=, such as 1 for a product"
        )
    return np.asarray(known).astype(dtype)[()]
