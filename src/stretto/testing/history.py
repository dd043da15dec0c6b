"""Adds to one table that one attempt of a run may read, sorted by (row, worker, order)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .columns import Adds, Ints

NEVER = np.iinfo(np.int64).max


class AddHistory:
    """Sorted adds of one table. which [m]: the adds; row, clock, position [m (+ 1)] of each; rows: keys with adds."""

    def __init__(self, adds: Adds, alive: NDArray[np.bool_], workers: int) -> None:
        which = np.flatnonzero(alive)
        self.rows, row = np.unique(adds.key[which], return_inverse=True)
        self.workers = workers
        group = row.astype(np.int64) * workers + adds.worker[which]
        order = np.lexsort((adds.position[which], group))
        self.which = which[order]
        self.row = row[order]
        self.clock = np.append(adds.clock[self.which], NEVER)
        self.position = np.append(adds.position[self.which], NEVER)
        # One more row, without adds, stands for rows that were read and never added to.
        sizes = np.bincount(group, minlength=(len(self.rows) + 1) * workers)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])

    def rows_of(self, keys: Ints) -> Ints:
        """[n] position of each key in `rows`; after the last if it has no adds."""
        at = np.searchsorted(self.rows, keys)
        known = self.rows[np.minimum(at, len(self.rows) - 1)] == keys if len(self.rows) else np.zeros(len(keys), bool)
        return np.where(known, at, len(self.rows))

    def groups(self, keys: Ints) -> Ints:
        """[n, workers] where the adds to each row by each worker begin in `starts`."""
        groups: Ints = self.rows_of(keys)[:, None] * self.workers + np.arange(self.workers)
        return groups

    def counts(self, keys: Ints) -> Ints:
        """[n, workers] how many adds there are."""
        group = self.groups(keys)
        counts: Ints = self.starts[group + 1] - self.starts[group]
        return counts
