"""Sums over the bytes of an array, by which a change is noticed: Fletcher's two sums, in sixteen lanes of 64 bits."""

from __future__ import annotations

import numpy as np

from .compile import kernel
from .lanes import LANES
from .vector import add, load, load_part, splat, store


@kernel
def sums(words, lo, hi, out):
    """out [32] uint64: for each lane the sum of words[lo:hi], uint64, and then the sum of its running sums.

    A lane takes every sixteenth word. Two words that change places change the sums of their lanes, or, in one lane, its
    running sum.
    """
    plain, running = splat(np.uint64(0)), splat(np.uint64(0))
    stop = lo + (hi - lo) // LANES * LANES
    for at in range(lo, stop, LANES):
        plain = add(plain, load(words, at))
        running = add(running, plain)
    if stop < hi:
        plain = add(plain, load_part(words, stop, hi - stop))
        running = add(running, plain)
    store(out, 0, plain)
    store(out, LANES, running)
