"""Announcements of a node: once all its workers have said what they will add to in a clock, the shards are told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stretto.comm.messages import Announce, Keys

from .layout import Layout


class Announcing:
    """What workers said, until all of a node have."""

    def __init__(self, layout: Layout, node: int) -> None:
        self._layout, self._node = layout, node
        self._said: dict[tuple[int, int], dict[int, Keys]] = {}  # (table, clock) -> worker -> keys

    def add(self, worker: int, table: int, clock: int, keys: Keys) -> None:
        """In this clock the worker will add to these rows of the table only."""
        said = self._said.setdefault((table, clock), {})
        said[worker] = np.union1d(said[worker], keys) if worker in said else np.unique(keys)

    def complete(self, running: Sequence[int]) -> list[tuple[int, Announce]]:
        """Announcements for which no running worker is missing; to every shard of the table, also with no rows."""
        ready = [at for at, said in self._said.items() if all(worker in said for worker in running)]
        messages = []
        for table, clock in sorted(ready):
            keys = np.unique(np.concatenate(list(self._said.pop((table, clock)).values())))
            shards = self._layout.shard_of(table, keys)
            among = self._layout.tables[table].shards
            for shard in range(self._layout.nodes) if among is None else among:
                messages.append((shard, Announce(self._node, table, clock, keys[shards == shard])))
        return messages
