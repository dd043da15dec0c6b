"""Detection, in compiled code, of column blocks whose next visit belongs to another process.

Where several processes share the visits of a pass, a process sends a column block on when `col_done` reaches a turn
that another process makes. `leave_at` [C] holds the turn at which each block leaves next, −1 where it does not leave.

    n = await_departures.exact(col_done, leave_at, control, ready, 50)      # ready[:n]: blocks to send now
    arrive.exact(col_done, block, turn)                                     # a block has arrived: its visits are ready
"""

from __future__ import annotations

from . import atomics
from .claims import LEFT, STOP
from .compile import kernel


@kernel
def await_departures(col_done, leave_at, control, ready, nap):
    """Wait until a block has to leave, or the pass is over or stopped; return how many are ready, 0 at the end.

    col_done, leave_at, ready [C], control as in `claims.Pass`; nap: microseconds between two checks.
    """
    while True:
        # Read this first: then the loop below sees every visit that finished before the pass ended.
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
    """Make the visits of a block from `turn` on ready, after all earlier writes to the block (release)."""
    atomics.store(col_done, block, turn)
