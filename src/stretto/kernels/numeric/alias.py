"""Alias tables (Vose): draw an index with probability proportional to its weight, in constant time.

A table of n weights is two arrays: `chance`, the probability that slot j returns j, and the index returned otherwise.

    weights 1, 3:    chance [0.5, 1.0], other [1, 1]
    slot 0 (half of the draws) returns 0 or 1, equally often; slot 1 returns 1. So 1 is three times as frequent.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel, merged

_ONE = np.float32(1.0)
_HALF = np.float32(1.0 / 4294967296.0)
_LOW = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


@merged
def alias(weights, n, whole, chance, other, left):
    """Fill an alias table for weights [n] with the sum `whole`, by Vose's method."""
    small = 0
    large = n
    scale = np.float32(n) / whole
    for j in range(n):
        chance[j] = weights[j] * scale
        other[j] = j
        if chance[j] < _ONE:
            left[small] = j
            small += 1
        else:
            large -= 1
            left[large] = j
    while small > 0 and large < n:
        small -= 1
        s, g = left[small], left[large]
        other[s] = g
        chance[g] = (chance[g] + chance[s]) - _ONE
        if chance[g] < _ONE:
            large += 1
            left[small] = g
            small += 1
    while large < n:
        chance[left[large]] = _ONE
        large += 1
    while small > 0:
        small -= 1
        chance[left[small]] = _ONE


@merged
def alias_draw(n, chance, other, random):
    """Return a slot or its alias, from 64 random bits."""
    slot = np.int64(((random >> _S32) * np.uint64(n)) >> _S32)
    unit = np.float32(np.int64(random & _LOW)) * _HALF
    return slot if unit < chance[slot] else np.int64(other[slot])


@kernel
def fill_alias(weights, whole, chance, other, left):
    """`alias` as an entry point for Python."""
    alias(weights, weights.shape[0], whole, chance, other, left)
