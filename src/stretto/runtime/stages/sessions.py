"""Sessions of stages: a runtime that stays open while one stage follows another, and the states between them.

    with open_stages(st.Threads(8)) as stages:
        end = stages.run(stage, StagePlace(((0, 4),)))
        stages.collect(stage.owner, states)                 the states hold their values

A stage is a job over tables (`runtime.tables.job`), with a number of threads on each node. A session starts processes
once: the width of the next stage is only a number. States stay where the stages use them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stretto.runtime.chosen import name_of, one_memory
from stretto.runtime.tables.local_run import LocalRun
from stretto.state.state import State
from stretto.store.local.table import LocalTable

from .in_place import InPlace, serve_copies, start_values
from .stage_runs import StageEnd, StagePlace, StageRun, StageSession, StageState


@contextmanager
def open_stages(runtime: Any) -> Iterator[StageSession]:
    """Open a session on a runtime."""
    if one_memory(runtime):
        yield LocalStages(runtime)
    elif name_of(runtime) == "simulated":
        from .simulated_session import SimulatedStages  # imported late: it imports greenlet

        yield SimulatedStages(runtime)
    else:
        with runtime.stages() as stages:
            yield stages


class LocalStages(InPlace):
    """Stages on threads of this process, or one worker after another."""

    nodes: tuple[int, ...] = (0,)
    virtual = False

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.threads = int(runtime.workers)
        self._tables: dict[tuple[str, int], tuple[State, LocalTable]] = {}

    def run(self, stage: StageRun, place: StagePlace) -> StageEnd:
        """Run a stage on as many threads as its place has workers, over the arrays of the states."""
        began = time.perf_counter()
        if name_of(self._runtime) == "serial" or stage.job.record is not None:
            serial = name_of(self._runtime) == "serial"
            where = self._runtime if serial else replace(self._runtime, n=min(place.workers, self.threads))
            outcome = serve_copies(where, stage)
        else:
            start_values(stage)
            tables = [self._table(stage.owner, used) for used in stage.states]
            outcome = LocalRun(stage.job, min(place.workers, self.threads), tables).run()
        return StageEnd(outcome, max(0.0, time.perf_counter() - began - outcome.seconds))

    def release(self, owner: str, number: int | None = None) -> None:
        """Forget the tables of a state."""
        self._tables = {key: t for key, t in self._tables.items() if key[0] != owner or number not in (None, key[1])}

    def _table(self, owner: str, used: StageState) -> LocalTable:
        """The table of a state, which is kept for later stages; the state is kept with it, so that its number stays."""
        found = self._tables.get((owner, used.number))
        array = used.state.array
        if found is None or found[1].values.ctypes.data != array.ctypes.data:
            found = self._tables[owner, used.number] = used.state, LocalTable(array.reshape(len(array), -1))
        return found[1]
