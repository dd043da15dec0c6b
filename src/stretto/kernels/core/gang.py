"""Workers that help one leader through its loops.

An algorithm that is one long thread of decisions, with a few heavy loops in it, is written for a leader: when it comes
to such a loop it announces how many pieces there are, and whoever is free takes the next one. Pieces of one loop write
to different places and read nothing another one writes, so it does not matter who makes which.

    leader:   gang.announce(control, kind, pieces)          helper:   while True:
              i = gang.take(control)                                      i = gang.take(control)
              while i >= 0:                                               if i == gang.OVER: return
                  work(kind, i)                                           if i >= 0:
                  gang.made(control)                                          work(gang.kind(control), i)
                  i = gang.take(control)                                      gang.made(control)
              gang.wait(control)                                          else: atomics.rest()

control [CONTROL] int64, zeros at the start. A ticket holds the loop's number, its pieces and the next piece in one
word, so that a helper who comes late can tell that what it has taken belongs to a loop that is over.
"""

from __future__ import annotations

from . import atomics
from .compile import inner

# One cache line each.
LEADER, TICKET, MADE, KIND, ENDED = 0, 8, 16, 24, 32
CONTROL = 40
NOTHING, OVER = -1, -2
_BITS = 20
_MASK = (1 << _BITS) - 1


@inner
def lead(control):
    """Whether this worker is the leader: the first that asks."""
    return atomics.claim(control, LEADER)


@inner
def announce(control, kind, pieces):
    """Open a loop of `pieces` < 2²⁰ pieces; the loop before is over."""
    atomics.store(control, KIND, kind)
    atomics.store(control, MADE, 0)
    number = (atomics.load(control, TICKET) >> (2 * _BITS)) + 1
    atomics.store(control, TICKET, (number << (2 * _BITS)) | (pieces << _BITS))


@inner
def take(control):
    """The next piece; NOTHING when there is none, OVER when the leader has ended."""
    ticket = atomics.load(control, TICKET)
    if (ticket & _MASK) < ((ticket >> _BITS) & _MASK):
        ticket = atomics.add(control, TICKET, 1)
        if (ticket & _MASK) < ((ticket >> _BITS) & _MASK):
            return ticket & _MASK
    return OVER if atomics.load(control, ENDED) != 0 else NOTHING


@inner
def kind(control):
    """What the loop that a piece was taken from does; it cannot change before that piece is made."""
    return atomics.load(control, KIND)


@inner
def made(control):
    """A piece is made."""
    atomics.add(control, MADE, 1)


@inner
def wait(control):
    """The leader waits until every piece of its loop is made."""
    while atomics.load(control, MADE) < ((atomics.load(control, TICKET) >> _BITS) & _MASK):
        atomics.rest()


@inner
def end(control):
    """Let the helpers go."""
    atomics.store(control, ENDED, 1)
