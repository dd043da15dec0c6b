"""A shard: stores rows, applies changes, and sends them to the nodes that hold copies.

It receives messages and returns messages addressed to nodes. Between a node and a shard they keep their order.

    Update      bounded staleness: applied at once. Exact runs: held until its clock closes, then applied by worker
    NodeClock   the node has sent all changes of clocks < c. When the last node has, the shard's clock advances: waiting
                reads are answered, every node receives the changed rows that it holds, then ShardClock
    Fetch       answered if the shard's clock is high enough, parked otherwise
    Dropped     the node no longer holds these rows
    Announce    the rows that a node will change in a clock: reads past the bound may be served (see `announced`)

    shard = Shard(layout, 0)
    for node, message in shard.receive(update):
        ...

With three nodes and SSP(1): nodes 0 and 1 have ended clock 2, node 2 is in it. The shard's clock is 2. A Fetch by node
0, which is in clock 4 and needs rows through 3, is parked. NodeClock(2, 3) arrives: the clock is 3, node 0 gets its
rows, and every node ShardClock(3). `consistency.rules` defines the rule and compares it with the papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import (
    Announce,
    Demand,
    Dropped,
    Fetch,
    Keys,
    NodeClock,
    Rows,
    ShardClock,
    ToCache,
    ToShard,
    Update,
)
from stretto.errors import RunError
from stretto.store.layout import Layout
from stretto.store.recording import Picked

from .announced import ShardAnnouncements
from .applying import Slots
from .held import HeldUpdates
from .snapshot import ShardSnapshot, joined, of_table
from .table import KeyedRows, ShardTable

Answers = list[tuple[int, ToCache]]
Past = tuple[Keys, NDArray[Any], tuple[NDArray[Any], ...]]  # keys [n], values [n, cols], states [n, cols] each
_IDLE = 2**62  # the clock of a node without workers: no one waits for it
_BATCH = 1 << 16  # rows applied together when a clock closes
_ALL = 2**62


class Shard:
    """The shard of one node. rows: of tables whose rows are used in place.

    Attributes
    ----------
    clock : int
        All updates of clocks < clock are in the rows.
    dirty : bool
        Whether `pick` might return rows.
    open : array [nodes] bool or None
        The nodes that `pick` may choose for; None: all. The caller of `pick` may set it.
    """

    def __init__(self, layout: Layout, shard: int, rows: Mapping[int, KeyedRows] | None = None) -> None:
        self.layout, self.number = layout, shard
        self.clock = 0
        self.dirty = False
        self._stage = bool(rows) or bool(layout.homes)  # of a task: states stay here when its workers have ended
        self.open: NDArray[np.bool_] | None = None
        self.tables = [ShardTable(layout, table, shard, (rows or {}).get(table)) for table in range(len(layout.tables))]
        self._clocks = [0 if len(layout.workers_of(node)) else _IDLE for node in range(layout.nodes)]
        self._seen = [0] * layout.nodes
        self._parked: list[tuple[int, Fetch, Slots]] = []  # by need; equal needs in order of arrival
        self._demanded = [0] * layout.nodes
        self._held = HeldUpdates() if layout.rule.exact else None
        self._announced = ShardAnnouncements(layout, self._clocks) if layout.rule.speculate else None
        self._picks = layout.policy.managed and not layout.rule.exact
        self._turn = 0  # the table that `pick` starts with
        self._latest = -1  # the highest clock with an applied change
        self._cuts: list[ShardSnapshot] = []  # by clock
        self.past: dict[int, list[Past]] = {}  # clock -> what each table held
        self._every = self._next = 0
        self._wanted: set[int] = set()  # clocks to keep in `past` besides the multiples
        # Each shard starts with another node, so that not all shards send to node 0 first.
        # A cache that holds no row of this shard needs no clock of it.
        self._order = [shard] if layout.all_mirrored else [(shard + 1 + k) % layout.nodes for k in range(layout.nodes)]
        self._receivers = {
            Update: self._update,
            NodeClock: self._node_clock,
            Fetch: self._fetch,
            Dropped: self._dropped,
            Announce: self._announce,
        }

    def receive(self, message: ToShard) -> Answers:
        """Take a message; returns the messages to send, in this order."""
        return self._receivers[type(message)](message)  # type: ignore[operator, no-any-return]

    # -- messages ----------------------------------------------------------------------------------------------------

    def _update(self, update: Update) -> Answers:
        if update.node != self.number and self.layout.tables[update.table].mirrored:
            update = replace(update, number=0)  # it counts the Updates to another shard
        if self._held is not None:
            self._held.put(update)
            return []
        table = self.tables[update.table]
        slots = table.slots_of(update.keys)
        if self._announced is not None:
            self._announced.check(update, slots)
        table.apply(table.change_of(update, slots), update.clock, self._cuts)
        self._seen[update.node] = max(self._seen[update.node], update.number)
        self._latest = max(self._latest, update.clock)
        if self._picks and table.changed:
            self.dirty = True
        return []

    def _node_clock(self, message: NodeClock) -> Answers:
        for table, keys, versions in message.released:
            self.tables[table].release(message.node, keys, versions)
            self.dirty = self.dirty or (self._picks and self.tables[table].changed > 0)
        self._clocks[message.node] = message.clock
        if self._announced is not None:
            self._announced.move(message.node, message.clock)
        clock = min(self._clocks)
        if clock > self.clock:
            return self._move_on(clock)
        return self._speculate() if self._announced is not None else []

    def _fetch(self, fetch: Fetch) -> Answers:
        table = self.tables[fetch.table]
        slots = table.slots_of(fetch.keys)
        if fetch.need <= self.clock:
            return [(fetch.node, rows) for rows in self._reply(fetch, slots, self.clock)]
        at = len(self._parked)
        while at > 0 and self._parked[at - 1][0] > fetch.need:
            at -= 1
        self._parked.insert(at, (fetch.need, fetch, slots))
        answers = self._speculate() if self._announced is not None else []
        if self.layout.policy.lazy and self._parked:
            answers += self._demand(fetch.need)
        return answers

    def _dropped(self, message: Dropped) -> Answers:
        self.tables[message.table].drop(message.node, message.keys, message.versions)
        self.dirty = self.dirty or (self._picks and self.tables[message.table].changed > 0)
        return []

    def _announce(self, message: Announce) -> Answers:
        if self._announced is None:
            return []
        slots = self.tables[message.table].slots_of(message.keys)
        self._announced.put(message.node, message.table, message.clock, slots, message.keys)
        return self._speculate()

    # -- clocks ------------------------------------------------------------------------------------------------------

    def _move_on(self, clock: int) -> Answers:
        """Every node has ended all clocks < clock."""
        if self._held is not None:
            for held in self._held.clocks_before(clock):
                self._keep_past_until(held)
                self._close(held, self._held)
            if clock < _IDLE:
                self._keep_past_until(clock)
        self.clock = clock
        for cut in self._cuts:
            if not cut.complete and cut.clock <= clock:
                cut.finish()
        if self._stage and clock >= _IDLE:  # all workers have ended, so no cache needs the last changes
            return []
        by_node: list[list[ToCache]] = [[] for _ in self._seen]
        ready = 0
        while ready < len(self._parked) and self._parked[ready][0] <= clock:
            _, fetch, slots = self._parked[ready]
            by_node[fetch.node] += self._reply(fetch, slots, clock)
            ready += 1
        del self._parked[:ready]
        for table in self.tables:
            for node, rows in table.push(clock, self._seen):
                by_node[node].append(rows)
        self.dirty = False
        answers: Answers = []
        for node in self._order:
            answers += [(node, message) for message in by_node[node]]
            answers.append((node, ShardClock(self.number, clock, self._seen[node])))
        if self._announced is not None:
            answers += self._speculate()
        return answers

    def _close(self, clock: int, held: HeldUpdates) -> None:
        """Apply a clock of an exact run."""
        for number in held.tables_of(clock):
            table = self.tables[number]
            # A function that may fail gets the whole clock, so that all of it is applied or none.
            limit = None if table.spec.apply.rule == "user" else _BATCH
            for batch in held.batches(clock, number, limit):
                table.apply(table.change_of_batch(batch, clock), clock, self._cuts)
        for node, last in held.drop(clock).items():
            self._seen[node] = max(self._seen[node], last)
        self._latest = max(self._latest, clock)

    # -- reads -------------------------------------------------------------------------------------------------------

    def _reply(self, fetch: Fetch, slots: Slots, through: int) -> list[Rows]:
        return self.tables[fetch.table].reply(fetch.node, slots, through, self._seen[fetch.node])

    def _demand(self, need: int) -> Answers:
        """Lazy policy: request the updates of nodes that are behind."""
        behind = [node for node in self._order if self._clocks[node] < need and self._demanded[node] < need]
        for node in behind:
            self._demanded[node] = need
        return [(node, Demand(self.number, need)) for node in behind]

    def _speculate(self) -> Answers:
        """Answer parked reads of rows that no missing update can change."""
        assert self._announced is not None
        answers: Answers = []
        parked, self._parked = self._parked, []
        for need, fetch, slots in parked:
            free = self._announced.settled(fetch.table, slots, need)
            if free.any():
                answers += [(fetch.node, rows) for rows in self._reply(fetch, slots[free], need)]
            if not free.all():
                self._parked.append((need, fetch, slots[~free]))
        return answers

    # -- between clocks ----------------------------------------------------------------------------------------------

    def pick(self, rows: int) -> list[tuple[int, Rows]]:
        """Managed policy: the highest-ranked changes for nodes that hold the rows, at most about `rows` rows in all."""
        found: list[tuple[int, Rows]] = []
        if not self._picks:
            return found
        left = rows
        for k in range(len(self.tables)):
            table = self.tables[(self._turn + k) % len(self.tables)]
            if left > 0 and table.changed:
                told = table.pick(left, self.clock, self._seen, self.open)
                left -= sum(len(message.keys) for _, message in told)
                found += told
        self._turn = (self._turn + 1) % len(self.tables)
        # Rows that could not be picked now cannot be picked before the shard gets a change or a release.
        self.dirty = bool(found) and any(table.changed for table in self.tables)
        return found

    def picked(self) -> list[Picked]:
        """Rows picked since the last call, with their ranks; in runs that record everything."""
        found = [entry for table in self.tables for entry in table.picked]
        for table in self.tables:
            table.picked.clear()
        return found

    # -- content -----------------------------------------------------------------------------------------------------

    def table(self, table: int) -> tuple[Keys, NDArray[Any]]:
        """keys [n] and values [n, cols] of all rows that were ever requested or changed, in any order."""
        found = self.tables[table]
        return found.keys[: found.used].copy(), found.columns.values[: found.used].copy()

    def states(self, table: int) -> tuple[NDArray[Any], ...]:
        """State arrays [n, cols] of the server function, in the order of `table`."""
        found = self.tables[table]
        state = found.columns.state[: found.used]
        return tuple(state[:, k].copy() for k in range(state.shape[1]))

    def witness(self, table: int) -> tuple[Keys, NDArray[np.int32]]:
        """keys [n] and witness [n, workers], in the order of `table`."""
        found = self.tables[table]
        return found.keys[: found.used].copy(), found.columns.witness[: found.used].copy()

    def keep_past(self, every: int) -> None:
        """Exact runs: keep the tables in `past` at each clock that is a multiple of `every` (0: at none).

        The evaluation of all shards at one clock takes them out. A missing clock equals the tables as they are now.
        """
        self._every, self._next = every, (self.clock // every + 1) * every if every else 0

    def keep_clock(self, clock: int) -> None:
        """Exact runs: also keep the tables at this clock. No update of it may have been applied."""
        self._wanted.add(clock)

    def _keep_past_until(self, clock: int) -> None:
        """Keep the tables for clocks up to this one: exactly the updates of clocks < clock are applied."""
        due = [wanted for wanted in self._wanted if wanted <= clock]
        self._wanted.difference_update(due)
        while self._every and self._next <= clock:
            due.append(self._next)
            self._next += self._every
        for at in due:
            self.past[at] = [(*self.table(t), self.states(t)) for t in range(len(self.tables))]

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint(self, clock: int) -> None:
        """Prepare a checkpoint at this clock, before any change of it has arrived. Several may be in progress."""
        if clock <= self._latest or clock < self.clock:
            raise RunError(
                f"shard {self.number}: a checkpoint at clock {clock} was asked for in clock {self.clock}, when "
                f"changes of clock {self._latest} were applied; ask before any worker reaches the clock"
            )
        cut = ShardSnapshot(clock, self.tables)
        if clock == self.clock:
            cut.finish()
        self._cuts = sorted([*self._cuts, cut], key=lambda cut: cut.clock)

    def forget_checkpoint(self, clock: int) -> None:
        """Drop the checkpoint at this clock, complete or not."""
        self._cuts = [cut for cut in self._cuts if cut.clock != clock]

    @property
    def saving(self) -> int | None:
        """The clock of the oldest complete checkpoint that was not wholly returned yet, or None."""
        return self._cuts[0].clock if self._cuts and self._cuts[0].complete else None

    def saved_piece(self, limit: int) -> dict[str, NDArray[Any]] | None:
        """The next chunk of that checkpoint, at most `limit` rows of one table; None if there is none.

        Chunks of equal names are concatenated (`snapshot.joined`). After the last one the checkpoint is dropped, and
        `saving` is another clock or None.
        """
        if self.saving is None:
            return None
        cut = self._cuts[0]
        piece = cut.piece(limit)
        if not cut.left:
            del self._cuts[0]
        return piece

    def saved(self) -> dict[str, NDArray[Any]] | None:
        """The whole checkpoint: "clock", and of each table "name/keys", values, state, version, witness, scale."""
        clock = self.saving
        if clock is None:
            return None
        pieces = []
        while self.saving == clock:
            piece = self.saved_piece(_ALL)
            assert piece is not None
            pieces.append(piece)
        return joined(pieces)

    @classmethod
    def restore(cls, layout: Layout, shard: int, arrays: dict[str, NDArray[Any]], clock: int) -> Shard:
        """A shard that continues from a checkpoint at this clock. No node holds a row; Updates are counted from 1."""
        made = cls(layout, shard)
        for table in made.tables:
            table.restore(of_table(arrays, table.spec.name))
        made.clock = clock
        made._latest = clock - 1
        made._clocks = [max(clock, known) for known in made._clocks]
        if made._announced is not None:
            made._announced = ShardAnnouncements(layout, made._clocks)
        return made
