"""Schedulers on nodes (`schedulers_on="nodes"`): data and state of scheduler q of Q, and its proxy on the driver.

    share = scheduler_share(spec, size, seed, data, q)      # on the driver: only the columns of its own jobs
    scheduler = share.start()                               # where it runs
    scheduler.choose([(jobs, change), …])                   # learn of its earlier rounds, then choose the next one

Job j belongs to scheduler j mod Q, and scheduler (t − 1) mod Q chooses round t = 1, 2, … A scheduler depends only on
its own jobs and rounds, so rounds are the same as those of one chooser with Q queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError

from .columns import Columns, columns_of, correlation
from .prioritised import Prioritised
from .spec import Chooser, Floats, Ints

Learned = tuple[Ints, Floats]  # jobs of a round, and how far each moved


@dataclass(frozen=True, eq=False)
class OwnColumns:
    """The columns of one scheduler.

    Attributes
    ----------
    size : int
        Columns of all schedulers.
    first, step : int
        Its columns are first, first + step, …
    own : Columns
        Those.
    any_long : bool
        Whether any column, of any scheduler, is too long to be compared entry by entry.
    """

    size: int
    first: int
    step: int
    own: Columns
    any_long: bool

    def whole(self) -> Columns:
        """All columns, those of other schedulers empty."""
        own = self.own
        if own.dense:
            values = np.zeros(self.size * own.rows, own.values.dtype)  # pages that are never written take no memory
            values.reshape(self.size, own.rows)[self.first :: self.step] = own.values.reshape(own.size, own.rows)
            return Columns(own.rows, self.size, values, own.indices, own.indptr, own.centred)
        length = np.zeros(self.size, np.int64)
        length[self.first :: self.step] = own.length
        indptr = np.concatenate([[0], np.cumsum(length)])
        return Columns(own.rows, self.size, own.values, own.indices, indptr, own.centred)


def own_columns(columns: Columns, first: int, step: int) -> OwnColumns:
    """The columns first, first + step, … of a matrix."""
    from stretto.kernels.rounds.correlation import SHORT

    any_long = columns.dense or bool((columns.length > SHORT).any())
    return OwnColumns(columns.size, first, step, columns.pick(slice(first, None, step)), any_long)


@dataclass(frozen=True, eq=False)
class SchedulerShare:
    """What one scheduler needs to choose its rounds."""

    spec: Prioritised  # the schedule
    size: int  # number of jobs of all schedulers
    seed: int  # of the run
    data: Any  # columns of its own jobs; all data for a conflict function of the user's
    number: int  # of the scheduler, from 0

    def start(self) -> Scheduler:
        """The scheduler before its first round."""
        return Scheduler(self)


def scheduler_share(spec: Any, size: int, seed: int, data: Any, number: int) -> SchedulerShare:
    """The share of one of the schedulers of a spec."""
    if not isinstance(spec, Prioritised):
        raise PlanError(
            f"schedulers_on='nodes': {spec!r} chooses on the driver; give st.schedule.prioritised(schedulers=…)"
        )
    if spec.conflicts is correlation:
        if data is None:
            spec.start(size, seed, data)  # raises an error that names what is missing
        columns = columns_of(data)
        if columns.size != size:
            raise PlanError(f"there are {size} jobs and {columns.size} columns of data; each job needs its own column")
        data = own_columns(columns, number, spec.schedulers)
    elif spec.conflicts is None:
        data = None
    return SchedulerShare(spec, size, seed, data, number)


class Scheduler:
    """One scheduler, on its node."""

    def __init__(self, share: SchedulerShare) -> None:
        self._number = share.number
        self._chooser = share.spec.start(share.size, share.seed, share.data)

    def choose(self, learned: Sequence[Learned]) -> Ints:
        """Take the changes of earlier rounds, in order, and choose the next round."""
        for jobs, change in learned:
            self._chooser.learn(jobs, change)
        return self._chooser.choose_from(self._number)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides its later rounds."""
        return {name: self._own(array).copy() for name, array in self._chooser.arrays().items()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        arrays = self._chooser.arrays()
        for name, array in arrays.items():
            self._own(array)[...] = state[name]
        self._chooser.restore(arrays)

    def _own(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[self._number] if array.ndim > 1 else array


class RemoteChooser(Chooser):
    """The driver's proxy for schedulers on nodes: forwards changes to them, and returns the rounds they chose.

    Attributes
    ----------
    queues : int
        Schedulers.
    width : int
        The most jobs of a round.
    """

    def __init__(self, queues: int, width: int) -> None:
        self.queues, self.width = queues, width
        self._learned: list[list[Learned]] = [[] for _ in range(queues)]  # by scheduler: not passed on yet
        self._chosen: dict[int, Ints] = {}  # by round
        self._made = 0

    def learn(self, jobs: Ints, change: Floats) -> None:
        if len(jobs):
            self._learned[int(jobs[0]) % self.queues].append((np.array(jobs), np.array(change)))

    def request(self, number: int) -> list[Learned]:
        """The changes that the scheduler of a round receives before it chooses that round."""
        mine = (number - 1) % self.queues
        found, self._learned[mine] = self._learned[mine], []
        return found

    def receive(self, number: int, jobs: Ints) -> None:
        """Store a round that a scheduler has chosen. A checkpoint may repeat one that is in flight already."""
        if number > self._made:
            self._chosen[number] = jobs

    def choose(self) -> Ints:
        self._made += 1
        return self._chosen.pop(self._made)

    def arrays(self) -> dict[str, Any]:
        """What decides later rounds besides the states of the schedulers, which are saved on their nodes."""
        return {"learned": self._learned, "chosen": self._chosen, "made": self._made}

    def restore(self, arrays: dict[str, Any]) -> None:
        self._learned, self._chosen, self._made = arrays["learned"], arrays["chosen"], arrays["made"]
