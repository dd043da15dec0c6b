"""Append matrix entries in file order to column-major (CSC) arrays."""

from __future__ import annotations

from stretto.kernels.core.compile import kernel


@kernel
def place(rows, cols, values, first, reached, indices, into):
    """Append entries to their columns, for columns first … first + k − 1; skip the others.

    rows, cols, values [entries]; reached [k]: next free position of a column in `indices` and `into`; updated.
    """
    k = reached.shape[0]
    for t in range(cols.shape[0]):
        j = cols[t] - first
        if 0 <= j < k:
            at = reached[j]
            indices[at] = rows[t]
            into[at] = values[t]
            reached[j] = at + 1
