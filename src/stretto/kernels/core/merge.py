"""Folding what the visits of a wave added into the state, visit after visit; every worker has elements of its own."""

from __future__ import annotations

from .claims import next_visit
from .compile import kernel


@kernel
def add_all(delta, target):
    """The same by one thread, without a pass: for states so small that starting one costs more."""
    for slot in range(delta.shape[0]):
        for k in range(target.shape[0]):
            target[k] += delta[slot, k]
            delta[slot, k] = 0


@kernel
def add_worker(pass_, worker, out, bounds, delta, target):
    """target[k] += delta[0, k], then delta[1, k], …; delta is cleared. bounds [V + 1]: elements of each visit."""
    v = next_visit(pass_, worker)
    while v >= 0:
        for slot in range(delta.shape[0]):
            for k in range(bounds[v], bounds[v + 1]):
                target[k] += delta[slot, k]
                delta[slot, k] = 0
        v = next_visit(pass_, worker, v)
