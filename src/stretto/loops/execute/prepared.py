"""`PreparedLoop`: a loop that is compiled and laid out, with what its runs keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretto.cached import cached_property
from stretto.kernels.core.compile import Kernel
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.assumptions import Assumptions
from stretto.loops.emit.worker_source import WorkerSource
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.loops.layout.unchanged_records import RecordChecks
from stretto.plan.arrays import StepSpec
from stretto.runtime.blocks.pass_control import UnstartedPass
from stretto.schedule.orders.order import Ints, Order, part_of

from .buffers import BufferArrays


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
class PreparedLoop:
    """A loop that is ready to run."""

    analysis: Analysis  # of the loop
    visits: LoopVisits  # how its iterations are cut
    lowered: WorkerSource  # its generated source
    kernels: dict[str, Kernel]  # its compiled workers
    idle: list[dict[str, BufferArrays]] = field(
        default_factory=list
    )  # buffer memory of runs that have ended, for reuse
    ahead: dict[Any, Any] = field(default_factory=dict)  # cached lists of `prefetch`
    watched: RecordChecks = field(default_factory=RecordChecks)  # records that the preparation depends on
    progress: dict[Any, Any] = field(default_factory=dict)  # states of schedules, see `rounds`
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
