"""Waves of visits in one compiled call: workers share the visits of a wave, meet, merge their writes, and meet again.

Starting a pass for each wave costs more than a short wave takes. Here the workers wait for each other themselves.
`state` is an int64 array: how many have arrived, over all meetings, and after that the next visit of each wave.

    slot = claim(state, wave)                   the next visit of a wave; past its end when there is none
    met = meet(state, pass_, workers, times)    wait until all workers were here `times` times; False: the pass stopped
    merge(worker, workers, ...)                 target[key] += delta of every visit, in their order
"""

from __future__ import annotations

from . import atomics
from .claims import LEFT, STOP
from .compile import inner

FIRST = 8  # the first cursor; the words before share no cache line with it
_GROUP = 6  # elements that differ in these lowest bits only are merged by one worker: their cache line is its own
_LOOKS = 200  # checks before the processor is offered to another thread


@inner
def claim(state, wave):
    """Claim a visit of a wave; return its number in the wave."""
    return atomics.add(state, FIRST + wave, 1)


@inner
def meet(state, pass_, workers, times):
    """Wait until every worker has come here for the `times`-th time; return whether the pass goes on."""
    atomics.add(state, 0, 1)
    looks = 0
    while atomics.load(state, 0) < workers * times:
        if atomics.load(pass_, STOP) != 0:
            return False
        looks += 1
        if looks > _LOOKS:
            atomics.rest()
    return atomics.load(pass_, STOP) == 0


@inner
def over(pass_):
    """Report that all waves are done."""
    atomics.store(pass_, LEFT, 0)


@inner
def merge(worker, workers, visits, count, keys, delta, target):
    """Add what the visits of a wave wrote to the elements that belong to this worker.

    count [S], keys and delta [S, n]: of each visit how many elements it wrote, which, and the sums of its writes.
    """
    for slot in range(visits):
        for q in range(count[slot]):
            k = keys[slot, q]
            if workers == 1 or (k >> _GROUP) % workers == worker:
                target[k] += delta[slot, q]
