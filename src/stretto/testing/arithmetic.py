"""Arithmetic of the typed tree in NumPy: the result of every operation, to the last bit.

Scalars and rows share one table of operations, because a lane computes what the scalar would. Floats are IEEE 754 and
nothing warns: a division by zero gives ±∞ or NaN. Integers wrap around, as the most negative one does under `abs` and
`// -1`; `//` and `%` round down and give 0 for a zero divisor. A shift by a negative count, or by all the bits or more,
leaves 0, or the sign of a negative number that is shifted to the right. What a float becomes that no integer fits is
said in `kernels.numeric.defined`.

Two things are not defined, here or in compiled code: which of the many NaN a NaN is (compare with `same_bits`), and
arithmetic (`+`, `-`, `*`, `neg`) of bools.

    >>> apply("//", np.int32(-7), np.int32(2)), fma32(np.float32(3), np.float32(4), np.float32(5))
    (np.int32(-4), np.float32(17.0))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.functions import tables
from stretto.kernels.numeric import elementary, scalar
from stretto.loops.types.typed_tree import ELEMENTARY, ScalarType

LANES = 16
Number: TypeAlias = int | float | bool | np.generic
Values: TypeAlias = Any  # a NumPy scalar or an array of them

_PLAIN: dict[str, type] = {"b1": bool, "i8": int, "f8": float}  # what a weak number is
_STRONG = {plain: dtype for dtype, plain in _PLAIN.items()}


# --- kinds ----------------------------------------------------------------------------------------------------------


def has_kind(value: object, kind: ScalarType) -> bool:
    """Whether a number is exactly of this kind: a weak one a plain Python number, a strong one NumPy's."""
    return type(value) is (_PLAIN[kind.dtype] if kind.weak else np.dtype(kind.dtype).type)


@np.errstate(all="ignore")
def convert(value: Number, kind: ScalarType) -> Number:
    """The number as `kind`, converted as NumPy's astype does.

    >>> convert(-2.7, ScalarType("i4")), convert(300, ScalarType("u1"))
    (np.int32(-2), np.uint8(44))
    >>> convert(np.float32(0.5), ScalarType("f8", True))
    0.5
    """
    number: np.generic = cast(np.asarray(value), kind.dtype).reshape(1)[0]
    return number.item() if kind.weak else number


