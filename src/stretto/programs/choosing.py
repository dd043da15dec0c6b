"""Sources of rounds: the program's own `schedule` method, or a ready schedule with its chooser.

Round t is chosen from the state after round t − s: the parameters, and the jobs of that round with how far each of them
moved. Rounds are chosen one after another, so a source may keep state between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import RunError
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.scheduler_share import RemoteChooser
from stretto.schedule.spec import Chooser, Floats, Ints, Schedule
from stretto.schedule.waiting import JobOrder

from .error_context import short
from .params import Params


@dataclass(frozen=True, eq=False)
class Last:
    """The newest round that a schedule may use."""

    round: int  # its number
    jobs: tuple[Any, ...]  # its jobs
    changes: Floats | None  # [n] how far each job moved; None if not reported


@dataclass(frozen=True, eq=False)
class Situation:
    """What `schedule` is given: where the run stood when the parameters were those that this round reads."""

    round: int  # the round to choose, from 1
    params: Params  # read-only, after round `round` − pipeline
    data: Any
    seed: int
    memory: dict[str, Any]  # the schedule's own, kept between rounds
    last: Last | None  # None in the first rounds, before anything is known

    @cached_property
    def random(self) -> np.random.Generator:
        """Random numbers of this round, from the seed and the round alone."""
        key = np.array([self.seed % 2**64, self.round], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))


@runtime_checkable
class RoundSource(Protocol):
    """Chooses rounds."""

    learns: bool  # whether it wants to know how far jobs moved

    @property
    def base(self) -> int:
        """The last round before the current segment. Rounds of the segment read the parameters after it or later."""
        ...

    @property
    def last(self) -> int | None:
        """The last round of the segment; the next round is chosen after it is aggregated. None: no segments."""
        ...

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The choices that `schedule="auto"` made."""
        ...

    def choose(self, now: Situation) -> tuple[tuple[Any, ...], JobOrder | None]:
        """The jobs of a round, the most urgent first, and which wait for which; no jobs: the end."""
        ...

    def rows(self, jobs: Sequence[Any]) -> NDArray[Any] | None:
        """Rows of the first array that the jobs stand for; None if unknown."""
        ...

    def listed(self, jobs: Sequence[Any]) -> tuple[Any, ...]:
        """Jobs as results count and report them."""
        ...

    def saved(self) -> Any:
        """Everything that decides the rounds to come, for a checkpoint."""
        ...

    def restore(self, state: Any) -> None:
        """Continue from what `saved` gave."""
        ...


@runtime_checkable
class RemoteRoundSource(RoundSource, Protocol):
    """The driver's side of schedulers on nodes: they choose a round before `choose` returns it."""

    def request(self, number: int, last: Last | None) -> Any:
        """What the scheduler of a round receives before it chooses the round."""
        ...

    def receive(self, number: int, jobs: Any) -> None:
        """Store the jobs of a round, which `choose` returns later."""
        ...


class UserSource:
    """A `schedule(state)` written by the user."""

    learns = False
    choices: tuple[Decision, ...] = ()
    base, last = 0, None

    def __init__(self, program: str, schedule: Any) -> None:
        self._program, self._schedule = program, schedule

    def choose(self, now: Situation) -> tuple[tuple[Any, ...], JobOrder | None]:
        jobs = self._schedule(now)
        if jobs is None:
            return (), None
        scalar = isinstance(jobs, np.ndarray) and not jobs.ndim
        if scalar or isinstance(jobs, str | bytes | dict) or not isinstance(jobs, Iterable):
            raise RunError(
                f"{self._program}: schedule returned {short(jobs)} for round {now.round}; return a list of jobs, or "
                "None when nothing is left to do"
            )
        return tuple(jobs.tolist() if isinstance(jobs, np.ndarray) else jobs), None

    def rows(self, jobs: Sequence[Any]) -> None:
        return None

    def listed(self, jobs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(jobs)

    def saved(self) -> None:
        return None  # it keeps what it remembers in Situation.memory

    def restore(self, state: Any) -> None:
        pass


class SpecSource:
    """Rounds of a ready schedule. size: number of jobs, by default the rows of the first array of `params`."""

    base, last = 0, None

    @property
    def choices(self) -> tuple[Decision, ...]:
        """None: the spec is fixed."""
        return ()

    def __init__(
        self, spec: Schedule, size: int, seed: int, data: Any, *, by_row: bool, chooser: Chooser | None = None
    ) -> None:
        self._spec, self._by_row = spec, by_row
        self._chooser = spec.start(size, seed, data) if chooser is None else chooser
        self.learns = type(self._chooser).learn is not Chooser.learn
        self._numbers: dict[int, Ints] = {}

    def _learn(self, last: Last | None) -> None:
        if last is not None:
            numbers = self._numbers.pop(last.round)
            if self.learns:
                assert last.changes is not None
                self._chooser.learn(numbers, last.changes)

    def choose(self, now: Situation) -> tuple[tuple[Any, ...], JobOrder | None]:
        self._learn(now.last)
        numbers = self._numbers[now.round] = self._chooser.choose()
        return tuple(self._spec.named(numbers)), self._spec.waiting

    def rows(self, jobs: Sequence[Any]) -> NDArray[Any] | None:
        return np.array(jobs, dtype=np.int64) if self._by_row and self.learns else None

    def listed(self, jobs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(jobs)

    def saved(self) -> Any:
        return dict(self._chooser.arrays()), dict(self._numbers)

    def restore(self, state: Any) -> None:
        arrays, self._numbers = state
        self._chooser.restore(arrays)


def remote_chooser(schedule: Any, size: int) -> RemoteChooser:
    """The driver's proxy for schedulers on nodes."""
    return RemoteChooser(schedule.schedulers, min(schedule.width, size))


class RemoteSpecSource(SpecSource):
    """Rounds of a ready schedule whose schedulers run on nodes."""

    def __init__(self, spec: Schedule, size: int, seed: int, data: Any, *, by_row: bool) -> None:
        self._remote = remote_chooser(spec, size)
        super().__init__(spec, size, seed, data, by_row=by_row, chooser=self._remote)

    def request(self, number: int, last: Last | None) -> Any:
        self._learn(last)
        return self._remote.request(number)

    def receive(self, number: int, jobs: Any) -> None:
        self._remote.receive(number, jobs)


def moved(before: NDArray[Any], after: NDArray[Any]) -> Floats:
    """[n] how far rows moved: the difference of numbers, the length of the difference of rows."""
    kind = before.dtype.kind
    if kind not in "biufc":
        raise TypeError(f"how far {before.dtype} moved is not known; return that from `aggregate`, a number each")
    # Differences of unsigned integers would wrap around, and NumPy does not subtract booleans.
    wide = np.complex128 if kind == "c" else np.float64
    change = after.astype(wide) - before.astype(wide)
    step = np.asarray(np.abs(change) if kind == "c" else change, dtype=np.float64)
    return step if step.ndim == 1 else np.asarray(np.sqrt(np.square(step).reshape(len(step), -1).sum(axis=1)))


def changes_of(program: str, returned: Any, jobs: int, number: int) -> list[Any]:
    """How far each of n jobs moved, from what `aggregate` returned in a round."""
    changes = np.asarray(returned)
    if changes.shape != (jobs,) or changes.dtype.kind not in "fiub":
        raise RunError(
            f"{program}: `aggregate` returned {changes.dtype}, shape {changes.shape} in round {number}; return how far "
            f"each of the {jobs} jobs moved, one number each, or None"
        )
    return list(changes.astype(np.float64))
