"""A recording as columns: one element for each row read or added to, sorted by table.

The checks are sums and comparisons over these arrays.

    columns = Columns.of(recording)
    columns.reads[0].key          [rows read of table 0]
    columns.alive(columns.adds[0], 1)      which adds to table 0 the second attempt of the run may see
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.consistency.rules import Rule
from stretto.store.layout import Layout, TableSpec
from stretto.store.recording import Add, Read, Recording

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Events:
    """Rows that were read or added to, in order; arrays are [n]."""

    calls: int  # number of calls of `add` or `read` they come from
    position: Ints
    incarnation: Ints
    worker: Ints
    clock: Ints
    key: Ints


@dataclass(frozen=True, eq=False)
class Adds(Events):
    """Rows that were added to."""

    deltas: NDArray[Any]  # [n, cols]


@dataclass(frozen=True, eq=False)
class Reads(Events):
    """Rows that were read."""

    now: NDArray[np.float64]
    seen: NDArray[np.int32]  # [n, workers] the adds of each worker that the rows held
    values: NDArray[Any]  # [n, cols]


@dataclass(frozen=True, eq=False)
class RecordingColumns:
    """Everything that the checks read.

    Adds before the checkpoint that a run was resumed from are not counted: they are part of the rows' start values.
    """

    recording: Recording
    layout: Layout
    adds: tuple[Adds, ...]
    reads: tuple[Reads, ...]
    begins: Ints  # [incarnations] the clock that each attempt of the run started from
    undone: Ints  # [incarnations] the position in the recording at which each attempt began
    whole: tuple[bool, ...]  # whether all of an attempt was recorded, or only events before the next checkpoint

    @classmethod
    def of(cls, recording: Recording) -> RecordingColumns:
        """The columns of a full recording."""
        layout = recording.layout
        begins = np.array([recording.begin, *(restart.clock for restart in recording.restarts)], dtype=np.int64)
        undone = np.array([-1, *(restart.order for restart in recording.restarts)], dtype=np.int64)
        adds, reads = [], []
        for table, spec in enumerate(layout.tables):
            some = [event for event in recording.adds if event.table == table]
            deltas = _stack([event.deltas for event in some], spec)
            adds.append(Adds(len(some), *_repeated(some, undone), deltas))
            seen = [event for event in recording.reads if event.table == table]
            now = np.repeat(np.array([event.now for event in seen]), [len(event.keys) for event in seen])
            witness = np.concatenate([np.zeros((0, layout.workers), np.int32), *(event.seen for event in seen)])
            values, repeated = _stack([event.values for event in seen], spec), _repeated(seen, undone)
            reads.append(Reads(len(seen), *repeated, now, _since(recording, table, repeated[-1], witness), values))
        whole = (*(restart.whole for restart in recording.restarts), True)
        return cls(recording, layout, tuple(adds), tuple(reads), begins, undone, whole)

    @property
    def rule(self) -> Rule:
        return self.layout.rule

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return self.layout.tables

    @property
    def workers(self) -> int:
        return self.layout.workers

    @property
    def incarnations(self) -> int:
        return len(self.begins)

    def life_of(self, orders: Ints) -> Ints:
        """[n] the incarnation in which events at these positions happened."""
        return np.searchsorted(self.undone, orders, side="right") - 1

    def alive(self, adds: Adds, incarnation: int) -> NDArray[np.bool_]:
        """[n] which adds this attempt may see: its own, and earlier ones that no restart since has undone."""
        # A restart to clock C undoes clocks C and later of every attempt before it, so the least C since then counts.
        least = np.full(self.incarnations, -1, dtype=np.int64)
        least[incarnation] = np.iinfo(np.int64).max
        for earlier in range(incarnation - 1, -1, -1):
            least[earlier] = min(int(least[earlier + 1]), int(self.begins[earlier + 1]))
        return adds.clock < least[adds.incarnation]

    def start_rows(self, table: int, keys: Ints) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """[n, cols] start values of rows, and the magnitude of residuals from before that may still reach them."""
        rows, slack = self.layout.start_rows(table, keys), np.zeros((len(keys), self.tables[table].cols))
        base = self.recording.base.get(table)
        if base is not None and len(base.keys):
            at, known = _found(base.keys, keys)
            rows[known], slack[known] = base.values[at[known]], base.slack[at[known]]
        return rows, slack

    def since_begin(self, table: int, keys: Ints, witness: NDArray[np.int32]) -> NDArray[np.int32]:
        """[n, workers] a witness without the adds before the run was resumed."""
        return _since(self.recording, table, keys, witness)


def _found(among: Ints, keys: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """[n] positions of keys among ascending others, and whether they are found."""
    at = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    return at, among[at] == keys


def _since(recording: Recording, table: int, keys: Ints, witness: NDArray[np.int32]) -> NDArray[np.int32]:
    base = recording.base.get(table)
    if base is None or not len(base.keys):
        return witness
    at, known = _found(base.keys, keys)
    return np.where(known[:, None], witness - base.witness[at], witness)


def _repeated(events: Sequence[Read] | Sequence[Add], undone: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(position, incarnation, worker, clock, key), each as often as its event has keys."""
    sizes = [len(event.keys) for event in events]
    numbers = np.array([(event.order, event.worker, event.clock) for event in events], dtype=np.int64).reshape(-1, 3)
    position, worker, clock = np.repeat(numbers, sizes, axis=0).T
    keys = np.concatenate([np.zeros(0, np.int64), *(event.keys for event in events)])
    return position, np.searchsorted(undone, position, side="right") - 1, worker, clock, keys


def _stack(arrays: list[Any], spec: TableSpec) -> NDArray[Any]:
    """[n, cols] rows of several calls below each other."""
    return np.concatenate([np.zeros((0, spec.cols), spec.kept), *(np.reshape(a, (-1, spec.cols)) for a in arrays)])
