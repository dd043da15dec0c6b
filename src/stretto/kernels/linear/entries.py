"""Entries in the order of a file, put where columns have them."""

from __future__ import annotations

from stretto.kernels.core.compile import kernel


@kernel
def place(rows, cols, values, first, reached, indices, into):
    """Append entries to their columns: those of columns first … first + k − 1, the others being left out.

    rows, cols, values [entries]; reached [k]: where the next entry of a column goes in indices and into, counted up.
    """
    k = reached.shape[0]
    for t in range(cols.shape[0]):
        j = cols[t] - first
        if 0 <= j < k:
            at = reached[j]
            indices[at] = rows[t]
            into[at] = values[t]
            reached[j] = at + 1
