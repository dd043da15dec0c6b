"""Counter-based random numbers: the same key gives the same number, in any thread and order.

`mix` is SplitMix64 applied to a key of four integers. A model keys its numbers by their purpose (seed, purpose, row,
column, epoch), never by thread or order, so the result does not depend on which thread computes it.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11), np.uint64(32)


@inner
def _scramble(x):
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@inner
def mix(a, b, c, d):
    """Return 64 random bits for the key (a, b, c, d)."""
    x = _scramble(np.uint64(a) + _GOLDEN)
    x = _scramble(x ^ (np.uint64(b) + _GOLDEN))
    x = _scramble(x ^ (np.uint64(c) + _GOLDEN))
    return _scramble(x ^ (np.uint64(d) + _GOLDEN))


@inner
def entry_hash(row, col, bits):
    """Return 64 random bits for one entry of a matrix: cheaper than `mix`, for digests."""
    x = _scramble((np.uint64(row) << _S32) + np.uint64(col) + _GOLDEN)
    return _scramble(x ^ np.uint64(bits))


@inner
def uniform(a, b, c, d):
    """Return a float64 in [0, 1) for the key."""
    return np.float64(mix(a, b, c, d) >> _S11) * (1.0 / 9007199254740992.0)


@kernel
def fill_worker(pass_, worker, out, bounds, rows, seed, axis, low, high, width, W):
    """W[p, c] uniform in [low, high) for c < width and zero beyond, keyed by rows[p], the row at position p.

    bounds [V + 1]: positions of each visit; rows [n] int64, −1 for a row of zeros; W [n, padded] float32, zeros.
    """
    v = next_visit(pass_, worker)
    while v >= 0:
        for p in range(bounds[v], bounds[v + 1]):
            if rows[p] < 0:  # its pages need not even be touched
                continue
            for c in range(width):
                W[p, c] = low + (high - low) * uniform(seed, axis, rows[p], c)
        v = next_visit(pass_, worker, v)
