"""Read and add to rows of one array that threads share, with a lock for each chunk of 2**bits rows, or without locks.

locks [a power of two] int64: the lock of a row is (row >> bits) & (size − 1); empty for none. A thread holds one lock
at a time, as long as consecutive rows have the same.
"""

from __future__ import annotations

from stretto.kernels.core.atomics import store
from stretto.kernels.core.compile import kernel, merged

from .cached_rows import hold


@merged
def _switch(locks, held, wanted):
    """Release the held lock and take another; −1 stands for none. Return the one that is held now."""
    if wanted != held:
        if held >= 0:
            store(locks, held, 0)
        if wanted >= 0:
            hold(locks, wanted)
    return wanted


@kernel
def read(array, rows, bits, locks, out):
    """out[i] = array[rows[i]]."""
    mask, held = locks.shape[0] - 1, -1
    for i in range(rows.shape[0]):
        if mask >= 0:
            held = _switch(locks, held, (rows[i] >> bits) & mask)
        for k in range(array.shape[1]):
            out[i, k] = array[rows[i], k]
    _switch(locks, held, -1)


@kernel
def add(array, rows, bits, locks, deltas):
    """array[rows[i]] += deltas[i]."""
    mask, held = locks.shape[0] - 1, -1
    for i in range(rows.shape[0]):
        if mask >= 0:
            held = _switch(locks, held, (rows[i] >> bits) & mask)
        for k in range(array.shape[1]):
            array[rows[i], k] += deltas[i, k]
    _switch(locks, held, -1)


@kernel
def add_at(array, rows, cols, bits, locks, deltas):
    """array[rows[i], cols[i]] += deltas[i]."""
    mask, held = locks.shape[0] - 1, -1
    for i in range(rows.shape[0]):
        if mask >= 0:
            held = _switch(locks, held, (rows[i] >> bits) & mask)
        array[rows[i], cols[i]] += deltas[i]
    _switch(locks, held, -1)
