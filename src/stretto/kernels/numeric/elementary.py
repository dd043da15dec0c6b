"""expm1, log1p, tanh, sin, cos, erf and sign, with the same bits on every processor.

Like `scalar` they use additions, multiplications and divisions in a fixed order, not the machine's mathematics library.
Relative errors are at most 1e-15 (four units in the last place of float64), except where a line says otherwise.

    expm1, log1p     also for arguments near zero
    sin, cos         for |x| ≤ 2⁵²; NaN beyond, where neighbouring floats are a sixth of a period apart or more
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.compile import inner
from stretto.kernels.functions.gammas import lgamma as lgamma  # noqa: PLC0414  re-exported: loops use one module

from .scalar import exp, log

_TWO_OVER_PI = 0.6366197723675814
# π/2 in parts of 33 bits and a rest, whose products with integers below 2²⁰ are exact; and in parts of 53 bits.
_PI_A, _PI_B, _PI_C, _PI_D = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32
_PI_1, _PI_2, _PI_3 = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33
_NEAR, _FAR = 1.6e6, 2.0**52  # |x| up to which sin and cos reduce by the short parts, and at all
_INVERSE_FACTORIALS = tuple(1.0 / math.factorial(n) for n in range(15, 1, -1))
_SPLIT = 134217729.0  # 2²⁷ + 1
_TWO_OVER_ROOT_PI = 1.1283791670955126
_ERF_ONE = 6.0  # from here on erf rounds to 1

# erf and its derivative at the centres 0.75, 1.25, …, 5.75.
_ERF_AT = (
    (0.7111556336535151, 0.6429310691952074),
    (0.9229001282564583, 0.2365211224472908),
    (0.9866716712191824, 0.05277499593015037),
    (0.9985372834133188, 0.007142319022017983),
    (0.9998993780778803, 0.0005862772470937923),
    (0.9999956972205363, 2.9189025383581702e-05),
    (0.9999998862727434, 8.814321912318039e-07),
    (0.9999999981494259, 1.6143993719507412e-08),
    (0.9999999999815149, 1.7934357034341337e-10),
    (0.9999999999998869, 1.2084074716006755e-12),
    (0.9999999999999996, 4.938485140964219e-15),
)
_ERF_TERMS = 17


def _erf_series() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """[11, 17] Taylor coefficients of erf at its centres, the highest power first.

    Those of its derivative f follow from f′ = −2xf: (n + 1) f[n + 1] = −2c f[n] − 2 f[n − 1].
    """
    made = np.zeros((len(_ERF_AT), _ERF_TERMS))
    for k, (value, slope) in enumerate(_ERF_AT):
        centre = 0.5 * k + 0.75
        before, here = 0.0, slope
        made[k, -1] = value
        for n in range(_ERF_TERMS - 1):
            made[k, -2 - n] = here / (n + 1)
            before, here = here, (-2.0 * centre * here - 2.0 * before) / (n + 1)
    return made


_ERF = _erf_series()


@inner
def expm1(x):
    """Return eˣ − 1 of a float64."""
    if not (-0.35 < x < 0.35):
        return exp(x) - 1.0
    p = 0.0
    for term in _INVERSE_FACTORIALS:
        p = p * x + term
    return x + x * x * p if x != 0.0 else x


@inner
def log1p(x):
    """Return ln(1 + x) of a float64; −∞ for −1, NaN below."""
    if not (-0.25 < x < 0.25):
        return log(1.0 + x)
    z = x / (2.0 + x)
    zz = z * z
    p = 0.0
    for n in range(21, 1, -2):
        p = p * zz + 1.0 / n
    # 2z = x − xz, so that the largest part is exact.
    return x - z * (x - 2.0 * zz * p) if x != 0.0 else x


@inner
def tanh(x):
    """Return the hyperbolic tangent of a float64."""
    size = abs(x)
    if size < 0.17:
        e = expm1(2.0 * x)
        return e / (e + 2.0) if x != 0.0 else x
    if size > 22.0:
        return 1.0 if x > 0.0 else -1.0
    value = 1.0 - 2.0 / (exp(2.0 * size) + 1.0)  # NaN stays NaN
    return value if x > 0.0 else -value


@inner
def sign(x):
    """Return −1, 0 or 1; NaN for NaN."""
    return 1.0 if x > 0.0 else -1.0 if x < 0.0 else 0.0 if x == 0.0 else x


# --- sin and cos ------------------------------------------------------------------------------------------------------


@inner
def _product(a, b):
    """Return a·b as a rounded product and its error, which is exact."""
    p = a * b
    c = _SPLIT * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLIT * b
    b_high = c - (c - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@inner
def _minus(a, b):
    """Return a − b as a rounded difference and its error."""
    d = a - b
    back = d - a
    return d, (a - (d - back)) - (b + back)


@inner
def _reduced(x):
    """Return (r, q): x = (4n + q)·π/2 + r for an integer n, |r| ≤ π/4."""
    k = np.floor(x * _TWO_OVER_PI + 0.5)
    if abs(x) < _NEAR:
        r, e = _minus(x - k * _PI_A, k * _PI_B)
        return r - ((k * _PI_C + k * _PI_D) - e), np.int64(k) & 3
    p, e = _product(k, _PI_1)
    a, e_a = _minus(x - p, e)
    p, e = _product(k, _PI_2)
    b, e_b = _minus(a, p)
    return b + (((e_a + e_b) - e) - k * _PI_3), np.int64(k) & 3


@inner
def _sine(r):
    """Return sin r for |r| ≤ π/4."""
    s = r * r
    p = 1.0 / 355687428096000.0
    p = p * s - 1.0 / 1307674368000.0
    p = p * s + 1.0 / 6227020800.0
    p = p * s - 1.0 / 39916800.0
    p = p * s + 1.0 / 362880.0
    p = p * s - 1.0 / 5040.0
    p = p * s + 1.0 / 120.0
    p = p * s - 1.0 / 6.0
    return r + r * s * p


@inner
def _cosine(r):
    """Return cos r for |r| ≤ π/4."""
    s = r * r
    p = 1.0 / 20922789888000.0
    p = p * s - 1.0 / 87178291200.0
    p = p * s + 1.0 / 479001600.0
    p = p * s - 1.0 / 3628800.0
    p = p * s + 1.0 / 40320.0
    p = p * s - 1.0 / 720.0
    p = p * s + 1.0 / 24.0
    return 1.0 - (0.5 * s - s * s * p)


@inner
def sin(x):
    """Return the sine of a float64."""
    if not abs(x) <= _FAR:
        return np.nan
    if x == 0.0:
        return x
    r, q = _reduced(x)
    value = _cosine(r) if q & 1 else _sine(r)
    return -value if q & 2 else value


@inner
def cos(x):
    """Return the cosine of a float64."""
    if not abs(x) <= _FAR:
        return np.nan
    r, q = _reduced(x)
    value = _sine(r) if q & 1 else _cosine(r)
    return -value if (q + 1) & 2 else value


# --- erf --------------------------------------------------------------------------------------------------------------


@inner
def erf(x):
    """Return the error function 2/√π ∫₀ˣ e^−t² dt of a float64."""
    size = abs(x)
    if size < 0.5:
        s = x * x
        p, term = 0.0, 13
        while term > 0:
            # Σ (−s)ⁿ / (n! (2n + 1)) from the last term to the first
            p = 1.0 / (2.0 * term + 1.0) - (s / (term + 1.0)) * p
            term -= 1
        return _TWO_OVER_ROOT_PI * (x - x * s * p) if x != 0.0 else x
    if not size < _ERF_ONE:
        return x if np.isnan(x) else 1.0 if x > 0.0 else -1.0
    k = np.int64(2.0 * size) - 1
    t = size - (0.5 * k + 0.75)
    p = 0.0
    for n in range(_ERF_TERMS):
        p = p * t + _ERF[k, n]
    return p if x > 0.0 else -p
