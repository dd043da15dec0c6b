"""When logistic regression is solved by Newton steps of all its columns in one thread, and when by working sets."""

from __future__ import annotations

# Estimated nanoseconds, measured on one core of an AMD EPYC (AVX-512): a product of two values in a Gram matrix, the
# other passes over a value, and those over a sample. The choice depends on the shape alone: results do not depend on
# the machine.
_PRODUCT, _VALUE, _SAMPLE = 0.08, 0.3, 20.0
_STEPS = 6  # of a usual fit
_LONGEST = 20e6  # a longer fit takes less time with working sets, which use threads
MOST = 127  # columns: with the intercept, the products of more would leave the L2 cache


def suits_newton(samples: int, features: int) -> bool:
    """Whether a fit of a dense matrix of this shape is short enough for one thread.

    >>> suits_newton(7_000, 28), suits_newton(100, 7_000), suits_newton(1_000_000, 28)
    (True, False, False)
    """
    row = _PRODUCT * features * (features + 3) / 2 + _VALUE * features + _SAMPLE
    return 0 < features <= MOST and samples * row * _STEPS <= _LONGEST
