"""Validate the structure of a sparse matrix in one pass: indptr not decreasing, indices inside the shape.

Compiled code, SciPy's as well as ours, relies on both. The result goes to `found` [3] int64: the error code (0: none),
its position, and whether the entries are sorted without duplicates.
"""

from __future__ import annotations

from stretto.kernels.numeric.vector_memory import get

from .compile import kernel

SOUND, BEGINS, FALLS, ENDS, OUTSIDE, OTHER_AXIS = range(6)
BLOCK = 4096  # entries checked together: the loop over them has no early exit and vectorises


@kernel
def compressed(indptr, indices, top, found):
    """Check CSR or CSC: indptr [major + 1], indices [≥ nnz] from 0 to `top`, a number of their type.

    BEGINS: indptr does not start at 0. FALLS: indptr[where + 1] is less than indptr[where]. ENDS: beyond the indices.
    OUTSIDE: indices[where] is negative, or more than `top`.
    """
    found[0], found[1], found[2] = SOUND, 0, 1
    major = indptr.shape[0] - 1
    if indptr[0] != 0:
        found[0] = BEGINS
        return
    for i in range(major):
        if indptr[i + 1] < indptr[i]:
            found[0], found[1] = FALLS, i
            return
    if indptr[major] > indices.shape[0]:
        found[0] = ENDS
        return
    last = indptr[major]
    falls = 0
    for begin in range(0, last, BLOCK):
        end = min(begin + BLOCK, last)
        # The sign bit of either term is set where an index is outside; only signs are read, so overflow is harmless.
        signs = top - top
        for t in range(begin, end):
            signs |= indices.dtype.type(get(indices, t) | (top - get(indices, t)))
        if signs < 0:
            for t in range(begin, end):
                if indices[t] < 0 or indices[t] > top:
                    found[0], found[1] = OUTSIDE, t
                    return
        for t in range(max(begin, 1), end):
            falls += indices.dtype.type(get(indices, t) <= get(indices, t - 1))
    # From the end of one row to the start of the next an index may fall.
    before = 0
    for i in range(major):
        begin = indptr[i]
        if begin > before and begin < last:
            falls -= indices[begin] <= indices[begin - 1]
            before = begin
    if falls > 0:
        found[2] = 0


@kernel
def coordinates(rows, cols, height, width, found):
    """Check COO: rows [nnz] below `height`, cols [nnz] below `width`. OUTSIDE: rows[where]. OTHER_AXIS: cols[where]."""
    found[0], found[1], found[2] = SOUND, 0, 1
    up, left = -1, -1
    for t in range(rows.shape[0]):
        i, j = rows[t], cols[t]
        if i < 0 or i >= height:
            found[0], found[1] = OUTSIDE, t
            return
        if j < 0 or j >= width:
            found[0], found[1] = OTHER_AXIS, t
            return
        if i < up or (i == up and j <= left):
            found[2] = 0
        up, left = i, j
