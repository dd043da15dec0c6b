"""Announcements of a node: which rows its workers will change in a clock, sent to the shards.

An announcement is sent once all workers of the node have announced the clock. A worker that leaves announces nothing
more; the rows it has changed in open clocks count as its announcement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stretto.comm.messages import Announce, Keys
from stretto.errors import RunError
from stretto.store.layout import Layout


class WorkerAnnouncements:
    """Announcements of workers for open clocks."""

    def __init__(self, layout: Layout, node: int) -> None:
        self._layout, self._node = layout, node
        self._announced: dict[tuple[int, int], dict[int, Keys]] = {}  # (table, clock) -> worker -> sorted keys
        self._sent: set[tuple[int, int]] = set()  # (table, clock) sent to the shards

    def add(self, worker: int, now: int, table: int, clock: int, keys: Keys) -> None:
        """Announce that in `clock` the worker, which is in clock `now`, will add to no other rows of the table."""
        said = self._announced.setdefault((table, clock), {})
        if worker not in said:
            said[worker] = np.unique(keys)
            return
        more = keys[~np.isin(keys, said[worker])]
        if len(more):
            raise RunError(
                f"worker {worker}, clock {now}, table {self._layout.tables[table].name!r}: clock {clock} was announced "
                f"before, without row {more[0]}, which others may have read since; announce all rows of a clock at once"
            )

    def left(self, worker: int, table: int, clock: int, keys: Keys) -> None:
        """The worker has left, and workers of this node have added to these rows in this clock."""
        if (table, clock) not in self._sent:
            said = self._announced.setdefault((table, clock), {})
            said[worker] = np.union1d(keys, said[worker]) if worker in said else np.unique(keys)

    def complete(self, running: Sequence[int]) -> list[tuple[int, Announce]]:
        """Announcements that all running workers have made; for every shard of the table, also without rows."""
        ready = [
            at
            for at, said in self._announced.items()
            if running and at not in self._sent and all(worker in said for worker in running)
        ]
        messages = []
        for table, clock in sorted(ready):
            self._sent.add((table, clock))
            keys = np.unique(np.concatenate(list(self._announced[table, clock].values())))
            shards = self._layout.shard_of(table, keys)
            among = self._layout.tables[table].shards
            for shard in range(self._layout.nodes) if among is None else among:
                messages.append((shard, Announce(self._node, table, clock, keys[shards == shard])))
        return messages

    def forget(self, before: int) -> None:
        """Clocks < before are over."""
        for at in [at for at in self._announced if at[1] < before]:
            del self._announced[at]
            self._sent.discard(at)
