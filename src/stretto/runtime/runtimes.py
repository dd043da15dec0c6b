"""Where a plan runs: `Serial`, the truth, and `Threads`, the default.

Both hand the same compiled worker the same arrays. Serial makes the visits one after another in the order's own
numbering; Threads starts one worker per thread, and the workers claim ready visits by themselves.

    with Threads(2).open() as crew:
        done = crew.run(step, profile="exact")

Naming a runtime imports nothing of Numba's; opening one does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from .cpus import workers_from
from .interrupts import raising_ctrl_c

if TYPE_CHECKING:
    from stretto.schedule.pipeline import Pipeline

    from .blocks.crew import Crew
    from .cluster.spec import Cluster
    from .rounds.rounds import RoundsRun, Work
    from .simulated.spec import Simulated
    from .tables.job import Outcome, TableJob


@dataclass(frozen=True)
class Serial:
    """One visit after another: the truth every other runtime is compared with."""

    name: ClassVar[str] = "serial"
    one_memory: ClassVar[bool] = True  # see `chosen`

    @property
    def workers(self) -> int:
        return 1

    @contextmanager
    def open(self) -> Iterator[Crew]:
        """A crew for one job, whose Ctrl-C is not lost."""
        with raising_ctrl_c(), self.crew() as crew:
            yield crew

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """A crew, perhaps for several jobs: those who run them see to signals."""
        from .blocks.crew import Crew

        crew = Crew(1, serial=True)
        try:
            yield crew
        finally:
            crew.close()

    def serve(self, job: TableJob) -> Outcome:
        """Run a job over tables."""
        from .tables.serial import run

        return run(job)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: Work) -> Iterator[RoundsRun]:
        """Rounds of a program, on the caller's own thread."""
        from .rounds.rounds import Rounds

        yield Rounds(pipeline, work, self)


@dataclass(frozen=True)
class Threads:
    """`n` threads of this process over shared arrays; None takes every core the process may use."""

    n: int | None = None
    name: ClassVar[str] = "threads"
    one_memory: ClassVar[bool] = True

    @property
    def workers(self) -> int:
        return workers_from(self.n)

    @contextmanager
    def open(self) -> Iterator[Crew]:
        """As `Serial.open`."""
        with raising_ctrl_c(), self.crew() as crew:
            yield crew

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """As `Serial.crew`."""
        from .blocks.crew import Crew

        crew = Crew(self.workers, serial=False)
        try:
            yield crew
        finally:
            crew.close()

    def serve(self, job: TableJob) -> Outcome:
        """Run a job over tables."""
        from .tables.threads import run

        return run(job, self.workers)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: Work) -> Iterator[RoundsRun]:
        """Rounds of a program, on the threads."""
        from .rounds.rounds import Rounds

        yield Rounds(pipeline, work, self)


Runtime: TypeAlias = "Serial | Threads | Cluster | Simulated"
