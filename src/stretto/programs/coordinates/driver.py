"""The driver of a distributed sparse regression: it chooses coordinates, adds up partial sums and updates β."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stretto.errors import RunError
from stretto.kernels.linear.coordinate_parts import renew_round
from stretto.programs.choosing import Situation
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.chooser import CompiledChooser
from stretto.schedule.scheduler_share import RemoteChooser
from stretto.schedule.spec import Chooser, Ints

from .parts import Change, RoundJob
from .segments import Segments
from .state import CoordinateState, diverged

# Arrays of a problem that a checkpoint holds.
_SAVED = ("beta", "moved", "z", "touched", "jobs", "count", "change", "before", "level", "pulls", "counts")


class Coordinates:
    """The driver of the rounds, and the `Source` of their jobs.

    Parameters
    ----------
    begin : function(Coordinates) -> Segments, or None
        Segments of the schedule; the driver then applies changes to v and z, which it reads at the end of a segment.

    Attributes
    ----------
    state : CoordinateState
        Of all parts. By rows and without segments, v and z are those before the first round.
    done : int
        Rounds that are in β.
    moved : dict of int to Change
        By round: what blocks of rows may still have to apply.
    segments : Segments or None
    spec : Schedule
        How rounds are chosen, for schedulers on nodes.
    """

    learns = False

    def __init__(
        self,
        name: str,
        state: CoordinateState,
        chooser: Chooser,
        depth: int,
        begin: Callable[[Coordinates], Segments] | None = None,
    ) -> None:
        self._name, self.arrays, self._chooser, self.depth = name, state, chooser, depth
        self.done = self._given = 0  # given: the last round whose changes were given to blocks of rows
        self.moved: dict[int, Change] = {}
        self.spec: Any = None
        self._learns_after = _learns_after(chooser, depth)
        self.segments = None if begin is None else begin(self)

    @property
    def state(self) -> CoordinateState:
        return self.arrays

    @property
    def base(self) -> int:
        """The last round before the segment. Rounds of the segment read the parameters after it or later."""
        return self.arrays.base

    @property
    def last(self) -> int | None:
        """The last round of the segment; the next round is chosen after it is aggregated."""
        return None if self.segments is None else self.segments.limit

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The choices made so far."""
        return () if self.segments is None else self.segments.choices

    def restart(self, chooser: CompiledChooser, done: int, last: int | None) -> None:
        """Begin a segment."""
        self.arrays.restart(done)
        self._chooser, self._learns_after = chooser, _learns_after(chooser, self.depth)

    def choose(self, now: Situation) -> tuple[tuple[RoundJob, ...], None]:
        """The job of a round. The schedule first receives the changes of its earlier rounds."""
        number = now.round
        if self.segments is not None and number == self.segments.limit + 1:
            self.segments.end(number - 1)
        problem, own = self.arrays.problem, number - self.base
        ring = len(problem.count)
        if not isinstance(self._chooser, RemoteChooser):
            self._learn(own)
        chosen = self._checked(self._chooser.choose(), number)
        if not len(chosen):
            return (), None
        problem.jobs[own % ring, : len(chosen)], problem.count[own % ring] = chosen, len(chosen)
        known = max(self.base, number - self.depth)
        moved = tuple(self.moved[one] for one in range(self._given + 1, known + 1) if one in self.moved)
        self._given = max(self._given, known)
        samples = int(self.arrays.columns.length[chosen].sum())
        return (RoundJob(number, chosen, samples, moved),), None

    def _learn(self, own: int) -> None:
        """Pass the changes of its last round to the scheduler whose turn it is."""
        problem = self.arrays.problem
        if (before := own - self._learns_after) >= 1:
            jobs = self._jobs(before)
            self._chooser.learn(jobs, problem.change[before % len(problem.count), : len(jobs)])

    def request(self, number: int, last: Any) -> Any:
        """What the scheduler of a round, on a node, receives before it chooses the round."""
        assert isinstance(self._chooser, RemoteChooser)
        self._learn(number - self.base)
        return self._chooser.request(number)

    def receive(self, number: int, jobs: Any) -> None:
        """Store a round that a scheduler on a node has chosen."""
        assert isinstance(self._chooser, RemoteChooser)
        self._chooser.receive(number, jobs)

    def _checked(self, chosen: Any, number: int) -> Ints:
        """The coordinates of a round; those of a user's schedule are validated."""
        if isinstance(self._chooser, CompiledChooser | RemoteChooser):
            return chosen  # type: ignore[no-any-return]
        found, size, width = np.asarray(chosen), self.arrays.columns.size, self.arrays.width
        wrong = ""
        if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
            wrong = f"{found.dtype} {list(found.shape)}; return a list of column numbers"
        elif len(found) > width:
            wrong = f"{len(found)} jobs, and its width is {width}; return at most as many"
        elif len(found) and not 0 <= found.min() <= found.max() < size:
            wrong = f"jobs from {found.min()} to {found.max()}; return numbers from 0 to {size - 1}"
        elif len(np.unique(found)) != len(found):
            wrong = "a job more than once; return each at most once"
        if wrong:
            raise RunError(f"{self._name}: the schedule chose for round {number}: {wrong}")
        return np.ascontiguousarray(found, np.int64)

    def _jobs(self, own: int) -> Ints:
        """The coordinates of a round, counted from the start of the segment."""
        problem = self.arrays.problem
        slot = own % len(problem.count)
        found: Ints = problem.jobs[slot, : problem.count[slot]]
        return found

    def rows(self, jobs: Sequence[Any]) -> None:
        """None: a job is not a row of a parameter."""
        return None

    def listed(self, jobs: Sequence[RoundJob]) -> tuple[int, ...]:
        """Coordinates, as results report them."""
        return tuple(coordinate for job in jobs for coordinate in job.coordinates.tolist())

    def renew(self) -> int:
        """Add up the partial sums of the next round, update β, and return the number of the round."""
        problem = self.arrays.problem
        self.done += 1
        renew_round(problem, self.done - self.base, self.depth)
        if failed := self.arrays.counts[2]:
            raise diverged(self._name, failed)
        return self.done

    def remember(self, number: int) -> None:
        """Keep the changes of a round until blocks of rows have applied them. Changes of zero are left out."""
        problem = self.arrays.problem
        slot, jobs = (number - self.base) % len(problem.count), self._jobs(number - self.base)
        change = problem.change[slot, : len(jobs)]
        which = np.flatnonzero(change)
        self.moved[number] = Change(number, jobs[which], change[which], float(problem.level[slot]))

    def forget(self, number: int) -> None:
        """Drop the changes up to a round, which all blocks of rows have applied."""
        for known in [known for known in self.moved if known <= number]:
            del self.moved[known]

    def finish(self) -> None:
        """Choose the next segment if the run ends with a segment, as the engine in one memory does."""
        if self.segments is not None and self.done == self.segments.limit:
            self.segments.end(self.done)

    def saved(self) -> dict[str, Any]:
        """Everything that decides the rounds to come, for a checkpoint."""
        names = _SAVED if self.segments is None else (*_SAVED, "v")
        arrays = {name: getattr(self.arrays.problem, name) for name in names}
        segments = None if self.segments is None else self.segments.saved()
        counts = (self.done, self.base, self._given)
        return {
            "arrays": arrays, "chooser": self._chooser.arrays(), "counts": counts, "moved": self.moved,
            "segments": segments,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        for name, array in state["arrays"].items():
            getattr(self.arrays.problem, name)[...] = array
        if self.segments is not None:
            self._chooser = self.segments.restore(state["segments"])
            self._learns_after = _learns_after(self._chooser, self.depth)
        self._chooser.restore(state["chooser"])
        (self.done, self.arrays.base, self._given), self.moved = state["counts"], state["moved"]


def _learns_after(chooser: Chooser, depth: int) -> int:
    """Rounds after which a scheduler receives the changes of one of its rounds: at least `depth`."""
    queues = chooser.queues if isinstance(chooser, RemoteChooser) else 1
    if isinstance(chooser, CompiledChooser):
        queues = len(chooser.choice.place)
    return queues * -(-depth // queues)
