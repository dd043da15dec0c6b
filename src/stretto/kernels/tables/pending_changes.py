"""Buffers of pending changes (slips): allocate places, take changes out, keep rounding residuals, log sent changes.

A slip holds the changes of one clock, by place: keys, changed [places], deltas [places, width], witness [places, W]
int32; W may be 0. locks as in `cached_rows`: a thread that accesses a shared row holds the lock of its key.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.atomics import add, load, store
from stretto.kernels.core.compile import kernel

from .cached_rows import find, hold, home


@kernel
def reserve(places, keys, count, wanted, locks, out):
    """`place` for a slip that threads share: places [rows] int64 is the place of every row, −1 if none; count [1]."""
    mask = locks.shape[0] - 1
    for i in range(wanted.shape[0]):
        key = wanted[i]
        p = load(places, key)
        if p < 0:
            if mask >= 0:
                hold(locks, key & mask)
            p = places[key]
            if p < 0:
                p = add(count, 0, 1)
                keys[p] = key
                store(places, key, p)
            if mask >= 0:
                store(locks, key & mask, 0)
        out[i] = p


@kernel
def lift(places, keys, deltas, counts, changed, locks, keep, out, seen):
    """Copy rows of a slip to out [n, width] and their witness to seen [n, W], and mark them unchanged.

    Unless `keep`, the rows are zero afterwards.
    """
    width, columns, mask = out.shape[1], seen.shape[1], locks.shape[0] - 1
    for i in range(places.shape[0]):
        p = places[i]
        if mask >= 0:
            hold(locks, keys[p] & mask)
        changed[p] = 0
        for k in range(width):
            out[i, k] = deltas[p, k]
            if not keep:
                deltas[p, k] = 0
        for k in range(columns):
            seen[i, k] = counts[p, k]
            if not keep:
                counts[p, k] = 0
        if mask >= 0:
            store(locks, keys[p] & mask, 0)


@kernel
def put_back(places, keys, deltas, locks, rows):
    """Add rows [n, width] back to a slip without marking them changed."""
    mask = locks.shape[0] - 1
    for i in range(places.shape[0]):
        p = places[i]
        if mask >= 0:
            hold(locks, keys[p] & mask)
        for k in range(rows.shape[1]):
            deltas[p, k] += rows[i, k]
        if mask >= 0:
            store(locks, keys[p] & mask, 0)


@kernel
def absorb(places, rows, out):
    """out[i] += rows[places[i]], and clear that row; −1 is skipped."""
    for i in range(places.shape[0]):
        p = places[i]
        if p >= 0:
            for k in range(out.shape[1]):
                out[i, k] += rows[p, k]
                rows[p, k] = 0


@kernel
def take(rows, order, out):
    """out[i] = rows[order[i]]; zeros where order[i] is −1."""
    for i in range(order.shape[0]):
        p = order[i]
        if p >= 0:
            for k in range(rows.shape[1]):
                out[i, k] = rows[p, k]
        else:
            for k in range(rows.shape[1]):
                out[i, k] = 0


@kernel
def lose(rows, sent):
    """rows −= sent, in place: the rounding residual of each number sent; 0 for non-finite numbers."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            rows[i, k] -= sent[i, k]
            if not np.isfinite(rows[i, k]):
                rows[i, k] = 0


@kernel
def log(index_keys, index_slots, before, count, wanted):
    """Append entries for `wanted` to a log in which a key may occur often; return how many entries it has now.

    The index maps a key to its last entry, and before [entries] maps an entry to the one before it, −1 at the first.
    """
    for i in range(wanted.shape[0]):
        at = home(index_keys, index_slots, wanted[i])
        before[count] = index_slots[at]
        index_keys[at] = wanted[i]
        index_slots[at] = count
        count += 1
    return count


@kernel
def add_logged(index_keys, index_slots, before, numbers, rows, counts, wanted, number, out, seen):
    """out[i] += every log entry of wanted[i] whose number is above `number`; numbers ascend along the log."""
    width, columns = out.shape[1], seen.shape[1]
    for i in range(wanted.shape[0]):
        p = np.int64(find(index_keys, index_slots, wanted[i]))
        while p >= 0 and numbers[p] > number:
            for k in range(width):
                out[i, k] += rows[p, k]
            for k in range(columns):
                seen[i, k] += counts[p, k]
            p = before[p]


@kernel
def row_bytes(rows, value, extra, out):
    """out[i] = bytes of row i in a message: `extra` plus the shorter of its dense and sparse encodings.

    Dense: all values; sparse: the nonzero values with their columns; `value` bytes each.
    """
    width = rows.shape[1]
    column = 2 if width <= 65536 else 4
    for i in range(rows.shape[0]):
        filled = 0
        for k in range(width):
            filled += rows[i, k] != 0
        out[i] = extra + min(width * value, 2 + filled * (column + value))
