"""Checksums of an array's bytes, to detect changes: Fletcher's two sums, in sixteen lanes of 64 bits."""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel

from .lanes import LANES
from .vector import add, load, load_part, splat, store


@inner
def _sums(words, lo, hi, made, to):
    """made[to : to + 32]: for each lane the sum of words[lo:hi], and then the sum of its running sums."""
    plain, running = splat(np.uint64(0)), splat(np.uint64(0))
    stop = lo + (hi - lo) // LANES * LANES
    for at in range(lo, stop, LANES):
        plain = add(plain, load(words, at))
        running = add(running, plain)
    if stop < hi:
        plain = add(plain, load_part(words, stop, hi - stop))
        running = add(running, plain)
    store(made, to, plain)
    store(made, to + LANES, running)


@kernel
def sums(words, made):
    """made [1, 32] uint64: for each lane the sum of words [n] uint64, and then the sum of its running sums.

    A lane takes every sixteenth word. Exchanging two words changes the sums of their lanes or, within one lane, its
    running sum.
    """
    _sums(words, 0, words.shape[0], made, 0)


@kernel
def sums_worker(pass_, worker, out, bounds, words, made):
    """made [V, 32]: the same for each part of the words, from bounds[v] to bounds[v + 1]."""
    v = next_visit(pass_, worker)
    while v >= 0:
        _sums(words, bounds[v], bounds[v + 1], made, v * made.shape[1])
        v = next_visit(pass_, worker, v)
