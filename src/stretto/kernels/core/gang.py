"""A leader thread and helper threads that share the leader's heavy loops, chunk by chunk.

An algorithm that is mostly serial, with a few heavy loops, is written for a leader. The leader announces each heavy
loop and its number of chunks; every free worker takes the next chunk. Chunks of one loop write to different memory and
read nothing that another chunk writes, so the result does not depend on which worker processes which chunk.

    leader:   gang.announce(control, kind, chunks)          helper:   while True:
              i = gang.take(control)                                      i = gang.take(control)
              while i >= 0:                                               if i == gang.OVER: return
                  work(kind, i)                                           if i >= 0:
                  gang.made(control)                                          work(gang.kind(control), i)
                  i = gang.take(control)                                      gang.made(control)
              gang.wait(control)                                          else: atomics.rest()

control [CONTROL] int64, zeros at the start. A ticket holds the loop's number, its chunk count and the next chunk in
one word, so a late helper detects that its chunk belongs to a loop that is over.
"""

from __future__ import annotations

from . import atomics
from .compile import inner

# Each slot is in a cache line of its own.
LEADER, TICKET, MADE, KIND, ENDED = 0, 8, 16, 24, 32
CONTROL = 40
NOTHING, OVER = -1, -2
_BITS = 20
_MASK = (1 << _BITS) - 1


@inner
def lead(control):
    """Whether this worker is the leader: the first one that calls this."""
    return atomics.claim(control, LEADER)


@inner
def announce(control, kind, pieces):
    """Open a loop with fewer than 2²⁰ chunks; the loop before must be over."""
    atomics.store(control, KIND, kind)
    atomics.store(control, MADE, 0)
    number = (atomics.load(control, TICKET) >> (2 * _BITS)) + 1
    atomics.store(control, TICKET, (number << (2 * _BITS)) | (pieces << _BITS))


@inner
def take(control):
    """Return the next chunk; NOTHING when none is left, OVER when the leader has ended."""
    ticket = atomics.load(control, TICKET)
    if (ticket & _MASK) < ((ticket >> _BITS) & _MASK):
        ticket = atomics.add(control, TICKET, 1)
        if (ticket & _MASK) < ((ticket >> _BITS) & _MASK):
            return ticket & _MASK
    return OVER if atomics.load(control, ENDED) != 0 else NOTHING


@inner
def kind(control):
    """Return the kind of the loop that a chunk was taken from; it cannot change before that chunk is finished."""
    return atomics.load(control, KIND)


@inner
def made(control):
    """Mark one chunk as finished."""
    atomics.add(control, MADE, 1)


@inner
def wait(control):
    """Wait, as the leader, until every chunk of the loop is finished."""
    while atomics.load(control, MADE) < ((atomics.load(control, TICKET) >> _BITS) & _MASK):
        atomics.rest()


@inner
def end(control):
    """End the helpers."""
    atomics.store(control, ENDED, 1)
