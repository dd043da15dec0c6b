"""Counter-based random numbers for any number of integer keys, absorbed one at a time.

`uniform(t, i, j)` in a user's loop becomes `unit(absorb(absorb(absorb(UNIFORM, t), i), j))`. Each kind of number has
its own start, so that a uniform and a normal number with the same keys are independent. The chain
is SplitMix64's finaliser; every step depends on all keys before it, so (1, 2) and (1, 2, 0) are different keys.
`stretto.keyed` holds the same functions in plain Python, with the same bits.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.compile import inner

from .random import _scramble as scramble
from .scalar import log

UNIFORM = np.uint64(0x243F6A8885A308D3)
INTEGERS = np.uint64(0x13198A2E03707344)
NORMAL = np.uint64(0xA4093822299F31D0)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S11, _S12 = np.uint64(11), np.uint64(12)


@inner
def absorb(state, key):
    """Return the state after one more key; a negative key counts as its 64-bit two's complement."""
    return scramble(state ^ (np.uint64(key) + _GOLDEN))


@inner
def unit(state):
    """Return a float64 in [0, 1), from the upper 53 bits."""
    return np.float64(state >> _S11) * (1.0 / 9007199254740992.0)


@inner
def below(state, n):
    """Return an int64 in 0..n-1, for 1 <= n <= 2**31; probabilities are off by at most n / 2**53."""
    return np.int64(unit(state) * np.float64(n))


@inner
def gauss(state):
    """Return a standard normal float64: the inverse distribution function at the middle of one of 2**52 equal steps.

    Three rational functions, for the body and two parts of the tail, with the coefficients of Wichura (1988,
    algorithm AS 241); relative error below 1e-14 with our own logarithm.
    """
    u = (np.float64(state >> _S12) + 0.5) * (1.0 / 4503599627370496.0)  # never 0 or 1
    q = u - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = 2.5090809287301226727e3
        top = top * r + 3.3430575583588128105e4
        top = top * r + 6.7265770927008700853e4
        top = top * r + 4.5921953931549871457e4
        top = top * r + 1.3731693765509461125e4
        top = top * r + 1.9715909503065514427e3
        top = top * r + 1.3314166789178437745e2
        top = top * r + 3.3871328727963666080e0
        low = 5.2264952788528545610e3
        low = low * r + 2.8729085735721942674e4
        low = low * r + 3.9307895800092710610e4
        low = low * r + 2.1213794301586595867e4
        low = low * r + 5.3941960214247511077e3
        low = low * r + 6.8718700749205790830e2
        low = low * r + 4.2313330701600911252e1
        low = low * r + 1.0
        return q * top / low
    r = math.sqrt(-log(u if q < 0.0 else 1.0 - u))
    if r <= 5.0:
        r -= 1.6
        top = 7.74545014278341407640e-4
        top = top * r + 2.27238449892691845833e-2
        top = top * r + 2.41780725177450611770e-1
        top = top * r + 1.27045825245236838258e0
        top = top * r + 3.64784832476320460504e0
        top = top * r + 5.76949722146069140550e0
        top = top * r + 4.63033784615654529590e0
        top = top * r + 1.42343711074968357734e0
        low = 1.05075007164441684324e-9
        low = low * r + 5.47593808499534494600e-4
        low = low * r + 1.51986665636164571966e-2
        low = low * r + 1.48103976427480074590e-1
        low = low * r + 6.89767334985100004550e-1
        low = low * r + 1.67638483018380384940e0
        low = low * r + 2.05319162663775882187e0
        low = low * r + 1.0
    else:
        r -= 5.0
        top = 2.01033439929228813265e-7
        top = top * r + 2.71155556874348757815e-5
        top = top * r + 1.24266094738807843860e-3
        top = top * r + 2.65321895265761230930e-2
        top = top * r + 2.96560571828504891230e-1
        top = top * r + 1.78482653991729133580e0
        top = top * r + 5.46378491116411436990e0
        top = top * r + 6.65790464350110377720e0
        low = 2.04426310338993978564e-15
        low = low * r + 1.42151175831644588870e-7
        low = low * r + 1.84631831751005468180e-5
        low = low * r + 7.86869131145613259100e-4
        low = low * r + 1.48753612908506148525e-2
        low = low * r + 1.36929880922735805310e-1
        low = low * r + 5.99832206555887937690e-1
        low = low * r + 1.0
    return -top / low if q < 0.0 else top / low
