"""Update buffer: changes made on this node and not yet sent.

A *slip* holds the changes of one clock: of one worker in exact runs, otherwise the sum over all workers of the node.
Rows of a slip are identified by key, or by key and the version of the row that the change was computed from. A row is
*changed* while it holds changes that were not sent.

    buffer.current[i].places(keys)       where worker i of the node adds now
    buffer.close(5)                      the slips of clocks < 5, to be sent and then returned (`reuse`)

Rows of shared slips with reserved rows never move, so that threads may add to them at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import cached_rows, pending_changes
from stretto.store.index import Index, Places, longer
from stretto.store.layout import Layout, TableSpec

NO_LOCKS = np.empty(0, np.int64)
Locks = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class ChangeBatch:
    """Changes to be sent, sorted by shard, key and version."""

    keys: Keys  # [n]
    shards: NDArray[np.int64]  # [n]
    deltas: NDArray[Any]  # [n, width]
    versions: NDArray[np.int32] | None  # [n] where the table has versions
    witness: NDArray[np.int32]  # [n, workers]; 0 columns where nothing is recorded

    def __len__(self) -> int:
        return len(self.keys)

    def only(self, chosen: NDArray[np.bool_]) -> ChangeBatch:
        """The rows that a mask selects."""
        if chosen.all():
            return self
        versions = None if self.versions is None else self.versions[chosen]
        return ChangeBatch(self.keys[chosen], self.shards[chosen], self.deltas[chosen], versions, self.witness[chosen])


class PendingChanges:
    """Changes of one clock, by place: keys, versions, changed [places], deltas [places, width], witness [places, W].

    reserved : number of rows of the table, for all of which space is reserved; None: the columns grow.
    """

    def __init__(self, spec: TableSpec, versioned: bool, witnesses: int, reserved: int | None) -> None:
        self.clock, self.worker = 0, -1
        self.index = Index(versioned) if reserved is None else None
        rows = self.index.capacity if self.index else reserved or 0
        self.deltas: NDArray[Any] = np.zeros((rows, spec.cols), spec.kept)
        self.witness: NDArray[np.int32] = np.zeros((rows, witnesses), np.int32)
        self.changed: NDArray[np.uint8] = np.zeros(rows, np.uint8)
        # Of a reserved slip: the place of every row, the key at every place, how many places are taken.
        self._places: NDArray[np.int64] = np.full(0 if self.index else rows, -1)
        self._keys: Keys = np.zeros(len(self._places), np.int64)
        self._count: NDArray[np.int64] = np.zeros(1, np.int64)

    @property
    def count(self) -> int:
        return int(self._count[0]) if self.index is None else self.index.count

    @property
    def keys(self) -> Keys:
        return self._keys if self.index is None else self.index.keys

    @property
    def versions(self) -> NDArray[np.int32] | None:
        return self.index.marks if self.index is not None and self.index.marked else None

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Memory addresses of a reserved slip, for `cached_rows.install`."""
        return self._places.ctypes.data, self.deltas.ctypes.data, self.witness.ctypes.data

    def places(self, keys: Keys, versions: NDArray[np.int32] | None = None, locks: Locks = NO_LOCKS) -> Places:
        """[n] the place of each row, a new one where it had none."""
        index = self.index
        if index is None:
            out = np.empty(len(keys), np.int64)
            pending_changes.reserve.exact(self._places, self._keys, self._count, keys, locks, out)
            return out
        places = index.place(keys, versions)
        if index.capacity > len(self.changed):
            capacity = index.capacity
            self.deltas = longer(self.deltas, capacity)
            self.witness = longer(self.witness, capacity)
            self.changed = longer(self.changed, capacity)
        return places

    def add_to(self, keys: Keys, out: NDArray[Any], seen: NDArray[np.int32]) -> None:
        """Add the slip's changes of these rows to out [n, width], and their witness to seen (unless that is empty)."""
        assert self.index is not None
        lookup = self.index.lookup
        cached_rows.add_found.exact(lookup.keys, lookup.slots, self.deltas, self.witness, keys, out, seen)

    def add_to_held(
        self,
        keys: Keys,
        slots: Places,
        through: NDArray[np.int64],
        values: NDArray[Any],
        witness: NDArray[np.int32],
    ) -> None:
        """Add the slip's changes to those of these cached rows, at `slots` [n], that are held (through ≥ 0)."""
        assert self.index is not None
        cached_rows.add_to_held.exact(
            *self.index.lookup.both, self.deltas, self.witness, keys, slots, through, values, witness
        )

    def dirty(self) -> Places:
        """Places of rows that were changed and not sent.

        Other threads may be adding, and NumPy counts before it fills: it works on a copy.
        """
        return np.flatnonzero(self.changed[: self.count].copy())

    def clear(self) -> None:
        """Remove all changes; the capacity stays."""
        count = self.count
        self.deltas[:count] = 0
        self.witness[:count] = 0
        self.changed[:count] = 0
        if self.index is None:
            self._places[self._keys[:count]] = -1
            self._count[0] = 0
        else:
            self.index.clear()


