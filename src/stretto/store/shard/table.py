"""One table's rows in a shard: found by key, changed in batches, sent to the nodes that hold copies.

A row gets a slot when it is first requested or changed. Its values and states are stored in columns by slot. Compiled
code (`kernels.tables.shard_rows`) works on batches of slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.comm import ranking
from stretto.comm.codec import round_f2, travels_short, value_bytes
from stretto.comm.messages import HEADER, Keys, Rows, Update
from stretto.comm.policy import Managed
from stretto.comm.sizes import row_sizes
from stretto.errors import RunError
from stretto.kernels.tables import shard_rows as kernels
from stretto.store.index import Index, RowsByKey, longer
from stretto.store.layout import Layout
from stretto.store.recording import Picked

from .applying import Applier, RowChanges, Slots
from .held import WorkerChanges
from .holders import RowHolders
from .snapshot import ShardSnapshot
from .versions import NONE, Snapshots

_SCALE = 4  # bytes of a row's scale in a message


class KeyedRows(NamedTuple):
    """Rows that a shard uses in place: values [rows, cols] by key, and keys [rows] = 0, 1, 2, …

    A shard only touches the rows of its own keys. kept: what the cache of the node keeps for the next run over the same
    rows; allocating it again would take longer than a short run.
    """

    values: NDArray[Any]
    keys: Keys
    kept: dict[str, Any]


class Marks:
    """Marks of rows in exact runs. of_rows [rows]: the last that each got; used: how many there were."""

    def __init__(self, rows: int) -> None:
        self.of_rows: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.used = 0


class ShardTable:
    """One table of a shard.

    Attributes
    ----------
    columns : Columns
        The rows by slot. Private arrays are as in the kernels.
    changed : int
        Rows with changes that were not pushed to all holders.
    picked : list of Picked
        Rows that `pick` chose, with their ranks, in runs that record everything. The reader empties it.
    """

    def __init__(self, layout: Layout, table: int, shard: int, rows: KeyedRows | None = None) -> None:
        self._layout, self._table, self._shard = layout, table, shard
        self.spec = spec = layout.tables[table]
        policy = layout.policy
        managed = isinstance(policy, Managed) and not layout.rule.exact
        self._effective = isinstance(policy, Managed) and policy.rank == "effective" and not spec.own_writes
        self._burst = policy.burst[1] if isinstance(policy, Managed) else None
        self._short = travels_short(spec.dtype, policy.codec)
        self._wire = value_bytes(spec.dtype, policy.codec)
        self._pushes = not policy.lazy  # otherwise changes are not pushed
        self.versioned = spec.versioned and not layout.rule.exact
        self._kept = spec.kept
        self.applier = Applier(layout, table)
        self._index: Index | RowsByKey = Index() if rows is None else RowsByKey(rows.keys)
        first = self._index.capacity
        values = None if rows is None else rows.values
        self.columns = self.applier.columns(first, layout.witnesses, self._effective, managed, values)
        kept = {} if rows is None else rows.kept
        reuses = rows is not None and not spec.versioned
        self._holders = RowHolders.kept_in(kept, first, layout.nodes) if reuses else RowHolders(first, layout.nodes)
        self.changed = 0
        self.picked: list[Picked] = []
        self._everybody = np.ones(layout.nodes, dtype=np.bool_)
        self._rank = ranking.RankState(seed=layout.seed + 7919 * shard + table)
        self._none = np.empty((0, spec.cols), dtype=self.applier.snapshot_of(self.columns).dtype)
        self.snapshots = Snapshots(spec.cols, self._none.dtype, layout.nodes) if self.versioned else None
        # Exact runs: which entries of a batch count, and what versioned rows held when the clock opened.
        # Numbers in it only grow, so that the next run may go on with them.
        marks: Marks | None = kept.get("marks")
        if marks is None or len(marks.of_rows) != (first if layout.rule.exact else 0):
            marks = kept["marks"] = Marks(first if layout.rule.exact else 0)
        self._marks = marks
        opens = spec.versioned and layout.rule.exact
        self._opened = np.full(first if opens else 0, -1, dtype=np.int64)
        self._before = np.zeros((len(self._opened), spec.cols), dtype=self._none.dtype)

    # -- slots -------------------------------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """How many slots are taken."""
        return self._index.count

    @property
    def keys(self) -> Keys:
        """[cap] the key of the row in each slot."""
        return self._index.keys

    def slots_of(self, keys: Keys) -> Slots:
        """[n] the slots of these rows, new ones where they had none."""
        slots, missing = self._index.search(keys)
        if missing:
            new = np.unique(keys[slots < 0])
            self._add_rows(new, *self.applier.begin(self._layout, self._table, new))
            slots = self._index.find(keys)
        return slots

    def _add_rows(self, keys: Keys, values: NDArray[Any], state: NDArray[Any]) -> Slots:
        slots = self._index.place(keys)
        if self._index.capacity > len(self._holders.dirty):
            self._grow(self._index.capacity)
        self.columns.values[slots] = values
        self.columns.state[slots] = state
        if len(self.columns.scale):
            self.columns.scale[slots] = 1.0
        return slots

    def _grow(self, capacity: int) -> None:
        self.columns.resize(capacity)
        self._holders.resize(capacity)
        if len(self._marks.of_rows):
            self._marks.of_rows = longer(self._marks.of_rows, capacity)
        if len(self._opened):
            self._opened, self._before = longer(self._opened, capacity, -1), longer(self._before, capacity)

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore rows of a checkpoint: versions continue, and no node holds a row."""
        slots = self._add_rows(arrays["keys"], arrays["values"], arrays["state"])
        self.columns.version[slots] = arrays["version"]
        if arrays["witness"].shape[1] == self.columns.witness.shape[1]:  # else only one of the two runs is recorded
            self.columns.witness[slots] = arrays["witness"]
        if len(self.columns.scale) and "scale" in arrays:
            self.columns.scale[slots] = arrays["scale"]

    # -- changes -----------------------------------------------------------------------------------------------------

    def change_of(self, update: Update, slots: Slots) -> RowChanges:
        """The changes of an Update, with the snapshots they were computed from."""
        if self.snapshots is None:
            return RowChanges(self.columns, slots, update.deltas, self._none, update.witness)
        versions = update.versions
        if versions is None:
            versions = np.full(len(slots), NONE, dtype=np.int32)
        old, missing = self.snapshots.recall(slots, versions, self.applier.snapshot_of(self.columns))
        if missing >= 0:
            raise RunError(
                f"table {self.spec.name!r}: node {update.node} sent a change of row {update.keys[missing]} computed "
                f"from version {versions[missing]}, of which nothing is kept any more (the row is at version "
                f"{self.columns.version[slots[missing]]}); this is a fault of Stretto, please report it"
            )
        blind = np.flatnonzero(versions == NONE)
        return RowChanges(self.columns, slots, update.deltas, old, update.witness, blind if len(blind) else None)

    def change_of_batch(self, batch: WorkerChanges, clock: int) -> RowChanges:
        """The changes of several workers in one clock of an exact run.

        Of a worker's entries for a row the last counts; versioned rows are as they were when the clock opened.
        """
        slots, deltas, witness = self.slots_of(batch.keys), batch.deltas, batch.witness
        keep = np.empty(len(slots), dtype=np.bool_)
        kept = kernels.last_of_each.exact(slots, batch.ends, self._marks.of_rows, self._marks.used, keep)
        self._marks.used += len(batch.ends)
        if kept < len(slots):
            slots, deltas = slots[keep], deltas[keep]
            witness = None if witness is None else witness[keep]
        old = self._none
        if len(self._opened):
            old = np.empty((len(slots), self.spec.cols), dtype=self._before.dtype)
            source = self.applier.snapshot_of(self.columns)
            kernels.open_rows.exact(slots, clock, self._opened, source, self._before, old)
        return RowChanges(self.columns, slots, deltas, old, witness)

    def apply(self, change: RowChanges, clock: int, cuts: list[ShardSnapshot]) -> None:
        """Apply changes of one clock to the rows and to checkpoints in progress."""
        deltas = np.ascontiguousarray(change.deltas, dtype=self._kept)
        if deltas is not change.deltas:
            change = change._replace(deltas=deltas)
        changes = [change]
        for cut in cuts:
            aside = cut.guard(self._table, change, clock)
            if aside is not None:
                changes.append(aside)
        self.applier.run(changes, self.keys)
        if change.witness is not None:
            for columns, slots, _, _, counts, _ in changes:
                kernels.add_counts.exact(slots, counts, columns.witness)
        rows = self._holders
        self.changed = kernels.mark_changed.exact(
            change.slots, rows.by_node, rows.standing, rows.fresh, rows.listed, rows.dirty, self.changed
        )

    # -- sending -----------------------------------------------------------------------------------------------------

    def reply(self, node: int, slots: Slots, through: int, seen: int) -> list[Rows]:
        """Answer a node's request for these rows; their changes are pushed to it from now on."""
        if self._pushes:
            self._holders.held(slots)
            kernels.hold.exact(slots, node, self._holders.by_node, self._holders.standing)
        ends = np.array([0, len(slots)])
        return [rows for _, rows in self._sent(np.array([node]), ends, slots, slots, through, [seen], reply=True)]

    def push(self, through: int, seen: list[int]) -> list[tuple[int, Rows]]:
        """Rows messages with all changes to all holders. seen: the last Update of each node that is in them."""
        if not self.changed:
            return []
        chosen, self.changed = self._holders.dirty[: self.changed].copy(), 0
        return self._push_to_holders(chosen, through, seen, self._everybody)

    def pick(
        self, limit: int, through: int, seen: list[int], open_: NDArray[np.bool_] | None
    ) -> list[tuple[int, Rows]]:
        """The highest-ranked changes, about `limit` rows counted once for each receiver; open_: nodes to send to."""
        if open_ is None:
            open_ = self._everybody
        slots, pairs = np.empty(self.changed, dtype=np.int64), np.empty(self.changed, dtype=np.int64)
        m = kernels.waiting_holders.exact(self._holders.dirty, self.changed, self._holders.by_node, open_, slots, pairs)
        if m == 0:
            return []
        first = self._highest_ranked(slots[:m], limit)
        slots, pairs = slots[first], pairs[first]
        fits = max(1, int(np.searchsorted(np.cumsum(pairs), limit, side="right")))
        ranks = np.flatnonzero(self._within_snapshot_bound(slots[:fits]))
        if not len(ranks):
            return []
        chosen = slots[ranks]
        self._rank.sent(int(self.keys[chosen[-1]]))
        if self._layout.witness:
            self.picked.append(Picked(self._table, self.keys[chosen], ranks, m))
        told = self._push_to_holders(chosen, through, seen, open_)
        self.changed = kernels.relist.exact(self._holders.dirty, self.changed, self._holders.listed)
        return told

    def _highest_ranked(self, slots: Slots, limit: int) -> NDArray[np.int64]:
        policy = self._layout.policy
        assert isinstance(policy, Managed)
        # The server function's factor is in `moved` already, hence no scale.
        moved, size = self.columns.moved[slots], self.columns.size[slots]
        return ranking.order_moved(policy.rank, moved, size, None, self.keys[slots], self._rank, limit)

    def _within_snapshot_bound(self, slots: Slots) -> NDArray[np.bool_]:
        """[n] which of the rows need no new snapshot, or one within the bound."""
        if self.snapshots is None:
            return np.ones(len(slots), dtype=np.bool_)
        lacking = self._holders.fresh[slots] > 0
        same = np.flatnonzero(~lacking)
        lacking[same] = self.snapshots.lacking(slots[same], self.columns.version[slots[same]])
        room = self.spec.apply.allow_send(len(self.snapshots), int(lacking.sum()))
        fitting: NDArray[np.bool_] = ~lacking | (np.cumsum(lacking) <= room)
        return fitting

    def _push_to_holders(
        self, chosen: Slots, through: int, seen: list[int], open_: NDArray[np.bool_]
    ) -> list[tuple[int, Rows]]:
        ends, slots = kernels.tell_holders.exact(
            chosen, self._holders.by_node, self._holders.standing, self._holders.listed, self.columns.moved, open_
        )
        return self._sent(np.arange(len(seen)), ends, slots, chosen, through, seen, reply=False)

    def _sent(
        self, nodes: Slots, ends: Slots, slots: Slots, once: Slots, through: int, seen: list[int], *, reply: bool
    ) -> list[tuple[int, Rows]]:
        """Messages to nodes[k] with rows slots[ends[k] : ends[k + 1]] and seen[k]; once: the same rows, each once."""
        columns = self.columns
        versions = None
        if self.snapshots is not None:
            kernels.give_versions.exact(once, self._holders.fresh, columns.version)
            versions = columns.version[slots]
            self.snapshots.refer(ends, nodes, slots, once, columns.version, self.applier.snapshot_of(columns))
        keys, values = self.keys.take(slots), columns.values.take(slots, axis=0)
        if self._short:
            values = round_f2(values)
        sizes = row_sizes(values, versions is not None, self._wire)
        scale = columns.scale[slots] if self._effective else None
        if scale is not None:
            sizes += _SCALE
        witness = columns.witness[slots] if columns.witness.shape[1] else None
        parts: list[tuple[int, slice]] = []
        bounds = ends.tolist()
        for k in range(len(nodes)):
            step = self._burst or max(1, bounds[k + 1] - bounds[k])
            parts += [(k, slice(at, min(at + step, bounds[k + 1]))) for at in range(bounds[k], bounds[k + 1], step)]
        if not parts:
            return []
        # The messages are adjacent slices of the rows.
        starts = [part.start for _, part in parts]
        totals = np.add.reduceat(sizes, starts).tolist() if len(parts) > 1 else [int(sizes.sum())]
        receivers = nodes.tolist()
        return [
            (
                receivers[k],
                Rows(
                    self._table,
                    self._shard,
                    keys[part],
                    values[part],
                    through,
                    seen[k],
                    HEADER + total,
                    reply,
                    None if versions is None else versions[part],
                    None if scale is None else scale[part],
                    None if witness is None else witness[part],
                ),
            )
            for (k, part), total in zip(parts, totals, strict=True)
        ]

    # -- what nodes give back ----------------------------------------------------------------------------------------

    def drop(self, node: int, keys: Keys, versions: NDArray[np.int32] | None) -> None:
        """The node no longer holds these rows: it needs neither its version nor later ones in flight."""
        slots = self._index.find(keys)
        here = slots >= 0
        kernels.let_go.exact(slots[here], node, self._holders.by_node, self._holders.standing)
        if self.snapshots is not None:
            first = np.zeros(len(keys), dtype=np.int32) if versions is None else versions
            self.snapshots.give_back(node, slots[here], first[here], self.columns.version[slots[here]])

    def release(self, node: int, keys: Keys, versions: NDArray[np.int32]) -> None:
        """No change of the node that was computed from these versions will come."""
        if self.snapshots is not None:
            slots = self._index.find(keys)
            here = slots >= 0
            self.snapshots.give_back(node, slots[here], versions[here], versions[here])
