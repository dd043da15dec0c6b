"""exp, log and powers of single numbers by tables, with the same bits on every processor.

`scalar` computes exp and log by long polynomials, which is fast where a compiler makes vector instructions of a loop.
One number at a time has to wait for every term of them. Tables of 128 entries leave polynomials of few terms, so these
take a third of the time, as long as those of the machine's mathematics library. Only additions, multiplications and
operations on bits are used, in a fixed order.

    exp       0.51 ulp
    log       0.53 ulp
    power     0.52 ulp; zeros, infinities and NaN as in NumPy; NaN for a negative base with a fractional exponent

    >>> exp.py_func(1.0), float(log.py_func(2.0)), power.py_func(2.0, 0.5)
    (2.718281828459045, 0.6931471805599453, 1.4142135623730951)
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from stretto.kernels.core.compile import inner
from stretto.kernels.numeric import scalar

_BITS = 7
_PARTS = 1 << _BITS
_DIGITS = 45  # of the numbers that the tables are rounded from


def _tables():
    """The tables, and the constants that belong to them, rounded from numbers of 45 digits."""
    with localcontext() as context:
        context.prec = _DIGITS
        ln2 = Decimal(2).ln()
        # 2^(j / 128) as a float and the rest of it, relative to it.
        powers = [(ln2 * j / _PARTS).exp() for j in range(_PARTS)]
        high = [float(power) for power in powers]
        rest = [float(power / Decimal(first) - 1) for power, first in zip(powers, high, strict=True)]
        # ln 2 / 128 in two parts: the first has so few bits that k times it is exact for every exponent k.
        step = _rounded(ln2 / _PARTS, 42)
        # Reciprocals of the middles of the intervals of a mantissa, of 9 bits, and minus their logarithms.
        inverse, logs = [], []
        for j in range(_PARTS):
            low, past = (_mantissa(_FIRST_MANTISSA + (k << (52 - _BITS))) for k in (j, j + 1))
            near_one = low <= 1.0 <= past
            inverse.append(1.0 if near_one else round(2.0**8 * 2.0 / (low + past)) / 2.0**8)
            logs.append(-Decimal(inverse[-1]).ln())
        log_high = [_rounded(log, 42) for log in logs]
        log_low = [float(log - Decimal(first)) for log, first in zip(logs, log_high, strict=True)]
        whole = _rounded(ln2, 42)
        constants = (
            float(_PARTS / ln2),
            step,
            float(ln2 / _PARTS - Decimal(step)),
            whole,
            float(ln2 - Decimal(whole)),
        )
    return constants, np.array(high), np.array(rest), np.array(inverse), np.array(log_high), np.array(log_low)


def _rounded(value, bits):
    """A number rounded to a multiple of 2^−bits."""
    return float(round(value * 2**bits)) / 2.0**bits


def _mantissa(bits):
    return float(np.uint64(bits).view(np.float64))


_FIRST_MANTISSA = 0x3FE6000000000000  # of 0.6875: mantissas are from here to twice that
_CONSTANTS, _POWERS, _POWERS_REST, _INVERSE, _LOGS, _LOGS_REST = _tables()
_PARTS_PER_LN2, _STEP, _STEP_REST, _LN2, _LN2_REST = _CONSTANTS
_FIRST, _EXPONENT = np.uint64(_FIRST_MANTISSA), np.uint64(0xFFF0000000000000)
_UPPER_HALF = np.uint64(0xFFFFFFFF00000000)
_HALF_UP = np.uint64(0x80000000)
_ROUNDS = 6755399441055744.0  # 2⁵² + 2⁵¹: adding it rounds to a whole number, which is in the lowest bits then
_LEAST_NORMAL = 2.2250738585072014e-308
_SPLIT = 134217729.0


@inner
def exp(x):
    """Return eˣ of a float64."""
    if not (-708.0 < x < 709.0):  # also NaN
        return scalar.exp(x)
    return _exp_of_sum(x, 0.0)


@inner
def _exp_of_sum(x, rest):
    """Return e^(x + rest) for −708 < x < 709 and a rest that is small beside x."""
    shifted = x * _PARTS_PER_LN2 + _ROUNDS
    k = np.float64(shifted).view(np.int64)
    whole = shifted - _ROUNDS
    r = ((x - whole * _STEP) - whole * _STEP_REST) + rest
    j = k & (_PARTS - 1)
    power = np.int64(np.float64(_POWERS[j]).view(np.int64) + ((k - j) << (52 - _BITS))).view(np.float64)
    rr = r * r
    return power + power * (_POWERS_REST[j] + (r + (rr * (0.5 + r * (1 / 6)) + (rr * rr) * (1 / 24 + r * (1 / 120)))))


@inner
def log(x):
    """Return the natural logarithm of a float64; −∞ for zero, NaN for a negative number."""
    if not (_LEAST_NORMAL <= x < np.inf):  # also NaN
        return scalar.log(x)
    e, j, high, low = _split_log(x)
    r = high + low
    base = e * _LN2 + _LOGS[j]
    first = base + r
    rest = ((base - first) + r) + (e * _LN2_REST + _LOGS_REST[j])
    rr = r * r
    return first + (rest + (rr * (-0.5 + r * (1 / 3)) + (rr * rr) * _log_tail(r, rr)))


@inner
def _split_log(x):
    """Return (e, j, high, low): ln x = e ln 2 + `_LOGS`[j] + ln(1 + high + low) for a normal x > 0; both are exact."""
    bits = np.float64(x).view(np.uint64)
    above = np.uint64(bits - _FIRST)
    j = np.int64(above >> np.uint64(52 - _BITS)) & (_PARTS - 1)
    e = np.float64(np.int64(above) >> 52)
    mantissa = np.uint64(bits - (above & _EXPONENT))
    upper = np.uint64((mantissa + _HALF_UP) & _UPPER_HALF).view(np.float64)
    lower = mantissa.view(np.float64) - upper
    return e, j, upper * _INVERSE[j] - 1.0, lower * _INVERSE[j]


@inner
def _log_tail(r, rr):
    """Return (ln(1 + r) − r + r²/2 − r³/3) / r⁴."""
    return (-0.25 + r * 0.2) + rr * ((-1 / 6 + r * (1 / 7)) + rr * (-0.125 + r * (1 / 9)))


@inner
def _log_parts(x):
    """Return ln x of a normal float64 > 0 as a sum of two floats, accurate to about 2⁻⁶⁶ of it."""
    e, j, high, low = _split_log(x)
    r = high + low
    base = e * _LN2 + _LOGS[j]
    first = base + r
    rest = (((base - first) + high) + low) + (e * _LN2_REST + _LOGS_REST[j])
    square = -0.5 * high * high  # exact: `high` has few bits
    second = first + square
    rest += ((first - second) + square) + low * (-0.5 * (high + r))
    rr = r * r
    rest += rr * (r * (1 / 3)) + (rr * rr) * _log_tail(r, rr)
    total = second + rest
    return total, (second - total) + rest


@inner
def power(x, y):
    """Return xʸ of two float64."""
    if y == 0.0 or x == 1.0:
        return 1.0
    if np.isnan(x) or np.isnan(y):
        return x + y
    odd = abs(y) < 2.0**53 and np.floor(y) == y and np.int64(y) & 1 != 0
    size = abs(x)
    if size == 1.0 and abs(y) >= 2.0**53:
        return 1.0
    if size == 0.0 or np.isinf(size) or abs(y) > 2.0**64:
        # ln |x| is at least 2⁻⁵³ away from 0, so a large y gives 0 or ∞ too.
        value = np.inf if (size > 1.0) == (y > 0.0) else 0.0
        return -value if odd and np.signbit(x) else value
    if x < 0.0 and np.floor(y) != y:
        return np.nan
    if size < _LEAST_NORMAL:
        high, low = _log_parts(size * 2.0**54)
        high, low = _minus_54(high, low)
    else:
        high, low = _log_parts(size)
    p, error = _product(high, y)
    error += low * y
    if -708.0 < p < 709.0:
        value = _exp_of_sum(p, error)
    elif p > 709.8 or p < -745.2:
        value = np.inf if p > 0.0 else 0.0
    else:
        value = scalar.exp(p)
        value = value + value * error
    return -value if odd and x < 0.0 else value


@inner
def _minus_54(high, low):
    """Return high + low − 54 ln 2 in two parts, for high below −600."""
    total = high - 54.0 * _LN2
    return total, ((high - total) - 54.0 * _LN2) + (low - 54.0 * _LN2_REST)


@inner
def _product(a, b):
    """Return a·b as a rounded product and its error."""
    p = a * b
    c = _SPLIT * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLIT * b
    b_high = c - (c - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
