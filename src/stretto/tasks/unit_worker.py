"""`UnitWorker`: the first argument of a unit's function, one for each part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.tables.worker import Worker


@dataclass
class StageProgress:
    """Iterations that a part has made in the stage that runs."""

    made: int = 0


class UnitWorker:
    """One part of a unit in one iteration.

    Attributes
    ----------
    part : int
        Number of the part, from 0.
    parts : int
        Number of parts.
    node : int
        Number of the node that it runs on, counted among the nodes of its stage.
    """

    def __init__(self, worker: Worker, first: int, progress: StageProgress) -> None:
        self.part, self.parts, self.node = worker.number, worker.workers, worker.node
        self._worker, self._first, self._progress = worker, first, progress

    @property
    def iteration(self) -> int:
        """Iterations of the unit at this place of the task so far, over all turns of the loops around it."""
        return self._first + self._progress.made

    @property
    def local(self) -> dict[str, Any]:
        """Arrays and numbers of this part alone, by name. They are kept from one run of the unit to the next."""
        return self._worker.local

    def random(self, *keys: int) -> np.random.Generator:
        """A random generator that depends on the seed, the part, the iteration and the keys alone.

        Parameters
        ----------
        *keys : int
            What the numbers are for.
        """
        return self._worker.random(self.iteration, *keys)

    def work(self, items: float) -> None:
        """Report computed work, which costs time on `st.Simulated`.

        Parameters
        ----------
        items : float
            Items computed.
        """
        self._worker.work(items)
