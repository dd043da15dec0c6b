"""`PreparedLoop`: a loop that is compiled and laid out, with what its runs keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.kernels.core.compile import Kernel
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.assumptions import Assumptions
from stretto.loops.emit.worker_source import WorkerSource
from stretto.loops.layout.joined import few_per_wave, joined
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.loops.layout.unchanged_records import RecordChecks
from stretto.loops.types.body import Body
from stretto.plan.arrays import StepSpec
from stretto.runtime.blocks.inline_pass import BRIEF
from stretto.runtime.blocks.pass_control import UnstartedPass
from stretto.schedule.orders.order import Ints, Order, part_of
from stretto.schedule.orders.wavefront import chain

from . import own_order
from .buffers import BufferArrays
from .waves import WaveRunner


@dataclass(frozen=True, eq=False)
class LoopPass:
    """A pass of a loop: some of its visits, in an order of their own."""

    visits: Ints  # numbers of the visits
    order: Order  # of them
    weight: Ints  # work of each

    @cached_property
    def unstarted(self) -> UnstartedPass:
        """What each execution copies its pass from."""
        return UnstartedPass(self.order, self.weight)


@dataclass(frozen=True, eq=False)
class Alone:
    """The execution of a loop by one worker."""

    one: LoopPass  # the only pass
    arrays: dict[tuple[str, str], NDArray[Any]]  # of its visits, by (what, name)
    lowered: WorkerSource  # the generated source of its worker
    worker: Kernel  # its compiled worker
    ran: list[bool] = field(default_factory=list)  # not empty once it has run, so that nothing has to be compiled


@dataclass(frozen=True, eq=False)
class PreparedLoop:
    """A loop that is ready to run."""

    analysis: Analysis  # of the loop
    visits: LoopVisits  # how its iterations are cut
    lowered: WorkerSource  # its generated source
    kernels: dict[str, Kernel]  # its compiled workers
    body: Body  # its typed body with the checks that are needed
    waves: WaveRunner | None = None  # all waves of a buffered loop in one call; None: each wave is a pass
    idle: list[dict[str, BufferArrays]] = field(
        default_factory=list
    )  # buffer memory of runs that have ended, for reuse
    ahead: dict[Any, Any] = field(default_factory=dict)  # cached lists of `prefetch`
    watched: RecordChecks = field(default_factory=RecordChecks)  # records that the preparation depends on
    progress: dict[Any, Any] = field(default_factory=dict)  # states of schedules, see `rounds`
    paces: dict[int, float] = field(default_factory=dict)  # seconds of the last execution, by number of workers
    described: list[tuple[StepSpec, Assumptions]] = field(default_factory=list)  # `spec`, and the values it depends on

    @property
    def worker(self) -> Kernel:
        return self.kernels["visit_worker"]

    @cached_property
    def passes(self) -> tuple[LoopPass, ...]:
        """The passes of one execution; a single pass without waves."""
        visits = self.visits
        if not visits.waves:
            return (LoopPass(np.arange(len(visits), dtype=np.int64), visits.order, visits.weight),)
        return tuple(LoopPass(wave, part_of(visits.order, wave), visits.weight[wave]) for wave in visits.waves)

    @cached_property
    def alone(self) -> Alone | None:
        """How a single worker executes it, with the same result; None where that is the same."""
        roles = {what for what, _ in self.lowered.arguments}
        if roles & {"delta", "pending"} or self.analysis.options.schedule is not None:
            return None
        if "partial" in roles:
            return self._without_waiting() if self.visits.waves else None
        if self.lowered.sites and not self.visits.waves:
            return None  # another subscript might be the first that is out of range
        if own_order.suits(self.analysis, self.visits):
            visits = own_order.visits_in_order(self.analysis)
            return _all_of(visits, *own_order.compiled_in_order(self.analysis, self.body))
        larger = joined(self.analysis, self.visits)
        return None if larger is None else _all_of(larger, self.lowered, self.worker)

    def _without_waiting(self) -> Alone:
        """The visits of all waves in one pass: each folds into its own part of an accumulator."""
        ids = np.concatenate(self.visits.waves).astype(np.int64)
        one = LoopPass(ids, chain(len(ids)), self.visits.weight[ids])
        return Alone(one, self.visits.arrays, self.lowered, self.worker)

    def workers(self, width: int) -> int:
        """How many of `width` workers of one process execute it: all, or one. Results are the same.

        Workers wait for each other after every wave. One worker is enough where that takes longer than the work of the
        waves, and where it was faster when both were tried.
        """
        if width == 1 or not self.visits.waves:
            return width
        if self.alone is not None and few_per_wave(self.analysis, self.visits):
            return 1
        if width not in self.paces:
            return width
        return 1 if self.paces.get(1, 0.0) < self.paces[width] else width

    def execution(self, workers: int) -> Alone | None:
        """What this number of workers executes in the place of `passes`; None for `passes`."""
        return self.alone if workers == 1 else None

    def brief(self, workers: int, passes: int) -> bool:
        """Whether the passes of one worker are so short that the calling thread makes them: Ctrl-C can wait for one."""
        return workers == 1 and self.paces.get(1, float("inf")) < BRIEF * passes


def _all_of(visits: LoopVisits, lowered: WorkerSource, worker: Kernel) -> Alone:
    """The execution of all these visits in one pass."""
    every = np.arange(len(visits), dtype=np.int64)
    return Alone(LoopPass(every, visits.order, visits.weight), visits.arrays, lowered, worker)
