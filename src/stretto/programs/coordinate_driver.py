"""The driver of a sparse regression in several memories: it chooses coordinates, folds their sums, and changes β."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stretto.kernels.coordinate_parts import renew_round
from stretto.schedule.chooser import Compiled
from stretto.schedule.spec import Floats, Ints
from stretto.schedule.trials import Decision

from .choosing import Situation
from .coordinate_parts import RoundJob
from .coordinate_state import CoordinateState, diverged

# Arrays of a problem that a checkpoint holds.
_SAVED = ("beta", "moved", "z", "touched", "jobs", "count", "change", "before", "level", "pulls", "counts")


class Coordinates:
    """The driver's part of the rounds, and the `Source` of their jobs.

    Attributes
    ----------
    arrays : CoordinateState
        Of all parts; by rows, v and z are those before the first round.
    done : int
        Rounds that are in β.
    moved : dict of int to (coordinates, changes, level)
        By round: what blocks of rows may still have to apply.
    """

    learns = False
    choices: tuple[Decision, ...] = ()

    def __init__(self, name: str, arrays: CoordinateState, chooser: Compiled, depth: int) -> None:
        self._name, self.arrays, self._chooser, self.depth = name, arrays, chooser, depth
        self.done = 0
        self.moved: dict[int, tuple[Ints, Floats, float]] = {}
        queues = len(chooser.choice.place)
        self._learns_after = queues * -(-depth // queues)  # rounds of the same scheduler, at least `depth` later

    @property
    def width(self) -> int:
        """The most coordinates of a round."""
        return self._chooser.width

    def choose(self, now: Situation) -> tuple[tuple[RoundJob, ...], None]:
        """The job of a round; the schedule first learns what became of its earlier rounds."""
        problem = self.arrays.problem
        ring, number = len(problem.count), now.round
        if (before := number - self._learns_after) >= 1:
            jobs = self._jobs(before)
            self._chooser.learn(jobs, problem.change[before % ring, : len(jobs)])
        chosen = self._chooser.choose()
        problem.jobs[number % ring, : len(chosen)], problem.count[number % ring] = chosen, len(chosen)
        moved, change, _ = self.moved.get(number - self.depth, (np.empty(0, np.int64), np.empty(0), 0.0))
        samples = int(self.arrays.columns.length[chosen].sum())
        return (RoundJob(number, chosen, samples, moved, change),), None

    def _jobs(self, number: int) -> Ints:
        problem = self.arrays.problem
        slot = number % len(problem.count)
        found: Ints = problem.jobs[slot, : problem.count[slot]]
        return found

    def rows(self, jobs: Sequence[Any]) -> None:
        """A job is no row of a parameter."""
        return None

    def listed(self, jobs: Sequence[RoundJob]) -> tuple[int, ...]:
        """Coordinates, as results report them."""
        return tuple(coordinate for job in jobs for coordinate in job.coordinates.tolist())

    def renew(self) -> int:
        """Fold what the parts gathered for the next round, and change β; the round."""
        problem = self.arrays.problem
        self.done += 1
        renew_round(problem, self.done, self.depth)
        if failed := self.arrays.counts[2]:
            raise diverged(self._name, failed)
        return self.done

    def remember(self, number: int) -> None:
        """Keep what a round changed for blocks of rows to apply. Changes of zero have no effect on them."""
        problem = self.arrays.problem
        slot, jobs = number % len(problem.count), self._jobs(number)
        change = problem.change[slot, : len(jobs)]
        which = np.flatnonzero(change)
        self.moved[number] = jobs[which], change[which], float(problem.level[slot])

    def forget(self, number: int) -> None:
        """All blocks of rows have applied the changes up to a round, and need them no more."""
        for known in [known for known in self.moved if known <= number]:
            del self.moved[known]

    def state(self) -> dict[str, Any]:
        """Everything that decides the rounds to come, for a checkpoint."""
        saved = {name: getattr(self.arrays.problem, name) for name in _SAVED}
        return {"arrays": saved, "chooser": self._chooser.arrays(), "done": self.done, "moved": self.moved}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        for name, array in state["arrays"].items():
            getattr(self.arrays.problem, name)[...] = array
        self._chooser.restore(state["chooser"])
        self.done, self.moved = state["done"], state["moved"]
