"""Averages of several states of a topic model: sums of the word counts, and their means.

Sums are integers, so the mean does not depend on threads or on the order of the words. They are stored in the order of
the plan, as the counts are: one row of K for each position, then one for each heavy word, whose parts have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.kernels.topics.scores import add_rows_worker
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.files.mapped_arrays import Disk, new_array

from .count_layout import CountLayout
from .priors import CountRows

_AT_ONCE = 1 << 22  # sums that are read together


class SummedCounts:
    """Word counts summed over several states, and the number of states; empty unless wanted.

    Parameters
    ----------
    shape : CountLayout
        The layout of the counts.
    wanted : bool
        Whether states are averaged.
    disk : Disk or None
        Where the sums are stored, if not in memory.
    """

    def __init__(self, shape: CountLayout, *, wanted: bool, disk: Disk | None = None) -> None:
        self.shape, self.disk = shape, disk
        self.states = np.zeros(1, np.int64)
        size = (len(shape.word_tokens) + len(shape.heavy), shape.topics)
        self.counts = new_array(disk, "summed", size, np.int64) if wanted else np.zeros((0, shape.topics), np.int64)

    def add(self, first: int, rows: CountRows, crew: Crew) -> None:
        """Add the counts of the words from position `first` on; parts of heavy words have empty rows."""
        into = self.counts[first : first + len(rows)]
        rows.run("add_rows", add_rows_worker, crew, rows.visits(), into)
        self._release(first, first + len(rows))

    def add_heavy(self, counts: NDArray[np.int64]) -> None:
        """Add the counts [H K] of the heavy words."""
        heavy = len(self.shape.heavy)
        if heavy:
            self.counts[-heavy:] += counts.reshape(heavy, -1)

    def means(self, cols: BlockPartition) -> Iterator[tuple[Any, Any, Any]]:
        """(word, topic, mean count) of ranges of words; the entries of a word are together."""
        word = np.empty(len(self.counts), np.int64)
        word[cols.place] = np.arange(len(cols))
        word[len(cols) :] = self.shape.heavy
        most = _AT_ONCE if self.disk is None else min(_AT_ONCE, self.disk.budget // 64)
        at_once = max(1, most // self.shape.topics)
        for first in range(0, len(self.counts), at_once):
            some = self.counts[first : first + at_once]
            rows, topics = np.nonzero(some)
            yield word[first + rows], topics, (some[rows, topics] / self.states[0]).astype(np.float32)
            self._release(first, first + len(some))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        return {"summed": self.counts, "states": self.states} if len(self.counts) else {}

    def _release(self, first: int, last: int) -> None:
        if self.disk is not None:
            self.disk.release(self.counts, first, last)
