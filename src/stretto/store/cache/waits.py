"""Reads that wait for rows: which rows are requested from which shard, and which waits are over.

A row is requested once, however many workers wait for it. Rows that are not held are requested as the slowest worker of
the node needs them: they come soon, and newer changes for faster workers are pushed as to every holder. (A request for
the reader's own need could wait for a clock that the slowest worker cannot end, because it waits for the same row.)
Rows that are held and too old are requested where nothing is pushed (lazy), or where an answer may arrive before the
clock does (speculation). Of several needs the lowest is requested at once, the next after its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Fetch, Keys
from stretto.kernels.tables import cached_rows
from stretto.store.index import Places
from stretto.store.layout import Layout

from .table import CachedTable


@dataclass(slots=True, eq=False)
class Wait:
    """A worker waits for `rows` of a table to be through `need`."""

    table: int
    need: int
    rows: Keys
    missing: dict[int, Keys]  # rows that are not through `need` yet, by shard


class Waits:
    """Waiting reads of one node.

    known [shards] : the last ShardClock of each shard; under a lazy policy shards send none.
    """

    def __init__(self, layout: Layout, node: int, tables: Sequence[CachedTable], known: NDArray[np.int64]) -> None:
        self._node, self._tables, self._known = node, tables, known
        self._lazy = layout.policy.lazy
        self._chases = layout.policy.lazy or layout.rule.speculate
        self.waiting: dict[int, Wait] = {}
        self.served: dict[int, Wait] = {}  # waits that are over, while the worker has not read yet

    def want(self, worker: int, table: int, keys: Keys, need: int, least: int) -> list[tuple[int, Fetch]]:
        """Let a worker wait for these rows; returns the requests. least: the need of the node's slowest worker."""
        pool = self._tables[table].pool
        slots = pool.place(keys)
        missing = np.unique(slots[self._unmet(table, slots, need)])
        self.forget(worker)
        if not len(missing):
            return []
        self.waiting[worker] = Wait(table, need, keys, by_shard(pool.keys_at(missing), pool.shard[missing]))
        if self._lazy:
            return self._fetch(table, missing, need)
        absent = pool.through[missing] < 0
        fetches = self._fetch(table, missing[absent], least)
        if self._chases:
            fetches += self._fetch(table, missing[~absent], need)
        return fetches

    def _unmet(self, table: int, slots: Places, need: int) -> Places:
        """Which of these rows are not held or not through `need`, as positions."""
        pool = self._tables[table].pool
        out = np.empty(len(slots), np.int64)
        count = cached_rows.unmet.exact(slots, pool.through, pool.shard, self._known, need, self._lazy, out)
        return out[:count]

    def _fetch(self, table: int, slots: Places, need: int) -> list[tuple[int, Fetch]]:
        """Requests for those of these rows that were not requested, or only with a higher need."""
        pool = self._tables[table].pool
        pending = pool.pending[slots]
        slots = slots[(pending < 0) | (pending > need)]
        pool.requested(slots, need)
        split = by_shard(pool.keys_at(slots), pool.shard[slots])
        most = self._tables[table].keys_at_once
        return [
            (shard, Fetch(self._node, table, part, need))
            for shard, keys in split.items()
            for part in key_chunks(keys, most)
        ]

    def answered(self, table: int, slots: Places) -> list[tuple[int, Fetch]]:
        """The answer to a Fetch has arrived; returns further requests. Of several needs the lowest comes first."""
        pool = self._tables[table].pool
        pool.pending[slots] = -1
        fetches: list[tuple[int, Fetch]] = []
        if self._chases:
            waits = [wait for wait in self.waiting.values() if wait.table == table]
            for wait in sorted(waits, key=lambda wait: wait.need):
                late = pool.find(np.concatenate([*wait.missing.values()]))
                late = late[np.isin(late, slots)]
                fetches += self._fetch(table, late[self._unmet(table, late, wait.need)], wait.need)
        return fetches

    def over(self, shard: int, table: int | None = None, through: int = -1) -> list[int]:
        """Workers whose waits are over after a message of a shard, about one table through a clock or about all."""
        woken = []
        through = max(through, int(self._known[shard]))
        for worker, wait in self.waiting.items():
            keys = wait.missing.get(shard)
            # A message that is older than the need cannot end the wait.
            if keys is None or wait.need > through or (table is not None and wait.table != table):
                continue
            if not len(self._unmet(wait.table, self._tables[wait.table].pool.find(keys), wait.need)):
                del wait.missing[shard]
                if not wait.missing:
                    woken.append(worker)
        for worker in woken:
            self.served[worker] = self.waiting.pop(worker)
        return woken

    def forget(self, worker: int) -> None:
        """The worker has read, has ended, or wants something else."""
        self.waiting.pop(worker, None)
        self.served.pop(worker, None)

    def pinned(self, table: int) -> Keys:
        """Rows of a table that workers wait for: they must stay in the cache until all have arrived and were read."""
        waits = [*self.waiting.values(), *self.served.values()]
        rows = [wait.rows for wait in waits if wait.table == table]
        return np.concatenate(rows) if rows else np.empty(0, np.int64)


def key_chunks(keys: Keys, most: int | None) -> list[Keys]:
    """Cut keys into chunks of at most `most`; one chunk without a bound.

    >>> key_chunks(np.array([4, 5, 9]), 2), key_chunks(np.array([4, 5, 9]), None)
    ([array([4, 5]), array([9])], [array([4, 5, 9])])
    """
    return [keys[at : at + (most or len(keys))] for at in range(0, len(keys), most or max(1, len(keys)))]


def by_shard(keys: Keys, shards: NDArray[np.int32]) -> dict[int, Keys]:
    """Keys of each shard, ascending.

    >>> by_shard(np.array([9, 4, 7]), np.array([1, 0, 1], np.int32))
    {0: array([4]), 1: array([7, 9])}
    """
    if not len(keys):
        return {}
    order = np.lexsort((keys, shards))
    keys, shards = keys[order], shards[order]
    edges = np.flatnonzero(shards[1:] != shards[:-1]) + 1
    return dict(zip(shards[np.append(0, edges)].tolist(), np.split(keys, edges), strict=True))
