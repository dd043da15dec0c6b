"""Conversion of rating entries to compressed rows (CSR), and of compressed rows to compressed columns."""

from __future__ import annotations

from stretto.kernels.core.compile import kernel


@kernel
def group_by(key, other, values, at, indices, sorted_values):
    """Sort entries by key (stable counting sort): indices, sorted_values [n] = other, values grouped by key.

    at [m] int64: where the next entry of each key goes; it is updated, so that entries may come in several calls.
    values and sorted_values may have length 0.
    """
    valued = values.shape[0] > 0
    for t in range(key.shape[0]):
        to = at[key[t]]
        indices[to] = other[t]
        if valued:
            sorted_values[to] = values[t]
        at[key[t]] = to + 1


@kernel
def turn(indptr, indices, values, turned_indptr, at, turned_indices, turned_values):
    """Convert compressed rows to compressed columns; in each column the rows are ascending."""
    for k in range(at.shape[0]):
        at[k] = turned_indptr[k]
    for row in range(indptr.shape[0] - 1):
        for t in range(indptr[row], indptr[row + 1]):
            to = at[indices[t]]
            turned_indices[to] = row
            turned_values[to] = values[t]
            at[indices[t]] = to + 1


@kernel
def order_repeats(indptr, indices, values):
    """Order entries that repeat an index of their sorted row by value; return how many there are."""
    found = 0
    for row in range(indptr.shape[0] - 1):
        for t in range(indptr[row] + 1, indptr[row + 1]):
            if indices[t] == indices[t - 1]:
                found += 1
                at = t
                while at > indptr[row] and indices[at] == indices[at - 1] and values[at] < values[at - 1]:
                    values[at], values[at - 1] = values[at - 1], values[at]
                    at -= 1
    return found


@kernel(allocates=True)  # Numba's sort allocates
def sort_rows(indptr, indices):
    """Sort the indices of each compressed row."""
    for row in range(indptr.shape[0] - 1):
        indices[indptr[row] : indptr[row + 1]].sort()
