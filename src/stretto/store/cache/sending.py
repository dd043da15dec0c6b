"""Making Updates of changes: one clock's at its end, some of them early; rounded where the codec says so.

Rounding gives back what it takes away, later.

    exact        when a worker ends a clock, its changes are rounded, and what is lost is the first it adds in its next.
                 An early send takes nothing out: all that the worker has added to the row so far goes, rounded, and
                 goes again at the end if it has changed since. So early sends change no bit of what a clock comes to
    otherwise    what an early send loses stays in the slip; the end of a clock sends f2(change + leftover) and keeps
                 what is lost as the leftover. A leftover travels when its row is next changed, not by itself
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stretto.comm.codec import round_f2
from stretto.comm.messages import HEADER, Update
from stretto.comm.policy import Managed
from stretto.comm.sizes import row_sizes
from stretto.kernels.tables import pending_changes as kernels
from stretto.store.index import Places
from stretto.store.layout import Layout

from .buffer import Batch, Slip
from .table import CachedTable

Updates = list[tuple[int, Update]]


class Sender:
    """Numbers the Updates of a node to each shard. At most `burst` rows go into one under a managed policy."""

    def __init__(self, layout: Layout, node: int) -> None:
        self._node, self._exact = node, layout.rule.exact
        self._witness = layout.witness
        self._burst = layout.policy.burst[0] if isinstance(layout.policy, Managed) else None
        self._numbers = [0] * layout.nodes

    def settle(self, table: CachedTable, slip: Slip, following: Slip | None) -> None:
        """Exact runs: a worker has ended the clock of this slip. Round it, and let what is lost begin the next one."""
        count = slip.count
        deltas = slip.deltas[:count]
        sent = round_f2(deltas)
        kernels.lose.exact(deltas, sent)
        if following is not None:
            lost = deltas.any(axis=1)
            table.keep_lost(following, slip.keys[:count][lost], deltas[lost])
        deltas[:] = sent

    def end(self, table: CachedTable, slip: Slip) -> Updates:
        """The changes of a clock that is over; the slip may be used again."""
        left = table.leftovers
        if left is None:
            batch, _ = table.buffer.batch(slip, slip.dirty(), keep=True)
            return self._updates(table, slip, batch)
        changed = slip.changed[: slip.count] != 0
        batch, places = table.buffer.batch(slip, np.arange(slip.count), keep=True)
        changed = changed[places]
        left.keep(batch.keys[~changed], batch.deltas[~changed])
        batch = batch.only(changed)
        left.move_to(batch.keys, batch.deltas)
        sent = round_f2(batch.deltas)
        kernels.lose.exact(batch.deltas, sent)
        left.keep(batch.keys, batch.deltas)
        batch.deltas = sent
        return self._updates(table, slip, batch)

    def early(self, table: CachedTable, slip: Slip, places: Places, oldest: bool) -> Updates:
        """Changes of a clock that is not over. oldest: no other clock will end before it."""
        batch, places = table.buffer.batch(slip, places, keep=self._exact, locks=table.locks)
        if table.settles:
            batch.deltas = round_f2(batch.deltas)
        elif table.leftovers is not None:
            # Only the next clock to end may take leftovers along: a checkpoint finds those of all clocks before it.
            if oldest:
                table.take_leftovers(batch.keys, batch.deltas)
            sent = round_f2(batch.deltas)
            kernels.lose.exact(batch.deltas, sent)
            kernels.put_back.exact(places, slip.keys, slip.deltas, table.locks, batch.deltas)
            batch.deltas = sent
        return self._updates(table, slip, batch)

    def _updates(self, table: CachedTable, slip: Slip, batch: Batch) -> Updates:
        """One message for each shard, or several where they would be too long."""
        if not len(batch):
            return []
        sizes = row_sizes(batch.deltas, batch.versions is not None, table.wire)
        numbers = np.empty(len(batch), np.int64) if table.flight is not None else None
        found: Updates = []
        runs = _runs(batch.shards, self._burst)
        starts = [a for a, _ in runs]
        totals = np.add.reduceat(sizes, starts).tolist()
        for (a, b), shard, total in zip(runs, batch.shards[starts].tolist(), totals, strict=True):
            self._numbers[shard] += 1
            number = self._numbers[shard]
            if numbers is not None:
                numbers[a:b] = number
            update = Update(
                table.number,
                self._node,
                number,
                slip.clock,
                slip.worker,
                batch.keys[a:b],
                batch.deltas[a:b],
                HEADER + total,
                self._exact,
                None if batch.versions is None else batch.versions[a:b],
                batch.witness[a:b] if self._witness else None,
            )
            found.append((shard, update))
        if table.flight is not None and numbers is not None:
            table.flight.append(batch, numbers)
        return found


def _runs(shards: NDArray[np.int64], burst: int | None) -> list[tuple[int, int]]:
    """(first, end) of the stretches of one shard, none longer than `burst`."""
    edges = [0, *(np.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(shards)]
    runs = list(pairwise(edges))
    if burst is None:
        return runs
    return [(at, min(at + burst, b)) for a, b in runs for at in range(a, b, burst)]
