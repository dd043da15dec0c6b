"""A compiled worker for tests of executors: each visit mixes everything that it may read into everything it may write.

All numbers are integers below `MODULUS`, whatever the type of their array, so that every type holds them exactly. A
visit first folds all that it reads into one number, in order; an element that is missing, stale or misplaced changes
that number, and with it everything written from then on.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel

MODULUS = 251
_PRIME = 2147483647
# Columns of `table`: row block, column block, then where the visit's range of each array that is cut begins and ends.
CUTS = ("rows", "cols", "wide", "seen_rows", "seen_cols", "entries", "state")
TABLE_COLUMNS = 2 + 2 * len(CUTS)


@inner
def _fold(h, value):
    return (h * 31 + np.int64(value) + 7) % _PRIME


@inner
def _fold_line(h, array, lo, hi):
    for i in range(lo, hi):
        h = _fold(h, array[i])
    return h


@inner
def _fold_grid(h, array, lo, hi, first, last):
    for i in range(lo, hi):
        for j in range(first, last):
            h = _fold(h, array[i, j])
    return h


@inner
def _write_grid(h, array, lo, hi, first, last):
    for i in range(lo, hi):
        for j in range(first, last):
            array[i, j] = (np.int64(array[i, j]) * 5 + h + 3 * i + j) % 251


@kernel
def mix_worker(
    pass_, worker, out, table, rows, cols, wide, seen_rows, seen_cols, entries, state,
    moved_rows, moved_cols, shared, parts, scratch, fault, plain, goes_on, spin, factor, fails,
):  # fmt: skip
    """Make visits.

    table [V, TABLE_COLUMNS]; rows, cols, shared: 2-D, cut along their first axis or not at all; wide: 2-D, cut along
    its second; the others as their names say. plain: 1 where moved_rows, moved_cols and parts are not used. goes_on: 1
    where a visit reads what its part begins as. spin: how long a visit takes. fails: the visit that goes wrong, or −1.
    """
    v = next_visit(pass_, worker)
    while v >= 0:
        at = table[v]
        r, c = at[0], at[1]
        h = np.int64(factor)
        h = _fold_grid(h, rows, at[2], at[3], 0, rows.shape[1])
        h = _fold_grid(h, cols, at[4], at[5], 0, cols.shape[1])
        h = _fold_grid(h, wide, 0, wide.shape[0], at[6], at[7])
        h = _fold_line(h, seen_rows, at[8], at[9])
        h = _fold_line(h, seen_cols, at[10], at[11])
        h = _fold_line(h, entries, at[12], at[13])
        h = _fold_line(h, state, at[14], at[15])
        h = _fold_grid(h, shared, 0, shared.shape[0], 0, shared.shape[1])
        if plain == 0:
            h = _fold_line(h, moved_rows[r], 0, moved_rows.shape[1])
            h = _fold_line(h, moved_cols[c], 0, moved_cols.shape[1])
        if plain == 0 and goes_on == 1:
            h = _fold_line(h, parts[v], 0, parts.shape[1])
        mine = scratch[worker]
        for k in range(mine.shape[0]):
            mine[k] = (h + k) % 251
        wait = h
        for k in range(spin):
            wait = (wait * 48271 + k) % _PRIME
        if wait == -1:  # never: but the compiler cannot tell, and so makes it wait
            mine[0] = 0
        h = _fold_line(h, mine, 0, mine.shape[0])
        if v == fails:
            fault[0] = 1 + v
            fault[1] = h
            fail(pass_, v)
            return
        _write_grid(h, rows, at[2], at[3], 0, rows.shape[1])
        _write_grid(h, cols, at[4], at[5], 0, cols.shape[1])
        _write_grid(h, wide, 0, wide.shape[0], at[6], at[7])
        for t in range(at[14], at[15]):
            state[t] = (np.int64(state[t]) * 7 + h + t) % 251
        if plain == 0:
            for k in range(moved_rows.shape[1]):
                moved_rows[r, k] += (h + k) % 11
            for k in range(moved_cols.shape[1]):
                moved_cols[c, k] += (h + k) % 13
            for k in range(parts.shape[1]):
                parts[v, k] = goes_on * parts[v, k] + (h + k) % 17
        out[v] = h
        v = next_visit(pass_, worker, v)
