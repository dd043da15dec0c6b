"""A recording laid out as columns: one element for each row read or added to, sorted by table, so that proofs are sums
and comparisons over arrays.

    columns = Columns.of(recording)
    columns.reads[0].key          [rows read of table 0]
    columns.alive(columns.adds[0], 1)      which adds to table 0 the second life of the run starts from or makes itself
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
    """Rows touched, one after another, [n] each; calls: how many calls of `add` or `read` they come from."""

    calls: int
    position: Ints
    incarnation: Ints
    worker: Ints
    clock: Ints
    key: Ints


@dataclass(frozen=True, eq=False)
class Adds(Events):
    """Rows added to. deltas [n, cols]."""

    deltas: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Reads(Events):
    """Rows read. seen [n, workers]: the adds of each worker they held; values [n, cols]."""

    now: NDArray[np.float64]
    seen: NDArray[np.int32]
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """Everything the proofs look at. Adds that a run began with, because it went on from a checkpoint, are left out of
    every count: they are part of what rows start from.
    """

    recording: Recording
    layout: Layout
    adds: tuple[Adds, ...]
    reads: tuple[Reads, ...]
    begins: Ints  # [incarnations] the clock each life of the run started from
    undone: Ints  # [incarnations] the position in the recording at which each life began
    whole: tuple[bool, ...]  # whether all of a life was recorded, or only what came before the checkpoint after it

    @classmethod
    def of(cls, recording: Recording) -> Columns:
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
        """[n] which adds this life may see: its own, and those of earlier ones that no restart since has undone."""
        # A restart to clock C undoes clocks C and later of every life before it, so the least C since then counts.
        least = np.full(self.incarnations, -1, dtype=np.int64)
        least[incarnation] = np.iinfo(np.int64).max
        for earlier in range(incarnation - 1, -1, -1):
            least[earlier] = min(int(least[earlier + 1]), int(self.begins[earlier + 1]))
        return adds.clock < least[adds.incarnation]

    def start_rows(self, table: int, keys: Ints) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """[n, cols] what rows held before the first add, and how much more may still come to them from before."""
        rows, slack = self.layout.start_rows(table, keys), np.zeros((len(keys), self.tables[table].cols))
        base = self.recording.base.get(table)
        if base is not None and len(base.keys):
            at, known = _found(base.keys, keys)
            rows[known], slack[known] = base.values[at[known]], base.slack[at[known]]
        return rows, slack

    def since_begin(self, table: int, keys: Ints, witness: NDArray[np.int32]) -> NDArray[np.int32]:
        """[n, workers] a witness without the adds that the run began with."""
        return _since(self.recording, table, keys, witness)


def _found(among: Ints, keys: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """[n] where keys stand among others, which ascend, and whether they do."""
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
