"""Run a loop with a schedule: choose a round, run its iterations in compiled code, report changes to the schedule.

A call runs rounds until it has run as many iterations as the loop has. The next call runs fewer by the number that the
last round exceeded, so that k calls run k epochs of iterations. Between calls the loop keeps the state of the schedule
(its *chooser*) while it is called with the same arrays; with others it starts anew. `schedule="auto"` with an objective
may take another candidate between two calls, by the decrease of the objective per unit of work and not per second.

Python runs once for each round, never for each iteration: it writes the numbers of the round's iterations to an array
that compiled code reads. The data are not moved.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged, LoopError, PlanError
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.front.bind import BoundValues
from stretto.loops.front.refusals import refuse
from stretto.loops.layout.node_arrays import spec_for
from stretto.loops.layout.round_visits import cut, most, visits_in
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.inline_step import InlineStep
from stretto.schedule.automatic.auto import Auto, AutoChooser
from stretto.schedule.automatic.candidates import RoundCost
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.rotation import independent
from stretto.schedule.spec import Chooser

from .aliasing import give_back
from .prepared import PreparedLoop
from .run import Execution, begin, compiling
from .scheduled import IN_TURN, TOGETHER, IterationColumns, columns, matrices, watched

if TYPE_CHECKING:
    from stretto.loops.planned_call import PlannedCall

ROUND_COST = RoundCost(20_000.0)  # Python chooses a round, compiled code runs its iterations
_KEPT = 8  # sets of arrays for which a loop keeps the state of its schedule
_FEW = 256  # iterations of a round
_WORTH_WAKING = 300e-6  # seconds of a round above which other threads are woken, which takes some 80e-6
_TRIED = 8  # rounds of a call before that is decided, by the shortest of them


@dataclass(eq=False)
class ScheduleProgress:
    """The state of a schedule for one set of arrays."""

    chooser: Chooser  # the state of the schedule
    watch: str  # name of the state that it learns from; '' if it does not learn
    source: str  # data from which it computes conflicts, in words
    owners: tuple[weakref.ref[Any], ...]  # the arrays
    owed: int = 0  # iterations still to run; below 0 when the last call ran too many
    rounds: int = 0  # rounds so far

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The choices of `schedule="auto"` so far."""
        return self.chooser.decisions if isinstance(self.chooser, AutoChooser) else ()


def run_rounds(
    prepared: PreparedLoop,
    held: BoundValues,
    known: Mapping[str, Any],
    crew: Crew,
    objective: Callable[[], float] | None = None,
) -> tuple[float, list[Ints]]:
    """Run one call; return the seconds its passes took, and the iterations of every round, in order.

    objective : evaluates the objective of the arguments, for `schedule="auto"`
    """
    if not len(prepared.analysis.space):
        return 0.0, []
    key, progress = _take(prepared, held)  # dropped after an error: the changes of its last round are lost
    if objective is not None and isinstance(progress.chooser, AutoChooser) and progress.chooser.due:
        progress.chooser.observe(progress.rounds, objective())
    maker = _RoundMaker(prepared, held, known, crew)
    progress.owed += maker.size
    try:
        seconds, made = _until_paid(progress, maker)
    except BaseException:
        give_back(maker.call.borrowed)  # keep the results of earlier rounds
        raise
    maker.call.end()
    _put(prepared, key, progress)
    return seconds, made


def _until_paid(progress: ScheduleProgress, maker: _RoundMaker) -> tuple[float, list[Ints]]:
    rows = maker.call.arrays[progress.watch] if progress.watch else None
    made: list[Ints] = []
    seconds = 0.0
    while progress.owed > 0:
        jobs = maker.checked(progress.chooser.choose())
        if not len(jobs):
            progress.owed = 0  # the schedule has no jobs left
            break
        if rows is None:
            seconds += maker.make(jobs)
            if isinstance(progress.chooser, AutoChooser):
                progress.chooser.learn(jobs, np.zeros(len(jobs)))  # it counts the work of the round
        else:
            at = maker.indices(jobs)
            before = rows[at]
            seconds += maker.make(jobs)
            progress.chooser.learn(jobs, _moved(before, rows[at], at, maker.analysis, progress.watch))
        made.append(jobs.copy())  # a chooser may reuse its array
        progress.owed -= len(jobs)
        progress.rounds += 1
    return seconds, made


def progress_of(prepared: PreparedLoop, held: BoundValues) -> ScheduleProgress:
    """The state of the schedule for these arrays; new arrays start it."""
    key, progress = _take(prepared, held)
    _put(prepared, key, progress)
    return progress


