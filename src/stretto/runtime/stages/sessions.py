"""Sessions of stages: a runtime that stays open while one stage follows another.

    with open_stages(st.Threads(8)) as stages:
        outcome = stages.run(job, StagePlace(((0, 4),)), moved=0)

A stage is a job over tables (`runtime.tables.job`), with a number of threads on each node. A session starts processes
once: the width of the next stage is only a number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from stretto.runtime.chosen import name_of, one_memory
from stretto.runtime.tables.job import TableJob, TableOutcome

if TYPE_CHECKING:
    from stretto.runtime.simulated.spec import Simulated


@dataclass(frozen=True)
class StagePlace:
    """Where the workers of a stage are: (node, workers) by ascending node."""

    workers_by_node: tuple[tuple[int, int], ...]

    @property
    def workers(self) -> int:
        """Workers of all nodes."""
        return sum(many for _, many in self.workers_by_node)

    @property
    def single(self) -> int | None:
        """The node, if there is only one."""
        return self.workers_by_node[0][0] if len(self.workers_by_node) == 1 else None

    def homes(self, parts: int) -> tuple[int, ...]:
        """The node of each logical part: contiguous, in proportion to the workers."""
        total, found, before = self.workers, [], 0
        for node, many in self.workers_by_node:
            until = (before + many) * parts // total
            found += [node] * (until - before * parts // total)
            before += many
        return tuple(found)


class StageSession(Protocol):
    """An open session. `nodes` and `threads` (of a node) say what there is to place stages on.

    virtual: its seconds are virtual, and what the driver does takes none.
    """

    nodes: int
    threads: int
    virtual: bool

    def run(self, job: TableJob, place: StagePlace, moved: int) -> tuple[TableOutcome, float]:
        """Run a stage to its end; return its outcome, and the seconds before its workers started and after they ended.

        moved: bytes of states that change their node for it.
        """


@contextmanager
def open_stages(runtime: Any) -> Iterator[StageSession]:
    """Open a session on a runtime."""
    if one_memory(runtime):
        yield LocalStages(runtime)
    elif name_of(runtime) == "simulated":
        yield SimulatedStages(runtime)
    else:
        with runtime.stages() as stages:
            yield stages


class LocalStages:
    """Stages on threads of this process, or one worker after another."""

    nodes = 1
    virtual = False

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.threads = int(runtime.workers)

    def run(self, job: TableJob, place: StagePlace, moved: int) -> tuple[TableOutcome, float]:
        """Run a stage on as many threads as its place has workers."""
        serial = name_of(self._runtime) == "serial"
        where = self._runtime if serial else replace(self._runtime, n=min(place.workers, self.threads))
        began = time.perf_counter()
        found: TableOutcome = where.serve(job)
        return found, max(0.0, time.perf_counter() - began - found.seconds)


class SimulatedStages:
    """Stages on simulated nodes. What moves between two stages takes virtual time on the links."""

    virtual = True

    def __init__(self, spec: Simulated) -> None:
        self._spec = spec
        self.nodes, self.threads = spec.nodes, spec.threads
        self._one = threading.Lock()  # tasks that run at the same time run their stages one after another

    def run(self, job: TableJob, place: StagePlace, moved: int) -> tuple[TableOutcome, float]:
        """Run a stage on some of the nodes."""
        most = max(many for _, many in place.workers_by_node)
        with self._one:
            outcome = replace(self._spec, threads=min(most, self.threads)).serve(
                replace(job, homes=place.homes(job.workers))
            )
        return outcome, 2 * float(self._spec.latency) + moved / min(self._spec.links)
