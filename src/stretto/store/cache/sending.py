"""Build Updates from buffered changes: a clock's at its end, some early; rounded where the codec rounds.

Rounding residuals are sent later.

    exact        When a worker ends a clock, its changes are rounded, and the residual is added to its next clock. An
                 early send removes nothing: the worker's whole change of the row so far is sent, rounded, and sent
                 again at the end if it has changed since. So early sends change no bit of the result of a clock.
    otherwise    The residual of an early send stays in the slip. The end of a clock sends f2(change + residual) and
                 keeps the new residual. A residual is sent when its row is next changed, not by itself.
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
from stretto.store.ring import others_of

from .buffer import ChangeBatch, PendingChanges
from .table import CachedTable

Updates = list[tuple[int, Update]]


class Sender:
    """Numbers the Updates of a node to each shard. At most `burst` rows go into one under a managed policy."""

    def __init__(self, layout: Layout, node: int) -> None:
        self._node, self._exact = node, layout.rule.exact
        self._witness = layout.witness
        self._burst = layout.policy.burst[0] if isinstance(layout.policy, Managed) else None
        self._numbers = [0] * layout.nodes
        self._others = {
            table: others_of(layout, table, node) for table, spec in enumerate(layout.tables) if spec.mirrored
        }

    def settle(self, table: CachedTable, slip: PendingChanges, following: PendingChanges | None) -> None:
        """Exact runs: a worker has ended the clock of this slip. Round it, and add the residual to the next slip."""
        count = slip.count
        deltas = slip.deltas[:count]
        sent = round_f2(deltas)
        kernels.lose.exact(deltas, sent)
        if following is not None:
            lost = deltas.any(axis=1)
            table.keep_lost(following, slip.keys[:count][lost], deltas[lost])
        deltas[:] = sent

    def end(self, table: CachedTable, slip: PendingChanges) -> Updates:
        """Updates with the changes of a clock that is over; the slip may be used again."""
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

    def early(self, table: CachedTable, slip: PendingChanges, places: Places, oldest: bool) -> Updates:
        """Updates with changes of a clock that is not over. oldest: no other clock will end before it."""
        batch, places = table.buffer.batch(slip, places, keep=self._exact, locks=table.locks)
        if table.settles:
            batch.deltas = round_f2(batch.deltas)
        elif table.leftovers is not None:
            # Only the next clock to end may take residuals: a checkpoint stores those of all clocks before it.
            if oldest:
                table.take_leftovers(batch.keys, batch.deltas)
            sent = round_f2(batch.deltas)
            kernels.lose.exact(batch.deltas, sent)
            kernels.put_back.exact(places, slip.keys, slip.deltas, table.locks, batch.deltas)
            batch.deltas = sent
        return self._updates(table, slip, batch)

    def _updates(self, table: CachedTable, slip: PendingChanges, batch: ChangeBatch) -> Updates:
        """One message for each shard, or several where they would be too long."""
        if not len(batch):
            return []
        sizes = row_sizes(batch.deltas, batch.versions is not None, table.wire)
        numbers = np.empty(len(batch), np.int64) if table.flight is not None else None
        found: Updates = []
        runs = _runs(batch.shards, self._burst)
        starts = [a for a, _ in runs]
        totals = np.add.reduceat(sizes, starts).tolist() if len(starts) > 1 else [int(sizes.sum())]
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
            found += [(other, update) for other in self._others.get(table.number, ())]
        if table.flight is not None and numbers is not None:
            table.flight.append(batch, numbers)
        return found


def _runs(shards: NDArray[np.int64], burst: int | None) -> list[tuple[int, int]]:
    """(first, end) of the runs of one shard, none longer than `burst`."""
    edges = [0, *(np.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(shards)]
    runs = list(pairwise(edges))
    if burst is None:
        return runs
    return [(at, min(at + burst, b)) for a, b in runs for at in range(a, b, burst)]
