"""The cache of one node: rows its workers read, changes they make, and what is said to the shards about both.

    cache = Cache(layout, node=0)
    if not cache.read(worker, table, keys, out):            # not fresh enough, or not here
        ask = cache.want(worker, table, keys)               # [(shard, Fetch)]; wait until `receive` names the worker
    cache.add(worker, table, keys, deltas)
    send = cache.tick(worker)                               # [(shard, message)] when the last worker ends a clock
    woken = cache.receive(message)                          # Rows, ShardClock or Demand of a shard
    send += cache.outgoing                                  # what any of these calls left to be sent; empty it

What a read finds, for a worker in clock t:

    exact        the row through t, and what the worker itself has added in t
    otherwise    the row through rule.need(t) or later, and all that workers of this node have added, sent or not (where
                 changes simply add up; where only the shard knows what becomes of them, the row as it came)

A row that is held is pushed again whenever it changed by the end of a clock, and a shard says when it has pushed all
(ShardClock): so every held row is through the last ShardClock of its shard. Under a lazy policy nothing is pushed, and
a row is through what it was when it came.

Threads: with `locks`, `read` and `add` of tables for which `needs_lock` is False (`CachedTable.free`) may be called by
several threads at once, each for a worker of its own, and while one thread is in any other call. All else takes turns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Announce, Demand, Dropped, Fetch, Keys, Rows, ShardClock, ToCache, ToShard, Update
from stretto.consistency.clocks import FOREVER, Clocks
from stretto.kernels.tables import cached_rows
from stretto.store.layout import Layout
from stretto.store.recording import Picked

from .announcing import Announcing
from .buffer import NO_LOCKS
from .clocking import Clocking
from .picking import Picker
from .sending import Sender
from .table import CachedTable
from .waits import Waits, pieces

_LOCKS = 4096


class Cache:
    """clocks: of this node's workers, in order. staleness [workers of the node, 32]: rows read, by how many clocks they
    were behind the reader's; the last column counts all beyond. dirty: `pick` might give something; it leaves out
    shards that are not `open` [shards], where that is set. waiting: workers that `want` parked."""

    def __init__(self, layout: Layout, node: int, locks: bool = False) -> None:
        workers = layout.workers_of(node)
        self.layout, self.node = layout, node
        self._rule, self._first = layout.rule, workers.start
        self._lazy, self._managed = layout.policy.lazy, layout.policy.managed
        self._clocks = Clocks(len(workers))
        self.clocks = self._clocks.values
        self._known = np.zeros(layout.nodes, np.int64)  # the last ShardClock of each shard
        self._seen = np.zeros(layout.nodes, np.int64)  # the last of our Updates that each shard has
        shared = np.zeros(_LOCKS, np.int64) if locks else NO_LOCKS
        self._tables = [CachedTable(layout, table, workers, self._seen, shared) for table in range(len(layout.tables))]
        self.needs_lock = [locks and not table.free for table in self._tables]
        self._sender = Sender(layout, node)
        self._clocking = Clocking(layout, node, [table.keys_at_once for table in self._tables])
        self._waits = Waits(layout, node, self._tables, self._known)
        self._picker = Picker(layout, node, self._tables, self._sender)
        self._announcing = Announcing(layout, node)
        self.waiting = self._waits.waiting
        self.staleness: NDArray[np.int64] = np.zeros((len(workers), cached_rows.BINS), np.int64)
        self.outgoing: list[tuple[int, ToShard]] = []
        self.open: NDArray[np.bool_] | None = None
        self.dirty = False
        self._left_at = 0  # the highest clock of workers that have ended: changes of it may not have been sent
        self._at = 0  # the node's clock, as far as its changes were sent
        if not len(workers):  # nobody has to wait for this node
            self.outgoing += self._clocking.due(FOREVER, [])

    # -- what workers do ---------------------------------------------------------------------------------------------

    def read(
        self, worker: int, table: int, keys: Keys, out: NDArray[Any], seen: NDArray[np.int32] | None = None
    ) -> bool:
        """Fill out [n, width], and seen [n, workers] with the witness; False, with nothing written, when a row is not
        here or too old."""
        cached = self._tables[table]
        pool, i = cached.pool, worker - self._first
        clock = self.clocks[i]
        if seen is None:
            seen = cached.unread
        # Columns that grow may be replaced while they are read, and the old ones get nothing new: what shards said must
        # then be from before they were taken.
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
        """After a read that was refused: what to ask the shards. `receive` names the worker when it may read."""
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
        """In this clock the worker will add to these rows of the table only."""
        if not self._rule.speculate:  # nobody would listen
            return []
        self._announcing.add(worker, self.clocks[worker - self._first], table, clock, keys)
        return self._announcing.complete(self._running())

    def tick(self, worker: int) -> list[tuple[int, ToShard]]:
        """The worker ends its clock. What is to be sent, in order, when it was the last of the node to end it."""
        i = worker - self._first
        moved = self._clocks.tick(i)
        for cached in self._tables:
            before = cached.buffer.current[i]
            cached.buffer.move(i, self.clocks[i])
            if cached.settles:
                self._sender.settle(cached, before, cached.buffer.current[i])
        return self._ended() if moved else []

    def leave(self, worker: int) -> list[tuple[int, ToShard]]:
        """The worker has ended for good: nobody waits for it, and what it added is sent when its clock is over."""
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
        """The node's clock has moved on: what was added in the clocks before is sent, by clock, worker and table."""
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
            self._make_room(cached)  # said after what is sent now, so rows that only this clock used may go
        return sends

    # -- what shards say ---------------------------------------------------------------------------------------------

    def receive(self, message: ToCache) -> list[int]:
        """Take in what a shard said; the workers that wait no longer and may read again."""
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
        # The version a row had must be read before it is replaced, and only of rows that are taken.
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
            self._make_room(cached)
        return woken

    def _make_room(self, cached: CachedTable) -> None:
        """Let go of rows beyond the bound, and tell their shards."""
        pool = cached.pool
        if pool.bound is None or pool.held <= pool.bound:
            return
        # Changes that name a version must reach the shard before it hears that the version is given back.
        since = self._clocking.sent_through if cached.versioned else FOREVER
        pinned = self._waits.pinned(cached.number)
        if cached.versioned:
            # A slower worker's use of a row says nothing of what a faster one, or one that has left, will still send.
            slips = [slip.keys[: slip.count] for slip in cached.buffer.slips.values()]
            pinned = np.concatenate([pinned, *slips, *self._clocking.unsent(cached.number)])
        slots = pool.surplus(pinned, since)
        keys, shards = pool.keys_at(slots), pool.shard[slots]
        versions = pool.version[slots] if cached.versioned else None
        pool.let_go(slots)
        for shard in np.unique(shards).tolist():
            here = np.flatnonzero(shards == shard)
            for some in pieces(here[np.argsort(keys[here])], cached.keys_at_once):
                held = None if versions is None else versions[some]
                self.outgoing.append((shard, Dropped(self.node, cached.number, keys[some], held)))

    # -- between clocks ----------------------------------------------------------------------------------------------

    def pick(self, rows: int) -> list[tuple[int, Update]]:
        """The weightiest changes, at most `rows` rows of them, to be sent before their clock ends."""
        self.dirty = False  # before looking: a thread may be adding
        updates, found = self._picker.pick(rows, self._clocks.low, self.open)
        self.dirty = self.dirty or found
        return updates

    def picked(self) -> list[Picked]:
        """What was picked since this was last asked, and how it was ranked; in runs that record everything."""
        found, self._picker.picked = self._picker.picked, []
        return found

    def flush(self) -> list[tuple[int, ToShard]]:
        """Send everything of clocks that are over, also what a lazy policy would keep."""
        return self._clocking.flush(self._clocks.low)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def residuals(self, clock: int | None = None) -> dict[str, NDArray[Any]]:
        """What rounding took from changes of clocks before the node's, as arrays "table/worker/keys" and "…/rows".

        clock: of a checkpoint, where the node's may have moved on by several at once, as when a worker leaves.
        """
        found: dict[str, NDArray[Any]] = {}
        for cached in self._tables:
            for worker, (keys, rows) in cached.lost(self._clocks.low if clock is None else clock).items():
                found[f"{cached.spec.name}/{worker}/keys"] = keys
                found[f"{cached.spec.name}/{worker}/rows"] = rows
        return found

    def restore(self, clock: int, residuals: dict[str, NDArray[Any]]) -> None:
        """Begin at this clock, as a new cache, with what rounding had left then."""
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
