"""Run all waves of a buffered loop in one compiled call; see `emit.wave_worker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError
from stretto.kernels.core.compile import Kernel
from stretto.kernels.core.waves import FIRST
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.emit.worker_source import WorkerSource
from stretto.loops.front.bind import BoundValues, BufferInfo
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.runtime.blocks.pass_control import UnstartedPass
from stretto.runtime.blocks.step import BlockStep
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.wavefront import chain

from .buffers import writes

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew

Arrays = dict[tuple[str, str], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class WaveRunner:
    """The compiled worker of all waves of a loop, and the memory of its runs."""

    analysis: Analysis
    visits: LoopVisits
    lowered: WorkerSource
    kernel: Kernel
    idle: dict[int, list[Arrays]] = field(default_factory=dict)  # by number of workers: memory of runs that have ended

    @cached_property
    def ids(self) -> Ints:
        """Numbers of the visits, wave after wave."""
        return np.concatenate(self.visits.waves).astype(np.int64)

    @cached_property
    def first_of(self) -> Ints:
        """[waves + 1] where each wave begins in `ids`."""
        return np.concatenate([[0], np.cumsum([len(wave) for wave in self.visits.waves])]).astype(np.int64)

    @cached_property
    def _unstarted(self) -> UnstartedPass:
        return UnstartedPass(chain(1), np.ones(1, np.int64))

    def memory(self, workers: int, infos: Mapping[str, Any]) -> tuple[Arrays, bool]:
        """Memory for a run, and whether one like it was made before."""
        try:
            return self.idle[workers].pop(), True
        except (KeyError, IndexError):
            pass
        slots = int(np.diff(self.first_of).max(initial=1))
        found: Arrays = {}
        for name in {name for what, name in self.lowered.arguments if what == "where"}:
            info = infos[name]
            assert isinstance(info, BufferInfo)
            most = _most_touched(self.analysis, self.visits, name, info)
            found |= {
                ("where", name): np.zeros((workers, info.shape[0]), np.int32),
                ("mine", name): np.empty((workers, most), info.dtype),
                ("keys", name): np.empty((slots, most), np.int64),
                ("delta", name): np.empty((slots, most), info.dtype),
                ("count", name): np.zeros(slots, np.int64),
            }
        return found, False

    def keep(self, workers: int, memory: Arrays) -> None:
        """Keep the memory of a run that has ended for the next one with as many workers."""
        self.idle.setdefault(workers, []).append(memory)

    def run(
        self, call_args: Mapping[tuple[str, str], Any], fault: Ints, memory: tuple[Arrays, bool], crew: Crew
    ) -> Any:
        """Make all waves; return the outcome of the pass."""
        arrays, again = memory
        state = np.zeros(FIRST + len(self.first_of), np.int64)
        args = (fault, self.ids, self.first_of, crew.width, state,
                *(arrays[one] if one in arrays else call_args[one] for one in self.lowered.arguments))  # fmt: skip
        one = np.ones(1, np.int64)
        step = BlockStep("visit", self.kernel, chain(1), one, args, np.zeros(1), unstarted=self._unstarted)
        profile = self.analysis.options.profile
        if not again:  # so that it is compiled before the pass begins
            from stretto.kernels.core.claims import stopped

            self.kernel[profile](stopped(), 0, step.out, *args)
        return crew.run(step, profile, again=True)


def _most_touched(analysis: Analysis, visits: LoopVisits, name: str, info: BufferInfo) -> int:
    """An upper bound on the elements that a visit writes."""
    try:
        return max(1, min(info.shape[0], writes(analysis, visits, name)))
    except PlanError:  # writes in a while loop, for example
        return max(1, info.shape[0])


def wave_values(
    held: BoundValues,
    known: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    laid: Arrays,
    partials: Mapping[str, NDArray[Any]],
    wanted: tuple[tuple[str, str], ...],
) -> dict[tuple[str, str], Any]:
    """The arguments of the worker that are no memory of buffers, by (what, name)."""
    found: dict[tuple[str, str], Any] = {}
    for what, name in wanted:
        if what == "array":
            found[what, name] = arrays[name]
        elif what == "source":
            found[what, name] = arrays[name].reshape(-1)
        elif what == "number":
            found[what, name] = known[name] if name in known else held.numbers[name]
        elif what == "partial":
            found[what, name] = partials[name]
        elif (what, name) in laid:
            found[what, name] = laid[what, name]
    return found