def schedule_arrays(made: PlannedCall) -> dict[str, NDArray[Any]]:
    """The state of the schedule of each loop of a plan, for a checkpoint."""
    found: dict[str, NDArray[Any]] = {}
    for k, part in enumerate(made.parts):
        if len(part.prepared.analysis.space):
            progress = progress_of(part.prepared, made.held)
            found |= {f"{k}/chooser/{name}": array for name, array in progress.chooser.arrays().items()}
            found[f"{k}/owed"] = np.array([progress.owed, progress.rounds])
    return found


def restore_schedules(made: PlannedCall, saved: Mapping[str, NDArray[Any]]) -> None:
    """Continue from what `schedule_arrays` returned."""
    for k, part in enumerate(made.parts):
        if f"{k}/owed" in saved:
            progress, start = progress_of(part.prepared, made.held), f"{k}/chooser/"
            mine = {name.removeprefix(start): array for name, array in saved.items() if name.startswith(start)}
            progress.chooser.restore(mine)
            progress.owed, progress.rounds = saved[f"{k}/owed"].tolist()


# --- the schedule's state between calls -----------------------------------------------------------------------------


def _take(prepared: PreparedLoop, held: BoundValues) -> tuple[Any, ScheduleProgress]:
    """Remove and return the state for these arrays, or a new one. The caller puts it back with `_put`."""
    analysis = prepared.analysis
    # The state belongs to the arrays that the loop writes and to the data from which conflicts are computed. Numbers
    # and other arrays may change from call to call, such as the weight of a penalty.
    arrays = [held.arrays[name] for name in sorted({*analysis.written, *matrices(analysis, held)})]
    owners = [_owner(array) for array in arrays]
    key = tuple((id(owner), array.__array_interface__["data"][0], array.shape, array.strides)
                for owner, array in zip(owners, arrays, strict=True))  # fmt: skip
    kept: ScheduleProgress | None = prepared.progress.pop(key, None)
    if kept is not None and all(ref() is owner for ref, owner in zip(kept.owners, owners, strict=True)):
        return key, kept
    return key, _start(analysis, held, owners)


def _put(prepared: PreparedLoop, key: Any, progress: ScheduleProgress) -> None:
    """Store a state, and drop those whose arrays no longer exist: a chooser may reference a whole matrix."""
    kept = list(prepared.progress.items())
    gone = [old for old, other in kept if any(ref() is None for ref in other.owners)]
    for old in (*gone, *[old for old, _ in kept][: 1 - _KEPT]):
        prepared.progress.pop(old, None)  # another thread may have been faster
    prepared.progress[key] = progress


