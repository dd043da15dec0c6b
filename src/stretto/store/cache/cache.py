"""The cache of one node: rows its workers read, changes they make, and the messages to the shards about both.

    cache = Cache(layout, node=0)
    if not cache.read(worker, table, keys, out):            # a row is too old, or not held
        ask = cache.want(worker, table, keys)               # [(shard, Fetch)]; wait until `receive` names the worker
    cache.add(worker, table, keys, deltas)
    send = cache.tick(worker)                               # [(shard, message)] when the last worker ends a clock
    woken = cache.receive(message)                          # Rows, ShardClock or Demand of a shard
    send += cache.outgoing                                  # further messages that these calls produced; empty it

A read by a worker in clock t returns

    exact        the row through t, and the worker's own changes of t
    otherwise    the row through rule.need(t) or later, and all changes of this node's workers, sent or not. Where
                 changes do not simply add up, only the shard knows the result: the row as it came

A shard pushes held rows that changed by the end of a clock, and reports when it has pushed all of them (ShardClock). So
every held row is through the last ShardClock of its shard. Under a lazy policy nothing is pushed, and a row stays
through the clock it came with.

Threads: with `locks`, several threads may call `read` and `add` of tables for which `needs_lock` is False
(`CachedTable.free`) at the same time, each for its own worker, and while one thread is in any other call. All other
calls must be made one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Announce, Demand, Dropped, Fetch, Keys, Rows, ShardClock, ToCache, ToShard, Update
from stretto.consistency.clocks import FOREVER, Clocks
from stretto.kernels.tables import cached_rows
from stretto.store.layout import Layout
from stretto.store.recording import Picked

from .announcing import WorkerAnnouncements
from .buffer import NO_LOCKS
from .clocking import ClockQueue
from .picking import Picker
from .sending import Sender
from .table import CachedTable
from .waits import Waits, key_chunks

_LOCKS = 4096


class Cache:
    """The cache of one node.

    Attributes
    ----------
    clocks : Clocks
        Of this node's workers, in order.
    staleness : array [workers of the node, 32]
        Rows read, by how many clocks they were behind the reader's; the last column counts all beyond.
    dirty : bool
        Whether `pick` might return changes.
    open : array [shards] bool or None
        Where set, `pick` leaves out the other shards.
    waiting : workers
        Those that `want` has parked.
    """

    def __init__(
        self, layout: Layout, node: int, locks: bool = False, kept: Mapping[int, dict[str, Any]] | None = None
    ) -> None:
        layout = layout.at(node)
        workers = layout.workers_of(node)
        self.layout, self.node = layout, node
        self._rule, self._first = layout.rule, workers.start
        self._lazy, self._managed = layout.policy.lazy, layout.policy.managed
        self._clocks = Clocks(len(workers))
        self.clocks = self._clocks.values
        self._known = np.zeros(layout.nodes, np.int64)  # the last ShardClock of each shard
        self._seen = np.zeros(layout.nodes, np.int64)  # the last of our Updates that each shard has
        shared = np.zeros(_LOCKS, np.int64) if locks else NO_LOCKS
        self._tables = [
            CachedTable(layout, table, workers, self._seen, shared, (kept or {}).get(table))
            for table in range(len(layout.tables))
        ]
        self.needs_lock = [locks and not table.free for table in self._tables]
        self._sender = Sender(layout, node)
        self._clocking = ClockQueue(layout, node, [table.keys_at_once for table in self._tables])
        self._waits = Waits(layout, node, self._tables, self._known)
        self._picker = Picker(layout, node, self._tables, self._sender)
        self._announcing = WorkerAnnouncements(layout, node)
        self.waiting = self._waits.waiting
        self.staleness: NDArray[np.int64] = np.zeros((len(workers), cached_rows.BINS), np.int64)
        self.outgoing: list[tuple[int, ToShard]] = []
        self.open: NDArray[np.bool_] | None = None
        self.dirty = False
        self._left_at = 0  # the highest clock of workers that have ended: its changes may not have been sent
        self._at = 0  # changes of clocks before this one were sent
        if not len(workers):  # no one waits for this node
            self.outgoing += self._clocking.due(FOREVER, [])

    # -- what workers do ---------------------------------------------------------------------------------------------

    def read(
        self, worker: int, table: int, keys: Keys, out: NDArray[Any], seen: NDArray[np.int32] | None = None
    ) -> bool:
        """Fill out [n, width], and seen [n, workers] with the witness.

        False, with nothing written, when a row is not held or too old.
        """
        cached = self._tables[table]
        pool, i = cached.pool, worker - self._first
        clock = self.clocks[i]
        if seen is None:
            seen = cached.unread
        # Columns that grow may be replaced while they are read, and the old ones get no new values. So the clocks of
        # the shards must be read before the columns.
        known = self._known if pool.index is None else self._known.copy()
        fresh: bool = cached_rows.read.exact(
            pool.find(keys),
            pool.through,
            pool.shard,
            known,
            self._rule.need(clock),
            self._lazy,
            pool.values,
            out,
            pool.witness,
            seen,
            cached.read_locks,
            pool.used,
            clock,
            self.staleness[i],
        )
        if fresh and self._waits.served:
            self._waits.served.pop(worker, None)
        if fresh and cached.aside:
            slip = cached.buffer.current[i]
            if slip.count:
                slip.add_to(keys, out, seen)
        return fresh

    def want(self, worker: int, table: int, keys: Keys) -> list[tuple[int, Fetch]]:
        """After a refused read: the requests to the shards. `receive` names the worker when it may read."""
        need, least = self._rule.need(self.clocks[worker - self._first]), self._rule.need(self._clocks.low)
        return self._waits.want(worker, table, keys, need, min(need, least))

    def add(self, worker: int, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, width] to rows; a key that occurs twice is added to twice."""
        cached = self._tables[table]
        pool, i = cached.pool, worker - self._first
        slip = cached.buffer.current[i]
        if cached.versioned:
            slots = pool.find(keys)
            if pool.bound is not None:
                pool.used[slots[slots >= 0]] = self.clocks[i]
            places = slip.places(keys, pool.versions_at(slots))
        else:
            places = slip.places(keys, locks=cached.locks)
            slots = pool.find(keys) if cached.own else keys
        cached_rows.change.exact(
            places,
            deltas,
            worker,
            slip.deltas,
            slip.witness,
            slip.changed,
            slots,
            cached.own,
            pool.values,
            pool.through,
            pool.witness,
            cached.locks if cached.buffer.reserved else NO_LOCKS,
        )
        self.dirty = self._managed

    def announce(self, worker: int, table: int, clock: int, keys: Keys) -> list[tuple[int, Announce]]:
        """Announce that in this clock the worker will add to no other rows of the table."""
        if not self._rule.speculate:  # announcements are unused
            return []
        self._announcing.add(worker, self.clocks[worker - self._first], table, clock, keys)
        return self._announcing.complete(self._running())

    def tick(self, worker: int) -> list[tuple[int, ToShard]]:
        """End the worker's clock. Returns the messages to send, in order, if it was the node's last to end it."""
        i = worker - self._first
        moved = self._clocks.tick(i)
        for cached in self._tables:
            before = cached.buffer.current[i]
            cached.buffer.move(i, self.clocks[i])
            if cached.settles:
                self._sender.settle(cached, before, cached.buffer.current[i])
        return self._ended() if moved else []

    def leave(self, worker: int) -> list[tuple[int, ToShard]]:
        """The worker has ended: no one waits for it, and its changes are sent when its clock is over."""
        i = worker - self._first
        for cached in self._tables:
            if cached.settles:
                self._sender.settle(cached, cached.buffer.current[i], None)
        self._waits.forget(worker)
        self._left_at = max(self._left_at, self.clocks[i])
        moved = self._clocks.retire(i)
        if self._rule.speculate:
            for cached in self._tables:
                for slip in cached.buffer.slips.values():
                    self._announcing.left(worker, cached.number, slip.clock, slip.keys[: slip.count])
            self.outgoing += self._announcing.complete(self._running())
        return self._ended() if moved else []

    def _running(self) -> list[int]:
        return [self._first + i for i, clock in enumerate(self.clocks) if clock < FOREVER]

    def _ended(self) -> list[tuple[int, ToShard]]:
        """The node's clock has advanced: send the changes of earlier clocks, by clock, worker and table."""
        low = self._clocks.low
        for cached in self._tables:
            cached.starts_ending()
        self._picker.forget()
        self._announcing.forget(low)
        closed = [(cached, slip) for cached in self._tables for slip in cached.buffer.close(low)]
        closed.sort(key=lambda pair: (pair[1].clock, pair[1].worker, pair[0].number))
        updates: list[tuple[int, Update]] = []
        for cached, slip in closed:
            if slip.clock > self._at:  # several clocks end together, and a checkpoint may be between them
                cached.ends(slip.clock)
            updates += self._sender.end(cached, slip)
            cached.buffer.reuse(slip)
        self._at = low
        sends = self._clocking.due(low, updates)
        for cached in self._tables:
            cached.forget_lost(low)
            self._evict(cached)  # after these sends, so rows that only this clock used may be evicted
        return sends

    # -- messages of shards ------------------------------------------------------------------------------------------

    def receive(self, message: ToCache) -> list[int]:
        """Take a message of a shard; returns the workers whose wait is over."""
        if isinstance(message, Rows):
            return self._rows(message)
        shard = message.shard
        if isinstance(message, ShardClock):
            self._known[shard] = message.clock
            self._seen[shard] = max(self._seen[shard], message.seen)
            return self._waits.over(shard) if self.waiting and not self._lazy else []
        assert isinstance(message, Demand)
        self.outgoing += self._clocking.demand(shard, message.need, self._clocks.low)
        return []

    def _rows(self, message: Rows) -> list[int]:
        cached, shard = self._tables[message.table], message.shard
        pool = cached.pool
        self._seen[shard] = max(self._seen[shard], message.seen)
        # The version of a row must be read before it is replaced, and only for rows that are taken.
        old = pool.versions_at(pool.find(message.keys)) if cached.versioned else None
        slots = cached.install(message)
        if old is not None or message.scale is not None or pool.bound is not None:
            taken = slots >= 0
            taken[taken] = pool.through[slots[taken]] >= 0
        if old is not None and message.versions is not None:
            gone = taken & (old >= 0) & (old != message.versions)
            if gone.any():
                due = max(self._clocks.high, self._left_at) + 1
                self._clocking.release(shard, due, message.table, message.keys[gone], old[gone])
            pool.version[slots[taken]] = message.versions[taken]
        if message.scale is not None:
            pool.scale[slots[taken]] = message.scale[taken]
        if message.reply:
            self.outgoing += self._waits.answered(message.table, slots)
        woken = self._waits.over(shard, message.table, message.through) if self.waiting else []
        if pool.bound is not None:
            pool.used[slots[taken]] = np.maximum(pool.used[slots[taken]], self._clocks.low)
            self._evict(cached)
        return woken

    def _evict(self, cached: CachedTable) -> None:
        """Evict rows beyond the bound, and notify their shards."""
        pool = cached.pool
        if pool.bound is None or pool.held <= pool.bound:
            return
        # Changes that name a version must reach the shard before the version is released.
        since = self._clocking.sent_through if cached.versioned else FOREVER
        pinned = self._waits.pinned(cached.number)
        if cached.versioned:
            # A row was last used by a slow worker. A faster one, or one that has left, may still send changes of it.
            slips = [slip.keys[: slip.count] for slip in cached.buffer.slips.values()]
            pinned = np.concatenate([pinned, *slips, *self._clocking.unsent(cached.number)])
        slots = pool.surplus(pinned, since)
        keys, shards = pool.keys_at(slots), pool.shard[slots]
        versions = pool.version[slots] if cached.versioned else None
        pool.let_go(slots)
        for shard in np.unique(shards).tolist():
            here = np.flatnonzero(shards == shard)
            for some in key_chunks(here[np.argsort(keys[here])], cached.keys_at_once):
                held = None if versions is None else versions[some]
                self.outgoing.append((shard, Dropped(self.node, cached.number, keys[some], held)))

    # -- between clocks ----------------------------------------------------------------------------------------------

    def pick(self, rows: int) -> list[tuple[int, Update]]:
        """The highest-ranked changes, at most `rows` rows, to be sent before their clock ends."""
        self.dirty = False  # before the ranking: a thread may be adding
        updates, found = self._picker.pick(rows, self._clocks.low, self.open)
        self.dirty = self.dirty or found
        return updates

    def picked(self) -> list[Picked]:
        """Rows picked since the last call, with their ranks; in runs that record everything."""
        found, self._picker.picked = self._picker.picked, []
        return found

    def flush(self) -> list[tuple[int, ToShard]]:
        """Send all changes of clocks that are over, also those that a lazy policy would keep."""
        return self._clocking.flush(self._clocks.low)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def residuals(self, clock: int | None = None) -> dict[str, NDArray[Any]]:
        """Rounding residuals of changes before the node's clock, as arrays "table/worker/keys" and "…/rows".

        clock : of a checkpoint. The node's clock may have advanced by several at once, as when a worker leaves.
        """
        found: dict[str, NDArray[Any]] = {}
        for cached in self._tables:
            for worker, (keys, rows) in cached.lost(self._clocks.low if clock is None else clock).items():
                found[f"{cached.spec.name}/{worker}/keys"] = keys
                found[f"{cached.spec.name}/{worker}/rows"] = rows
        return found

    def restore(self, clock: int, residuals: dict[str, NDArray[Any]]) -> None:
        """Start at this clock as a new cache, with the rounding residuals of that time."""
        self._clocks = Clocks(len(self.clocks), clock)
        self.clocks = self._clocks.values
        self._known[:] = clock
        self._at = clock
        self._clocking.begin(clock)
        for cached in self._tables:
            cached.buffer.begin(clock)
            for worker in (-1, *self.layout.workers_of(self.node)):
                keys = residuals.get(f"{cached.spec.name}/{worker}/keys")
                if keys is not None:
                    cached.give_back(worker, keys, residuals[f"{cached.spec.name}/{worker}/rows"])
