"""Round float32 and float64 arrays to float16 precision in one pass, without changing their dtype.

A 16-bit float has 11 significant bits, down to steps of 2^−24. Numbers are rounded to nearest, ties to even. Overflow
becomes ±65504, the largest float16; the caller keeps the difference. Infinity and NaN do not change.

Adding a power of two whose last bit is one step of the result, and subtracting it again, rounds to such steps;
for 2^e ≤ |x| < 2^(e+1) that is 2^(e+13) in float32 and 2^(e+42) in float64, and never less than the one of e = −14.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel

_TOP4, _TOP8 = np.float32(65504.0), np.float64(65504.0)
_INF4, _INF8 = np.float32(np.inf), np.float64(np.inf)
_LEAST4, _LEAST8 = np.float32(2.0**-1), np.float64(2.0**28)
_EXPONENT4, _EXPONENT8 = np.int32(0x7F800000), np.int64(0x7FF0000000000000)
_UP4, _UP8 = np.int32(13 << 23), np.int64(42 << 52)


@kernel
def halve4(a, out):
    """out [n] float32 = a [n] float32 after a 16-bit round trip."""
    for i in range(a.shape[0]):
        size = min(abs(a[i]), _TOP4)
        power = max(np.int32((np.float32(size).view(np.int32) & _EXPONENT4) + _UP4).view(np.float32), _LEAST4)
        rounded = np.copysign((size + power) - power, a[i])
        out[i] = rounded if abs(a[i]) < _INF4 else a[i]


@kernel
def halve8(a, out):
    """out [n] float64 = a [n] float64 after a 16-bit round trip."""
    for i in range(a.shape[0]):
        size = min(abs(a[i]), _TOP8)
        power = max(np.int64((np.float64(size).view(np.int64) & _EXPONENT8) + _UP8).view(np.float64), _LEAST8)
        rounded = np.copysign((size + power) - power, a[i])
        out[i] = rounded if abs(a[i]) < _INF8 else a[i]
