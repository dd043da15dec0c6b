"""When least squares is solved from the moments of its columns, and when by working sets."""

from __future__ import annotations

# Nanoseconds, estimated; only that of a dense product is measured (AMD EPYC, AVX-512): products of two values in dense
# and in sparse columns, an entry in one of the passes of working sets, and their fixed cost. The choice depends on the
# shape alone: results do not depend on the machine.
_DENSE, _SPARSE, _ENTRY, _PASSES, _FIXED = 0.08, 1.6, 0.8, 8, 400_000.0
_MOST = 256  # columns: sweeps over more read a Gram matrix that leaves the L2 cache


def suits_moments(samples: int, features: int, entries: int | None = None) -> bool:
    """Whether the moments of all columns cost less than the passes of working sets over them.

    entries : stored entries of a sparse matrix; None for a dense one

    >>> suits_moments(245_000, 3), suits_moments(100, 7_000), suits_moments(20_000, 200, entries=80_000)
    (True, False, True)
    """
    if features > _MOST:
        return False
    stored = samples * features if entries is None else entries
    # Sparse products are those of the entries of a row. Rows differ, so that there are more than their mean says.
    product = _DENSE * (features + 3) / 2 if entries is None else _SPARSE * stored / max(1, samples)
    return stored * product <= stored * _ENTRY * _PASSES + _FIXED
