"""When logistic regression is solved by Newton steps of all its columns in one thread, and when by working sets.

Few columns have a factor of their products. Without an L1 penalty, the steps of many sparse columns are found by
conjugate gradients over the rows.
"""

from __future__ import annotations

# Estimated nanoseconds, measured on one core of an AMD EPYC (AVX-512): a product of two values in a Gram matrix, the
# other passes over a value, and those over a sample. The choice depends on the shape alone: results do not depend on
# the machine.
_PRODUCT, _VALUE, _SAMPLE = 0.08, 0.3, 20.0
_STEPS = 6  # of a usual fit
_LONGEST = 100e6  # a longer fit takes less time with working sets, which use threads
MOST = 127  # columns: with the intercept, the products of more would leave the L2 cache


def suits_newton(samples: int, features: int) -> bool:
    """Whether a fit of a dense matrix of this shape is short enough for one thread.

    >>> suits_newton(7_000, 28), suits_newton(100, 7_000), suits_newton(1_000_000, 28)
    (True, False, False)
    """
    row = _PRODUCT * features * (features + 3) / 2 + _VALUE * features + _SAMPLE
    return 0 < features <= MOST and samples * row * _STEPS <= _LONGEST


# The same for sparse rows: an entry in the passes over X, a product of two entries of a row, and an entry of a factor.
_ENTRY, _PAIR, _FACTOR = 4.0, 1.0, 0.06
_LONGEST_SPARSE = 100e6  # working sets sweep sparse columns in one thread as well
# What the conjugate gradients of a Newton step with working sets take for each entry.
_SMOOTH = 16.0
_MOST_SPARSE = 512  # columns: factors of more would take longer than the passes over usual data
_MOST_ENTRIES = 1 << 24  # that conjugate gradients read in one thread, and that are fetched from nodes


def suits_sparse_newton(samples: int, features: int, entries: int, *, smooth: bool = False) -> bool:
    """Whether a fit of a sparse matrix of this shape, with so many entries, is short enough.

    smooth : there is no L1 penalty, so that all columns are in every model

    >>> suits_sparse_newton(30_000, 123, 400_000), suits_sparse_newton(25_000, 90_000, 3_000_000)
    (True, False)
    """
    if not 0 < features <= _MOST_SPARSE:
        return False
    model = _PAIR * 0.5 * entries * entries / max(1, samples) + _FACTOR * features**3
    if smooth and model > _SMOOTH * entries:
        return False
    return (_SAMPLE * samples + _ENTRY * entries + model) * _STEPS <= _LONGEST_SPARSE


def suits_rows(samples: int, features: int, entries: int, *, smooth: bool) -> bool:
    """Whether a fit of a sparse matrix reads it by rows: its Newton steps have factors or conjugate gradients.

    >>> suits_rows(25_000, 90_000, 3_000_000, smooth=True), suits_rows(25_000, 90_000, 3_000_000, smooth=False)
    (True, False)
    """
    by_gradients = smooth and features > 0 and entries <= _MOST_ENTRIES
    return by_gradients or suits_sparse_newton(samples, features, entries, smooth=smooth)