@np.errstate(all="ignore")
def cast(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Convert as NumPy's astype does; floats that no integer fits become what `kernels.numeric.defined` says.

    >>> cast(np.array([np.nan, 1e30, 300.7]), "i4"), cast(np.array([-1.0, 300.0, 3e9]), "u1")
    (array([-2147483648, -2147483648,         300], dtype=int32), array([255,  44,   0], dtype=uint8))
    """
    if values.dtype.kind != "f" or dtype[0] not in "iu":
        return values.astype(dtype)
    bits, signed = 8 * int(dtype[1:]), dtype.startswith("i")
    if bits == 64 and not signed:
        high = values >= 2.0**63
        low = _or_least(np.where(high, values - values.dtype.type(2.0**63), values), 64).view(np.uint64)
        return low ^ np.where(high, np.uint64(2**63), np.uint64(0))
    return _or_least(values, 64 if bits == 64 or (bits == 32 and not signed) else 32).astype(dtype)


def _or_least(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Floats as signed integers of this width, the least integer where one does not fit."""
    fits = (values >= -(2.0 ** (bits - 1))) & (values < 2.0 ** (bits - 1))
    made = np.where(fits, values, 0).astype(f"i{bits // 8}")
    return np.where(fits, made, np.iinfo(made.dtype).min).astype(made.dtype)


def strong(value: Number) -> np.generic:
    """The number as NumPy's: a plain int is an int64, a plain float a float64."""
    return value if isinstance(value, np.generic) else np.dtype(_STRONG[type(value)]).type(value)


def same_bits(x: Values, y: Values) -> bool:
    """Whether two numbers or arrays have the same dtype, shape and bits; any NaN is the same as any other."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind != "f":
        return bool(np.array_equal(x, y))
    return bool(np.all((x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)))


# --- element by element ---------------------------------------------------------------------------------------------


def _each(function: Callable[..., float]) -> Callable[..., Values]:
    """`function` of every element, computed in float64 and rounded once to the type of what came in."""

    def every(*args: Values) -> Values:
        wide = [np.asarray(x, np.float64) for x in args]
        results = np.array([function(*v) for v in zip(*(x.ravel().tolist() for x in wide), strict=True)], np.float64)
        return results.reshape(wide[0].shape).astype(args[0].dtype)[()]

    return every


_COMPARISONS: dict[str, Callable[..., Values]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_OPERATIONS: dict[str, Callable[..., Values]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "neg": np.negative,
    "abs": np.absolute,
    "~": np.invert,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": _each(scalar.exp.py_func),
    "log": _each(scalar.log.py_func),
    "power": _each(tables.power.py_func),
    **{name: _each(getattr(elementary, name).py_func) for name in ELEMENTARY},
}
# Where single numbers have a function of their own.
_OF_NUMBERS = {"exp": _each(tables.exp.py_func), "log": _each(tables.log.py_func)}
_OF_FLOATS = ("/", "sqrt", "floor", "ceil", "exp", "log", "power", *ELEMENTARY)
_NOT_OF_BOOLS = ("+", "-", "*", "neg")


@np.errstate(all="ignore")
def apply(op: str, *args: Values) -> Values:
    """An operation of `Op` or a comparison of `Test`, element by element; the operands have one dtype, and so has the
    result (bool for a comparison). 'max' and 'min' are those of scalars; for rows see `larger` and `smaller`.
    """
    dtype = args[0].dtype
    assert all(arg.dtype == dtype for arg in args), (op, *(arg.dtype for arg in args))
    if op in ("max", "min"):
        first, second = args
        return _chosen(second > first if op == "max" else second < first, second, first)
    if op in ("maximum", "minimum"):
        return larger(*args) if op == "maximum" else smaller(*args)
    if op in _COMPARISONS:
        return _COMPARISONS[op](*args)
    assert dtype.kind == "f" or op not in _OF_FLOATS, (op, dtype)
    assert dtype.kind != "b" or op not in _NOT_OF_BOOLS, (op, dtype)
    of_number = _OF_NUMBERS.get(op) if np.ndim(args[0]) == 0 else None
    result = (of_number or _OPERATIONS[op])(*args)
    assert result.dtype == dtype, (op, dtype)
    return result


def _chosen(test: Values, yes: Values, no: Values) -> Values:
    return np.asarray(np.where(test, yes, no))[()]


def larger(x: Values, y: Values) -> Values:
    """The larger of each pair: NaN wins, and of equal ones the left (so it is 0.0 of 0.0 and −0.0)."""
    return _chosen((y > x) | np.isnan(y) & ~np.isnan(x), y, x)


def smaller(x: Values, y: Values) -> Values:
    """The smaller of each pair: NaN wins, and of equal ones the left."""
    return _chosen((y < x) | np.isnan(y) & ~np.isnan(x), y, x)


@np.errstate(all="ignore")
def fma32(x: Values, y: Values, z: Values) -> Values:
    """x·y + z of float32, rounded once.

    The product is exact in float64 and the sum s has a known error e. Where the sum was rounded, the last bit of s is
    made odd, away from every halfway point of float32, on the side of the exact value: rounding that to float32 is
    rounding the exact value, since float64 has more than twice as many bits and two to spare.
    """
    assert x.dtype == y.dtype == z.dtype == np.float32
    p, z = np.asarray(x, np.float64) * np.asarray(y, np.float64), np.asarray(z, np.float64)
    s = np.asarray(p + z)
    back = s - p
    e = (p - (s - back)) + (z - back)
    bits = s.view(np.int64)
    towards = np.where((e > 0) == (s > 0), 1, -1)  # one more in the bits is one further from zero
    lost = np.isfinite(s) & (e != 0) & (bits % 2 == 0)
    odd = np.asarray(bits + np.where(lost, towards, 0)).view(np.float64)
    return odd.astype(np.float32)[()]


# --- sixteen lanes --------------------------------------------------------------------------------------------------


def _chunks(row: NDArray[Any], filling: Any) -> NDArray[Any]:
    """The row as chunks of sixteen, shape (chunks, 16), the last one filled up."""
    whole = np.full(-(-len(row) // LANES) * LANES, filling, row.dtype)
    whole[: len(row)] = row
    return whole.reshape(-1, LANES)


def _by_halves(lanes: NDArray[Any], combine: Callable[[Values, Values], Values]) -> np.generic:
    """8 with 8, 4 with 4, 2 with 2, 1 with 1."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = combine(lanes[:half], lanes[half:])
    return lanes[0]  # type: ignore[no-any-return]


@np.errstate(all="ignore")
def total(row: NDArray[Any]) -> np.generic:
    """The sum of a row in sixteen lanes, each starting from zero."""
    lanes = np.zeros(LANES, row.dtype)
    for chunk in _chunks(row, 0):
        lanes = lanes + chunk
    return _by_halves(lanes, np.add)


@np.errstate(all="ignore")
def dot(x: NDArray[Any], y: NDArray[Any]) -> np.generic:
    """x @ y in sixteen lanes: float32 by fused multiply-add, other types by a product and a sum."""
    assert x.dtype == y.dtype, (x.dtype, y.dtype)
    assert len(x) == len(y), (len(x), len(y))
    lanes = np.zeros(LANES, x.dtype)
    for a, b in zip(_chunks(x, 0), _chunks(y, 0), strict=True):
        lanes = fma32(a, b, lanes) if x.dtype == np.float32 else lanes + a * b
    return _by_halves(lanes, np.add)


def lowest(dtype: np.dtype[Any]) -> Any:
    """What is below every number of this type: −∞, or the most negative integer, or False."""
    return {"f": -math.inf, "b": False}[dtype.kind] if dtype.kind in "fb" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    """What is above every number of this type."""
    return {"f": math.inf, "b": True}[dtype.kind] if dtype.kind in "fb" else np.iinfo(dtype).max


def extreme(op: str, row: NDArray[Any]) -> np.generic:
    """The largest ('max') or smallest ('min') element in sixteen lanes, as `typed.Extreme` says."""
    combine, filling = (larger, lowest(row.dtype)) if op == "max" else (smaller, highest(row.dtype))
    lanes = np.full(LANES, filling, row.dtype)
    for chunk in _chunks(row, filling):
        lanes = combine(lanes, chunk)
    return _by_halves(lanes, combine)
