"""Counter-based random numbers: the same keys give the same number, in any order, on any worker.

    u = st.uniform(t, i, j)         a float in [0, 1)
    k = st.integers(10, t, i, j)    one of 0..9
    x = st.normal(t, i, j)          mean 0, standard deviation 1

Key a number by its purpose (epoch, row, column, which draw), never by a counter: then a loop draws the same numbers
however its iterations are distributed. Keys are any integers, also negative ones, in any number; (1, 2) and (1, 2, 0)
are different keys. A decorated loop calls the compiled versions in `stretto.kernels.numeric.keyed`, which give the same
bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

from stretto.errors import DataError

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_UNIFORM, _INTEGERS, _NORMAL = 0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0
MOST = 2**31  # choices `integers` offers

# ln 2 in two parts, as in kernels/numeric/scalar.py: the first times a whole number is exact.
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_SQRT2 = 1.4142135623730951

# The inverse of the normal distribution function as three ratios of polynomials, highest power first (Wichura 1988).
_BODY = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def uniform(*keys: SupportsIndex) -> float:
    """A float64 in [0, 1) with 53 random bits, decided by the keys alone.

    Parameters
    ----------
    *keys : int
        What the number is for, such as (epoch, row, column). At least one.

    Returns
    -------
    float
        The same for the same keys, on any worker and in any order.

    Examples
    --------
    >>> import stretto as st
    >>> st.uniform(3, 1, 4) == st.uniform(3, 1, 4)
    True
    """
    return (_absorbed(_UNIFORM, keys, "uniform") >> 11) * (1.0 / 9007199254740992.0)


def integers(n: SupportsIndex, *keys: SupportsIndex) -> int:
    """An integer from 0 to n - 1, decided by the keys alone.

    Parameters
    ----------
    n : int
        How many integers to choose from, 1 to 2**31. None is more than n / 2**53 likelier than it should be.
    *keys : int
        What the number is for, such as (epoch, row, column). At least one.

    Returns
    -------
    int
        The same for the same keys, on any worker and in any order.

    Examples
    --------
    >>> import stretto as st
    >>> 0 <= st.integers(10, 3, 1) < 10
    True
    """
    if not 1 <= index(n) <= MOST:
        raise DataError(f"integers(n, ...) chooses among 1 to {MOST} numbers, got n = {index(n)}")
    return int((_absorbed(_INTEGERS, keys, "integers") >> 11) * (1.0 / 9007199254740992.0) * float(index(n)))


def normal(*keys: SupportsIndex) -> float:
    """A float64 with mean 0 and standard deviation 1, decided by the keys alone.

    The number is made from 52 random bits, so it is at most 8.3 away from 0.

    Parameters
    ----------
    *keys : int
        What the number is for, such as (epoch, row, column). At least one.

    Returns
    -------
    float
        The same for the same keys, on any worker and in any order.

    Examples
    --------
    >>> import stretto as st
    >>> abs(st.normal(3, 1, 4)) < 8.3
    True
    """
    u = ((_absorbed(_NORMAL, keys, "normal") >> 12) + 0.5) * (1.0 / 4503599627370496.0)  # never 0 or 1
    q = u - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * _polynomial(_BODY[0], r) / _polynomial(_BODY[1], r)
    r = math.sqrt(-_log(u if q < 0.0 else 1.0 - u))
    top, low = _TAIL if r <= 5.0 else _FAR
    r -= 1.6 if r <= 5.0 else 5.0
    x = _polynomial(top, r)
    return -x / _polynomial(low, r) if q < 0.0 else x / _polynomial(low, r)


for _function in (uniform, integers, normal):  # how a decorated loop recognises them, whatever they are imported as
    vars(_function)["__stretto_function__"] = _function.__name__


def _absorbed(state: int, keys: tuple[SupportsIndex, ...], name: str) -> int:
    if not keys:
        raise DataError(
            f"{name} needs at least one key, such as {name}(epoch, i, j): the number depends on nothing else"
        )
    for key in keys:
        x = state ^ ((index(key) + _GOLDEN) & _MASK)
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        state = x ^ (x >> 31)
    return state


def _polynomial(coefficients: Iterable[float], x: float) -> float:
    y = 0.0
    for c in coefficients:
        y = y * x + c
    return y


def _log(x: float) -> float:
    """kernels.scalar.log, operation by operation."""
    m, e = math.frexp(x)
    if m * _SQRT2 < 1.0:
        m *= 2.0
        e -= 1
    z = (m - 1.0) / (m + 1.0)
    zz = z * z
    p = 0.0
    for n in range(23, 0, -2):
        p = p * zz + 1.0 / n
    return (e * _LN2_LOW + 2.0 * z * p) + e * _LN2_HIGH
