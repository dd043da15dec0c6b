"""Blocks that leave: looking, in compiled code, for column blocks whose next visit is made elsewhere.

Where the visits of a pass are spread over several processes, a column block is handed on when `col_done` has come to a
turn that another process makes. `leave_at` [C] says at which turn each block leaves next, −1 where it does not.

    n = await_departures.exact(col_done, leave_at, control, ready, 50)      # ready[:n]: blocks that have to leave now
    arrive.exact(col_done, block, turn)                                     # a block has come: its visits may go on
"""

from __future__ import annotations

from . import atomics
from .claims import LEFT, STOP
from .compile import kernel


@kernel
def await_departures(col_done, leave_at, control, ready, nap):
    """Wait until a block has to leave, or the pass is over or stopped; how many are ready, 0 when it is over.

    col_done, leave_at, ready [C], control as in `claims.Pass`; nap: microseconds between two looks.
    """
    while True:
        # Asked first: what was finished before the pass was over is then seen below.
        over = atomics.load(control, STOP) != 0 or atomics.load(control, LEFT) == 0
        found = 0
        for c in range(leave_at.shape[0]):
            if leave_at[c] >= 0 and atomics.load(col_done, c) == leave_at[c]:
                ready[found] = c
                found += 1
        if found > 0 or over:
            return found
        atomics.nap(nap)


@kernel
def arrive(col_done, block, turn):
    """The visits of a block from `turn` on may be made: after everything that was written to it before."""
    atomics.store(col_done, block, turn)
