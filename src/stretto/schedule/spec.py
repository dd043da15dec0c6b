"""Base classes of dynamic schedules: `Schedule`, a frozen specification, and `Chooser`, its state during a run.

A `Schedule` specifies how rounds are chosen. `start` returns a `Chooser`, which holds all state and can be saved and
restored between two rounds. A round is an array of jobs, the most urgent first. Jobs are numbers 0 … size − 1 of
parameters or blocks of parameters. The size of a round is a setting of the schedule, never the number of workers.

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
    from .waiting import JobOrder

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Chooser(ABC):
    """The state of a schedule between two rounds. Subclass it to write your own schedule.

    The same schedule, size, seed and changes learned give the same rounds.

    Examples
    --------
    >>> import stretto as st
    >>> chooser = st.schedule.cyclic(width=2).start(size=5, seed=0)
    >>> chooser.choose().tolist(), chooser.choose().tolist()
    ([0, 1], [2, 3])
    """

    @abstractmethod
    def choose(self) -> Ints:
        """The next round's jobs, each at most once, the most urgent first; empty when no jobs are left."""

    def learn(self, jobs: Ints, change: Floats) -> None:  # noqa: B027  most schedules ignore changes
        """Note how far each job's parameter moved in an earlier round.

        Parameters
        ----------
        jobs : ndarray of int [k]
            Jobs of the round.
        change : ndarray [k]
            How far each of them moved.
        """

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that decides the rounds to come, for a checkpoint; `restore` takes it back."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from what `arrays` returned.

        Parameters
        ----------
        arrays : dict of ndarray
            What `arrays` returned.
        """


class Schedule(ABC):
    """How rounds are chosen. Subclass it to write your own schedule.

    A frozen value: equal schedules are equal, and the `repr` is part of the fingerprint.

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.cyclic(4) == st.schedule.cyclic(4)
    True
    >>> isinstance(st.schedule.cyclic(4), st.schedule.Schedule)
    True
    """

    @abstractmethod
    def start(self, size: int, seed: int, data: Any = None) -> Chooser:
        """The state before the first round.

        Parameters
        ----------
        size : int
            Number of jobs.
        seed : int
            Seed of schedules that draw.
        data : object, default None
            What conflicts between jobs are computed from, if the schedule avoids them.
        """

    @property
    def waiting(self) -> JobOrder | None:
        """Which jobs of a round wait for each other; None: none does."""
        return None

    def named(self, jobs: Ints) -> list[Any]:
        """What `update` is given for each job: its number, unless the schedule has its own jobs.

        Parameters
        ----------
        jobs : ndarray of int
            Numbers of the jobs.
        """
        return list(jobs.tolist())

    def explain(self) -> str:
        """The schedule in words, for a plan's `explain()`."""
        return repr(self)
