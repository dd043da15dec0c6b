"""A shard's part of a checkpoint at a clock, taken while training continues.

A cut at clock C holds exactly the updates of clocks < C (copy on write). From its request on

    an update of clock ≥ C     copies the row first, once; then changes the row
    an update of clock < C     changes the row, and the copy if there is one

When every node has ended clock C − 1 the cut is complete. Its row is the copy, or the row itself where no update of
clock ≥ C has changed it. Then the cut is saved in chunks; a saved row need not be copied any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.store.index import longer
from stretto.store.layout import TableSpec

from .applying import Applier, RowChanges, RowColumns, Slots

_LIVE, _NOT = -1, -2  # the row itself belongs to the cut; the row is not in the cut, or already saved
_FIRST = 64


class SnapshotTable(Protocol):
    """What a snapshot reads of a table of the shard."""

    spec: TableSpec
    applier: Applier
    columns: RowColumns

    @property
    def keys(self) -> Keys:
        """[slots] key of each row."""
        ...

    @property
    def used(self) -> int:
        """Number of slots with a row."""
        ...


class ShardSnapshot:
    """The state of a shard's tables at one clock, complete or in progress."""

    def __init__(self, clock: int, tables: Sequence[SnapshotTable]) -> None:
        self.clock = clock
        self.complete = False
        self._parts = [_Part(table) for table in tables]
        self._saved = 0  # number of tables that are saved completely

    def guard(self, table: int, change: RowChanges, clock: int) -> RowChanges | None:
        """Prepare for an update of this clock to a table; returns the change to apply to the copies, if any."""
        part = self._parts[table]
        if clock >= self.clock:
            part.copy_aside(change.slots)
            return None
        return part.same_change(change)

    def finish(self) -> None:
        """Complete the cut: every update of clocks < clock is in it, and new rows are not."""
        self.complete = True
        for part in self._parts:
            part.close()

    def piece(self, limit: int) -> dict[str, NDArray[Any]]:
        """The next rows, at most `limit`, of one table. Every table gives at least one chunk."""
        part = self._parts[self._saved]
        found = part.take(limit)
        if part.left == 0:
            self._saved += 1
        return found | {"clock": np.array(self.clock)}

    @property
    def left(self) -> bool:
        """Whether there are chunks that were not returned yet."""
        return self._saved < len(self._parts)


class _Part:
    """One table. place [slots]: index of the row's copy, or _LIVE, or _NOT."""

    def __init__(self, table: SnapshotTable) -> None:
        self._table = table
        self._place = np.full(len(table.keys), _LIVE, dtype=np.int64)
        self._copies: RowColumns | None = None
        self._count = 0
        self._rows = -1  # in the cut; −1: not known yet
        self._next = 0

    @property
    def left(self) -> int:
        """Rows that are not saved yet."""
        return self._rows - self._next

    def copy_aside(self, slots: Slots) -> None:
        """Copy these rows, which are about to change."""
        place = self._places()
        new = np.unique(slots[place[slots] == _LIVE])
        if not len(new):
            return
        copies = self._with_capacity(self._count + len(new))
        at = np.arange(self._count, self._count + len(new))
        copies.copy_rows(at, self._table.columns, new)
        place[new] = at
        self._count += len(new)

    def same_change(self, change: RowChanges) -> RowChanges | None:
        """The part of the change that concerns the copies."""
        if not self._count:
            return None
        at = self._places()[change.slots]
        there = at >= 0
        if not there.any():
            return None
        assert self._copies is not None
        old = change.old
        if change.blind is not None:  # computed without reading the row: `old` is what the copy holds
            old = old.copy()
            blind = change.blind[there[change.blind]]
            old[blind] = self._table.applier.snapshot_of(self._copies)[at[blind]]
        old = old[there] if len(old) else old
        witness = None if change.witness is None else change.witness[there]
        return RowChanges(self._copies, at[there], change.deltas[there], old, witness)

    def close(self) -> None:
        self._rows = self._table.used
        self._places()[self._rows :] = _NOT

    def take(self, limit: int) -> dict[str, NDArray[Any]]:
        slots = np.arange(self._next, min(self._rows, self._next + limit))
        self._next += len(slots)
        table, columns = self._table, self._table.columns
        name = table.spec.name
        found = {
            f"{name}/keys": table.keys[slots],
            f"{name}/values": columns.values[slots],
            f"{name}/state": columns.state[slots],
            f"{name}/version": columns.version[slots],
            f"{name}/witness": columns.witness[slots],
        }
        if len(columns.scale):
            found[f"{name}/scale"] = columns.scale[slots]
        places = self._places()
        at = places[slots]
        if self._copies is not None:
            there = at >= 0
            for entry in ("values", "state", "version", "witness", "scale"):
                if f"{name}/{entry}" in found:
                    found[f"{name}/{entry}"][there] = getattr(self._copies, entry)[at[there]]
        places[slots] = _NOT
        if self.left == 0:
            self._copies, self._count = None, 0
        return found

    def _places(self) -> NDArray[np.int64]:
        """`place`, grown to the number of slots of the table."""
        need = len(self._table.keys)
        if len(self._place) < need:
            self._place = longer(self._place, need, _LIVE if self._rows < 0 else _NOT)
        return self._place

    def _with_capacity(self, need: int) -> RowColumns:
        if self._copies is None:
            live = self._table.columns
            self._copies = self._table.applier.columns(
                max(need, _FIRST), live.witness.shape[1], len(live.scale) > 0, tracked=False
            )
        elif need > len(self._copies.values):
            self._copies.resize(max(need, 2 * len(self._copies.values)))
        return self._copies


def joined(pieces: Iterable[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """All chunks of a cut as one: name → array."""
    lists: dict[str, list[NDArray[Any]]] = {}
    for piece in pieces:
        for name, array in piece.items():
            lists.setdefault(name, []).append(array)
    return {name: arrays[0] if name == "clock" else np.concatenate(arrays) for name, arrays in lists.items()}


def of_table(arrays: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """The arrays of one table in a checkpoint, without the name of the table in front."""
    prefix = f"{name}/"
    return {entry[len(prefix) :]: array for entry, array in arrays.items() if entry.startswith(prefix)}
