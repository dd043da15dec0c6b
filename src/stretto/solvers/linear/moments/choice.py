"""When least squares is solved from the moments of its columns, and when by working sets."""

from __future__ import annotations

# Estimated nanoseconds, measured on one core of an AMD EPYC (AVX-512): a product of two columns, an entry in one of the
# passes of working sets, and their fixed cost. The choice depends on the shape alone, so that results do not depend on
# the machine.
_PRODUCT, _ENTRY, _PASSES, _FIXED = 0.08, 0.8, 8, 400_000.0
_MOST = 256  # columns: sweeps over more read a Gram matrix that leaves the L2 cache


def suits_moments(samples: int, features: int, *, sparse: bool) -> bool:
    """Whether the moments of all columns cost less than the passes of working sets over them.

    >>> suits_moments(245_000, 3, sparse=False), suits_moments(100, 7_000, sparse=False)
    (True, False)
    """
    if sparse or features > _MOST:
        return False
    entries = samples * features
    return entries * (features + 3) / 2 * _PRODUCT <= entries * _ENTRY * _PASSES + _FIXED
