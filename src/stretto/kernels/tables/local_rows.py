"""Operations on the rows of a table that one process holds: read, add, and changes that wait for the end of a clock.

Rows are stored in chunks of 2**bits rows. base [chunks] int64: the slot of a chunk's first row, −1 where the chunk is
absent. So the row of a key is at base[key >> bits] + (key & (2**bits − 1)) of values [slots, width].

Changes that wait (of one worker in one clock): deltas [rows, width] by key, valid where stamp [rows] int32 equals the
number of this use; keys [rows] int32 lists them in the order of their first change.

locks [a power of two] int64, as in `cached_rows`; empty where no other thread changes rows meanwhile.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.atomics import store
from stretto.kernels.core.compile import kernel, merged

from .cached_rows import hold


@merged
def slot_of(key, bits, base):
    """Return the slot of a row, −1 where its chunk is absent."""
    first = base[key >> bits]
    if first < 0:
        return np.int64(-1)
    return first + (key & ((np.int64(1) << bits) - 1))


@kernel
def gather(keys, bits, base, values, out, locks):
    """out[i] = the row of keys[i]. All chunks must be present."""
    width, mask = values.shape[1], locks.shape[0] - 1
    locked = mask >= 0 and width > 1  # a single number is read atomically without a lock
    for i in range(keys.shape[0]):
        s = slot_of(keys[i], bits, base)
        if locked:
            hold(locks, s & mask)
        for k in range(width):
            out[i, k] = values[s, k]
        if locked:
            store(locks, s & mask, 0)


@kernel
def scatter(keys, deltas, bits, base, values, locks, dirty):
    """Add deltas [n, width] to rows, and mark their chunks in dirty [chunks] uint8. All chunks must be present."""
    width, mask = values.shape[1], locks.shape[0] - 1
    for i in range(keys.shape[0]):
        s = slot_of(keys[i], bits, base)
        if mask >= 0:
            hold(locks, s & mask)
        for k in range(width):
            values[s, k] += deltas[i, k]
        if mask >= 0:
            store(locks, s & mask, 0)
        dirty[keys[i] >> bits] = 1


@kernel
def collect(keys, given, stamp, use, deltas, listed, count):
    """Add given [n, width] to changes that wait; return how many rows are listed now."""
    width = deltas.shape[1]
    for i in range(keys.shape[0]):
        key = keys[i]
        if stamp[key] == use:
            for k in range(width):
                deltas[key, k] += given[i, k]
        else:
            stamp[key] = use
            listed[count] = key
            count += 1
            for k in range(width):
                deltas[key, k] = given[i, k]
    return count


@kernel
def collect_at(places, known, given, deltas):
    """Add given [n, width] to changes at their places, of which those from `known` on are new, in ascending order."""
    width = deltas.shape[1]
    for i in range(places.shape[0]):
        p = places[i]
        if p == known:
            known += 1
            for k in range(width):
                deltas[p, k] = given[i, k]
        else:
            for k in range(width):
                deltas[p, k] += given[i, k]


@kernel
def add_waiting(keys, stamp, use, deltas, out):
    """out[i] += the waiting change of keys[i], where there is one."""
    width = deltas.shape[1]
    for i in range(keys.shape[0]):
        key = keys[i]
        if stamp[key] == use:
            for k in range(width):
                out[i, k] += deltas[key, k]


@kernel
def apply_waiting(listed, count, deltas, bits, base, values, dirty):
    """Add waiting changes to their rows. All chunks must be present."""
    width = values.shape[1]
    for i in range(count):
        key = np.int64(listed[i])
        s = slot_of(key, bits, base)
        for k in range(width):
            values[s, k] += deltas[key, k]
        dirty[key >> bits] = 1


@kernel
def absent(keys, bits, base, out):
    """out[: returned] = the positions i of keys whose chunk is absent."""
    count = 0
    for i in range(keys.shape[0]):
        if base[keys[i] >> bits] < 0:
            out[count] = i
            count += 1
    return count
