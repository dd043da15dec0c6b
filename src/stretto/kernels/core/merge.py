"""Add the changes of a wave's visits to the state, in visit order; each worker takes a range of elements."""

from __future__ import annotations

from .claims import next_visit
from .compile import kernel


@kernel
def add_all(delta, target):
    """Do the same in one thread, without a pass: for states so small that starting a pass costs more."""
    for slot in range(delta.shape[0]):
        for k in range(target.shape[0]):
            target[k] += delta[slot, k]
            delta[slot, k] = 0


@kernel
def add_worker(pass_, worker, out, bounds, delta, target):
    """target[k] += delta[0, k], then delta[1, k], …; clear delta. bounds [V + 1]: elements of each visit."""
    v = next_visit(pass_, worker)
    while v >= 0:
        for slot in range(delta.shape[0]):
            for k in range(bounds[v], bounds[v + 1]):
                target[k] += delta[slot, k]
                delta[slot, k] = 0
        v = next_visit(pass_, worker, v)