def _owner(array: NDArray[Any]) -> NDArray[Any]:
    """The base of an array: views created for each call count as the same array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _start(analysis: Analysis, held: BoundValues, owners: list[NDArray[Any]]) -> ScheduleProgress:
    schedule = analysis.options.schedule
    assert schedule is not None
    read = columns(analysis, held)
    if isinstance(schedule, Auto):
        return _start_auto(schedule, analysis, held, read, owners)
    try:
        chooser = schedule.start(len(analysis.space), analysis.options.seed, read.matrix)
    except PlanError as problem:
        if read.matrix is not None:
            raise
        raise refuse(
            analysis.function,
            analysis.loop.line,
            f"{problem}; which elements two iterations share is not known for this loop: {read.why}",
            "pass conflicts=None to the schedule, or loop over st.samples(X.T), or over range(p) with X[j] [p, n]",
        ) from None
    learns = type(chooser).learn is not Chooser.learn
    watch = watched(analysis, held) if learns else ""
    return ScheduleProgress(chooser, watch, read.source, tuple(weakref.ref(owner) for owner in owners))


def _start_auto(
    schedule: Auto, analysis: Analysis, held: BoundValues, read: IterationColumns, owners: list[NDArray[Any]]
) -> ScheduleProgress:
    """Start `auto`. Without an objective it uses a safe candidate; it learns if a state can be watched."""
    try:
        watch = watched(analysis, held)
    except LoopError:
        watch = ""
    strategy, size = analysis.strategy, len(analysis.space)
    free = strategy.name == TOGETHER or (strategy.name == IN_TURN and not strategy.waves)
    chooser = schedule.begin(
        size, analysis.options.seed, read.matrix, ROUND_COST, objective=analysis.options.objective is not None,
        learns=bool(watch), free=free,
    )  # fmt: skip
    source = read.source if chooser.learns else ""
    return ScheduleProgress(
        chooser, watch if chooser.learns else "", source, tuple(weakref.ref(owner) for owner in owners)
    )


# --- one round ------------------------------------------------------------------------------------------------------


class _RoundMaker:
    """Runs rounds: cuts the iterations of each into visits, and runs those by the strategy."""

    def __init__(self, prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any], crew: Crew) -> None:
        self.analysis, self.crew, self.size = prepared.analysis, crew, len(prepared.analysis.space)
        longest = most(self.analysis)
        visits = visits_in(self.analysis, longest)
        # Own copies of these arrays: another thread may call the same loop.
        self._picked, self._ptr = np.zeros(longest, np.int64), np.zeros(visits + 1, np.int64)
        self.call: Execution = begin(prepared, held, known, {("picked", ""): self._picked, ("ptr", ""): self._ptr})
        self._spec = spec_for(prepared, held, known, crew) if crew.needs_spec else None
        self._ways: dict[tuple[int, bool], Callable[[], tuple[float, int | None]]] = {}
        self._jobs, self._visits = -1, 0
        self._tried, self._least = 0, math.inf

    def indices(self, jobs: Ints) -> Ints:
        """The values of the loop's index in these iterations."""
        dim = self.analysis.space.dims[0]
        return jobs if dim.start == 0 and dim.step == 1 else dim.start + dim.step * jobs

    def checked(self, jobs: Ints) -> Ints:
        """The round, validated for compiled code, since a schedule may be the user's own."""
        if not len(jobs):
            return jobs
        # For a few numbers Python's sort is faster than NumPy's.
        different = sorted(set(jobs.tolist())) if len(jobs) <= _FEW else np.unique(jobs)
        if len(different) == len(jobs) <= len(self._picked) and different[0] >= 0 and different[-1] < self.size:
            return jobs
        name = type(self.analysis.options.schedule).__name__
        raise PlanError(
            f"{name} chose a round of {len(jobs)} iterations, {len(different)} of them different, from {different[0]} "
            f"to {different[-1]}; the loop has {self.size}, numbered from 0, and a round holds each at most once, and "
            f"at most {len(self._picked)} of them"
        )

    def make(self, jobs: Ints) -> float:
        """Run the iterations of one round; return the seconds it took."""
        if len(jobs) != self._jobs:
            self._jobs, self._visits = len(jobs), visits_in(self.analysis, len(jobs))
            self._ptr[: self._visits + 1] = cut(len(jobs), self._visits)
        self._picked[: len(jobs)] = jobs
        key = self._visits, self._visits > 1 and self.crew.workers > 1 and self._long
        way = self._ways.get(key)
        if way is None:
            with compiling(self.analysis):
                way = self._ways[key] = self._way(*key)
        seconds, failed = way()
        self._tried += 1
        if self._tried <= _TRIED:
            self._least = min(self._least, seconds)
        self.call.check(failed)
        if self.call.buffer_arrays:
            seconds += self.call.merge(self._visits, self.crew)
        if self.call.partials:
            self._fold(self._visits)
        return seconds

    @property
    def _long(self) -> bool:
        return self._tried >= _TRIED and self._least > _WORTH_WAKING

    def _way(self, visits: int, waking: bool) -> Callable[[], tuple[float, int | None]]:
        """How to run rounds of `visits` visits: in this thread or, for long rounds, by the crew. Changes no result."""
        profile = self.analysis.options.profile
        every = np.arange(visits, dtype=np.int64)
        step = self.call.step(every, independent(visits), np.ones(visits, np.int64), self._spec)
        if self._spec is None:
            here = InlineStep(step, profile).run  # also compiles the worker
            if not waking:
                return here

        def by_crew() -> tuple[float, int | None]:
            done = self.crew.run(step, profile, again=self._spec is None)
            return done.seconds, done.failed

        return by_crew

    def _fold(self, visits: int) -> None:
        """Fold the parts of the visits into the accumulators, and reset the parts."""
        for name, parts in self.call.partials.items():
            accumulator = self.call.held.accumulators[name]
            accumulator.fold(parts[:visits])
            parts[:visits] = accumulator.blank(1)


def _moved(before: NDArray[Any], after: NDArray[Any], at: Ints, analysis: Analysis, name: str) -> NDArray[np.float64]:
    """[len(at)] how far each row moved: the norm of the change, with squares summed in order."""
    change = np.subtract(after, before, dtype=np.float64)
    far: NDArray[np.float64]
    if change.ndim == 1:
        far = np.abs(change)
    else:
        squares = np.square(change).reshape(len(at), -1)
        far = np.sqrt(np.cumsum(squares, axis=1)[:, -1]) if squares.shape[1] else np.zeros(len(at))
    if not math.isfinite(far.max()):  # NaN wins
        worst = int(at[np.argmin(np.isfinite(far))])
        raise Diverged(
            f"{analysis.function.name}: {name}[{worst}] became NaN or infinite, so the schedule cannot go on; "
            "check the data, and make rounds narrower or steps shorter where updates do not see each other"
        )
    return far