class UpdateBuffer:
    """The slips of one table on one node: open ones in `slips`, by (clock, worker), worker = −1 for shared ones."""

    def __init__(self, layout: Layout, table: int, workers: range) -> None:
        self._layout, self._table = layout, table
        self._spec = layout.tables[table]
        self._workers = workers
        self._shared = not layout.rule.exact
        # In exact runs all reads of a clock see one version, and shards keep no versions.
        self._versioned = self._spec.versioned and self._shared
        # Private slips are small and many; versions need an index.
        self._reserved = layout.reserved(table) if self._shared and not self._versioned else None
        self._spare: list[PendingChanges] = []
        self.slips: dict[tuple[int, int], PendingChanges] = {}
        self.current: list[PendingChanges] = []
        self.begin(0)

    @property
    def reserved(self) -> bool:
        """Whether threads may add to the slips without a lock on all of them."""
        return self._reserved is not None

    def begin(self, clock: int) -> None:
        """Start with all workers at this clock and no changes."""
        self.slips, self.current = {}, []
        for i in range(len(self._workers)):
            self.move(i, clock)

    def move(self, i: int, clock: int) -> None:
        """Let worker i of the node add to the slip of this clock from now on."""
        worker = -1 if self._shared else self._workers[i]
        slip = self.slips.get((clock, worker))
        if slip is None:
            slip = self._spare.pop() if self._spare else self._new()
            slip.clock, slip.worker = clock, worker
            self.slips[clock, worker] = slip
        if i < len(self.current):
            self.current[i] = slip
        else:
            self.current.append(slip)

    def _new(self) -> PendingChanges:
        return PendingChanges(self._spec, self._versioned, self._layout.witnesses, self._reserved)

    def close(self, before: int) -> list[PendingChanges]:
        """Take out the slips of clocks < before, by clock and worker."""
        ended = sorted(at for at in self.slips if at[0] < before)
        return [self.slips.pop(at) for at in ended]

    def reuse(self, slip: PendingChanges) -> None:
        """Keep a slip that was sent, to be used again."""
        if len(self._spare) <= len(self._workers):
            slip.clear()
            self._spare.append(slip)

    def addresses(self) -> NDArray[np.int64]:
        """[k, 3] addresses of the open reserved slips, also empty ones: threads may be about to add to them."""
        found = [slip.addresses for slip in self.slips.values() if slip.index is None]
        return np.array(found, np.int64).reshape(-1, 3)

    def batch(
        self, slip: PendingChanges, places: Places, keep: bool, locks: Locks = NO_LOCKS
    ) -> tuple[ChangeBatch, Places]:
        """Rows of a slip as a batch to send, and their places in the same order. The rows are marked unchanged.

        keep : the changes stay in the slip; otherwise they are zero afterwards.
        """
        keys = slip.keys[places]
        versions = None if slip.versions is None else slip.versions[places]
        shards = self._layout.shard_of(self._table, keys)
        order = np.argsort(keys) if versions is None else np.lexsort((versions, keys))
        if self._layout.nodes > 1:
            order = order[np.argsort(shards[order].astype(np.uint16), kind="stable")]
        places = places[order]
        deltas = np.empty((len(places), slip.deltas.shape[1]), slip.deltas.dtype)
        witness = np.empty((len(places), slip.witness.shape[1]), np.int32)
        pending_changes.lift.exact(
            places, slip.keys, slip.deltas, slip.witness, slip.changed, locks, keep, deltas, witness
        )
        versions = None if versions is None else versions[order]
        return ChangeBatch(keys[order], shards[order], deltas, versions, witness), places
