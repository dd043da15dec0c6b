"""Schedulers apart from the driver: what scheduler q of Q needs to choose its rounds, and its state.

    share = scheduler_share(spec, size, seed, data, q)      # on the driver: only the columns of its own jobs
    scheduler = share.start()                               # where it runs
    scheduler.choose([(jobs, change), …])                   # learn of its earlier rounds, then choose the next one

Job j belongs to scheduler j mod Q, and round t = 1, 2, … is chosen by number (t − 1) mod Q. What one scheduler chooses
depends on its own jobs and rounds alone, so rounds are those of one chooser with Q queues.
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

    which = range(first, columns.size, step)
    if columns.dense:
        values = columns.values.reshape(columns.size, columns.rows)[first::step].ravel()
        own = Columns(columns.rows, len(which), values, columns.indices, columns.indptr, columns.centred)
    else:
        starts, length = columns.indptr[:-1][first::step], columns.length[first::step]
        indptr = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        entries = np.repeat(starts - indptr[:-1], length) + np.arange(indptr[-1])
        own = Columns(
            columns.rows, len(which), columns.values[entries], columns.indices[entries], indptr, columns.centred
        )
    any_long = columns.dense or bool((columns.length > SHORT).any())
    return OwnColumns(columns.size, first, step, own, any_long)


@dataclass(frozen=True, eq=False)
class SchedulerShare:
    """What scheduler number q needs. data: its columns; all data for a conflict function of the user's."""

    spec: Prioritised
    size: int
    seed: int
    data: Any
    number: int

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
            spec.start(size, seed, data)  # says what is missing
        columns = columns_of(data)
        if columns.size != size:
            raise PlanError(f"there are {size} jobs and {columns.size} columns of data; each job needs its own column")
        data = own_columns(columns, number, spec.schedulers)
    elif spec.conflicts is None:
        data = None
    return SchedulerShare(spec, size, seed, data, number)


class Scheduler:
    """One scheduler where it runs."""

    def __init__(self, share: SchedulerShare) -> None:
        self._number = share.number
        self._chooser = share.spec.start(share.size, share.seed, share.data)

    def choose(self, learned: Sequence[Learned]) -> Ints:
        """Learn of earlier rounds, in their order, and choose the next one."""
        for jobs, change in learned:
            self._chooser.learn(jobs, change)
        return self._chooser.choose_from(self._number)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides its rounds to come."""
        return {name: self._own(array).copy() for name, array in self._chooser.arrays().items()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave."""
        arrays = self._chooser.arrays()
        for name, array in arrays.items():
            self._own(array)[...] = state[name]
        self._chooser.restore(arrays)

    def _own(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[self._number] if array.ndim > 1 else array


class RemoteChooser(Chooser):
    """The chooser of a driver whose schedulers run elsewhere: it passes on what they learn, and hands out their rounds.

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
        """What the scheduler of a round learns before it chooses that round."""
        mine = (number - 1) % self.queues
        found, self._learned[mine] = self._learned[mine], []
        return found

    def receive(self, number: int, jobs: Ints) -> None:
        """A scheduler has chosen a round."""
        self._chosen[number] = jobs

    def choose(self) -> Ints:
        self._made += 1
        return self._chosen.pop(self._made)

    def arrays(self) -> dict[str, NDArray[Any]]:
        raise PlanError("the state of schedulers on nodes is saved there")

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        raise PlanError("the state of schedulers on nodes is saved there")
