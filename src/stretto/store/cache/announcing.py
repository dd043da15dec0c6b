"""Announcements of a node: once all its workers have said what they will add to in a clock, the shards are told.

A worker that leaves says nothing more, so what it has added in clocks that are not over speaks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stretto.comm.messages import Announce, Keys
from stretto.errors import RunError
from stretto.store.layout import Layout


class Announcing:
    """What workers said of clocks that are not over."""

    def __init__(self, layout: Layout, node: int) -> None:
        self._layout, self._node = layout, node
        self._said: dict[tuple[int, int], dict[int, Keys]] = {}  # (table, clock) -> worker -> sorted keys
        self._told: set[tuple[int, int]] = set()  # those the shards know

    def add(self, worker: int, now: int, table: int, clock: int, keys: Keys) -> None:
        """In this clock the worker, which is in clock `now`, will add to these rows of the table only."""
        said = self._said.setdefault((table, clock), {})
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
        """The worker has left, and these rows were added to in this clock, by it or by others of the node."""
        if (table, clock) not in self._told:
            said = self._said.setdefault((table, clock), {})
            said[worker] = np.union1d(keys, said[worker]) if worker in said else np.unique(keys)

    def complete(self, running: Sequence[int]) -> list[tuple[int, Announce]]:
        """Announcements for which no running worker is missing; to every shard of the table, also with no rows."""
        ready = [
            at
            for at, said in self._said.items()
            if running and at not in self._told and all(worker in said for worker in running)
        ]
        messages = []
        for table, clock in sorted(ready):
            self._told.add((table, clock))
            keys = np.unique(np.concatenate(list(self._said[table, clock].values())))
            shards = self._layout.shard_of(table, keys)
            among = self._layout.tables[table].shards
            for shard in range(self._layout.nodes) if among is None else among:
                messages.append((shard, Announce(self._node, table, clock, keys[shards == shard])))
        return messages

    def forget(self, before: int) -> None:
        """Clocks < before are over."""
        for at in [at for at in self._said if at[1] < before]:
            del self._said[at]
            self._told.discard(at)
