"""What a dynamic schedule is: a frozen spec, and the state it starts.

A spec says how rounds are chosen; `start` gives a chooser, which is all the state there is: it can be saved between two
rounds and put back. A round is an array of jobs, the most urgent first. Jobs are numbers 0 … size − 1: parameters, or
blocks of them. How many there are in a round is a constant of the spec, never the number of workers.

    chooser = spec.start(size=1000, seed=0)
    jobs = chooser.choose()                # [at most width] int64; empty: nothing is left to do
    chooser.learn(jobs, change)            # how far each job's parameter moved, [len(jobs)] float64
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .waiting import Turns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Chooser(ABC):
    """The state of a schedule between two rounds. Same spec, size, seed and changes learned: same rounds."""

    @abstractmethod
    def choose(self) -> Ints:
        """The next round's jobs, each at most once, the most urgent first; empty when nothing is left to do."""

    def learn(self, jobs: Ints, change: Floats) -> None:  # noqa: B027  most schedules do not look
        """Take note of how far each job's parameter moved in a round that was chosen before."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that decides the rounds to come, for a checkpoint; `restore` puts it back."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what `arrays` gave."""


class Schedule(ABC):
    """How rounds are chosen. A frozen value: equal specs are equal, and its `repr` goes into the fingerprint."""

    @abstractmethod
    def start(self, size: int, seed: int, data: Any = None) -> Chooser:
        """The state before the first round. data: what conflicts between jobs are worked out from, where they are."""

    @property
    def waiting(self) -> Turns | None:
        """Which jobs of a round wait for each other; None: none does."""
        return None

    def named(self, jobs: Ints) -> list[Any]:
        """What `update` is handed for each job: its number, unless the schedule says otherwise."""
        return list(jobs.tolist())

    def explain(self) -> str:
        """The spec in words, for a plan's explain()."""
        return repr(self)
