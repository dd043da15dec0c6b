"""Changes of clocks that are not closed yet, held back by exact runs.

A shard of an exact run applies the changes of a clock after every node has ended it. Until then they wait here, by
clock, table and worker. A worker's messages are running: for each row the last one holds all that the worker has added
to it in the clock, and replaces those before.

    worker 3, clock 5:   {row 1: 0.5, row 2: 1.0}  then  {row 1: 0.75}      is   {row 1: 0.75, row 2: 1.0}
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys, Update
from stretto.errors import RunError

_PILE = 8  # messages of one worker, clock and table that may wait before the outdated rows in them are dropped


@dataclass(slots=True, eq=False)
class WorkerChanges:
    """Changes of several workers. Of equal keys of one worker the last one counts."""

    keys: Keys  # [n]
    deltas: NDArray[Any]  # [n, cols]
    witness: NDArray[np.int32] | None  # [n, workers]
    ends: NDArray[np.int64]  # entries ends[g] … ends[g + 1] − 1 are those of the g-th worker


class HeldUpdates:
    """Waiting Updates, and the number of the last one of each node."""

    def __init__(self) -> None:
        # clock -> table -> worker -> messages in the order they came
        self._clocks: dict[int, dict[int, dict[int, list[Update]]]] = {}
        self._numbers: dict[int, dict[int, int]] = {}  # clock -> node -> the highest number

    def put(self, update: Update) -> None:
        """Keep a message until its clock is closed."""
        if not update.running or update.worker < 0:
            raise RunError(
                f"node {update.node} sent changes of clock {update.clock} that name no worker, in a run that applies "
                "them in the order of workers; this is a fault of Stretto, please report it"
            )
        tables = self._clocks.setdefault(update.clock, {})
        pile = tables.setdefault(update.table, {}).setdefault(update.worker, [])
        pile.append(update)
        if len(pile) > _PILE:
            pile[:] = [_latest(pile)]
        numbers = self._numbers.setdefault(update.clock, {})
        numbers[update.node] = max(update.number, numbers.get(update.node, 0))

    def clocks_before(self, clock: int) -> list[int]:
        """Clocks < clock with changes, in order."""
        return sorted(held for held in self._clocks if held < clock)

    def tables_of(self, clock: int) -> list[int]:
        """Tables with changes of this clock."""
        return sorted(self._clocks[clock])

    def batches(self, clock: int, table: int, limit: int | None) -> list[WorkerChanges]:
        """The changes of a clock in the order of workers, cut between workers into batches of about `limit` rows."""
        found: list[WorkerChanges] = []
        group: list[list[Update]] = []
        rows = 0
        piles = self._clocks[clock][table]
        for worker in sorted(piles):
            group.append(piles[worker])
            rows += sum(len(update.keys) for update in piles[worker])
            if limit is not None and rows >= limit:
                found.append(_batch(group))
                group, rows = [], 0
        if group:
            found.append(_batch(group))
        return found

    def drop(self, clock: int) -> dict[int, int]:
        """Remove a clock that was applied; returns the highest Update number of each node in it."""
        del self._clocks[clock]
        return self._numbers.pop(clock)


def _batch(group: list[list[Update]]) -> WorkerChanges:
    ends = np.zeros(len(group) + 1, dtype=np.int64)
    for g, pile in enumerate(group):
        ends[g + 1] = ends[g] + sum(len(update.keys) for update in pile)
    keys, deltas, witness = _joined([update for pile in group for update in pile])
    return WorkerChanges(keys, deltas, witness, ends)


def _joined(updates: list[Update]) -> tuple[Keys, NDArray[Any], NDArray[np.int32] | None]:
    first = updates[0]
    if len(updates) == 1:
        return first.keys, first.deltas, first.witness
    witness = None
    if first.witness is not None:
        witness = np.concatenate([update.witness for update in updates if update.witness is not None])
    return (
        np.concatenate([update.keys for update in updates]),
        np.concatenate([update.deltas for update in updates]),
        witness,
    )


def _latest(pile: list[Update]) -> Update:
    """One message with the content of all of them."""
    keys, deltas, witness = _joined(pile)
    once, from_end = np.unique(keys[::-1], return_index=True)
    last = len(keys) - 1 - from_end
    return replace(
        pile[-1], keys=once, deltas=deltas[last], witness=None if witness is None else witness[last], versions=None
    )
