"""The runtimes `st.Serial` (the reference) and `st.Threads` (the default).

Both pass the same arrays to the same compiled worker. Serial makes the visits one after another in the numbering of the
order; Threads starts one worker per thread, and the workers claim ready visits by themselves.

    with Threads(2).open() as crew:
        done = crew.run(step, profile="exact")

Creating a runtime does not import Numba; opening one does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from .cpus import workers_from
from .opening import OpensCrew

if TYPE_CHECKING:
    from stretto.schedule.pipeline import Pipeline

    from .blocks.crew import Crew
    from .rounds.rounds import RoundsRun, RoundWork
    from .tables.job import TableJob, TableOutcome


class Runtime(Protocol):
    """What `Serial`, `Threads`, `st.Cluster` and `st.Simulated` have in common: where a plan runs."""

    @property
    def workers(self) -> int:
        """Workers that run at a time."""
        ...

    def open(self) -> AbstractContextManager[Any]:
        """Open a crew for one job. Ctrl-C during the job reaches the caller."""
        ...

    def crew(self) -> AbstractContextManager[Any]:
        """Open a crew for one or several jobs. The caller handles signals."""
        ...

    def serve(self, job: TableJob) -> TableOutcome:
        """Run a job over tables."""
        ...

    def rounds(self, pipeline: Pipeline, work: Any) -> AbstractContextManager[RoundsRun]:
        """Open the rounds of a program."""
        ...


@dataclass(frozen=True)
class Serial(OpensCrew):
    """One visit after another, on the caller's thread: the reference that other runtimes are compared with.

    Attributes
    ----------
    name : str
        "serial".
    one_memory : bool
        True: all workers share the memory of this process.

    Examples
    --------
    >>> import stretto as st
    >>> st.Serial().workers
    1
    """

    name: ClassVar[str] = "serial"
    one_memory: ClassVar[bool] = True  # see `chosen`

    @property
    def workers(self) -> int:
        """Workers that run at a time: 1."""
        return 1

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """Open a crew, which makes visits, for one or several jobs. The caller handles signals."""
        from .blocks.crew import Crew

        with closing(Crew(1, serial=True)) as crew:
            yield crew

    def serve(self, job: TableJob) -> TableOutcome:
        """Run a job over tables.

        Parameters
        ----------
        job : TableJob
            The worker function and its tables, checked.
        """
        from .tables.serial import run

        return run(job)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: RoundWork) -> Iterator[RoundsRun]:
        """Open the rounds of a program, on the caller's thread.

        Parameters
        ----------
        pipeline : Pipeline
            Which rounds may be in progress.
        work : RoundWork
            The functions of the program.
        """
        from .rounds.rounds import Rounds

        yield Rounds(pipeline, work, 1, serial=True)


@dataclass(frozen=True)
class Threads(OpensCrew):
    """Threads of this process over shared arrays. The default.

    Parameters
    ----------
    n : int, "auto" or None, default None
        Threads; None takes every core that the process may use. "auto" takes at most that many: estimators find the
        number while they run, as with `n_jobs="auto"`, and everything else uses all.

    Attributes
    ----------
    name : str
        "threads".
    one_memory : bool
        True: all workers share the memory of this process.

    Examples
    --------
    >>> import stretto as st
    >>> st.Threads(4).workers
    4
    """

    n: int | Literal["auto"] | None = None
    name: ClassVar[str] = "threads"
    one_memory: ClassVar[bool] = True

    @property
    def workers(self) -> int:
        """Workers that run at a time."""
        return workers_from(self.n)

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """Open a crew, which makes visits, for one or several jobs. The caller handles signals."""
        from .blocks.crew import Crew

        with closing(Crew(self.workers, serial=False)) as crew:
            yield crew

    def serve(self, job: TableJob) -> TableOutcome:
        """Run a job over tables.

        Parameters
        ----------
        job : TableJob
            The worker function and its tables, checked.
        """
        from .tables.threads import run

        return run(job, self.workers)

    @contextmanager
    def rounds(self, pipeline: Pipeline, work: RoundWork) -> Iterator[RoundsRun]:
        """Open the rounds of a program, on the threads.

        Parameters
        ----------
        pipeline : Pipeline
            Which rounds may be in progress.
        work : RoundWork
            The functions of the program.
        """
        from .rounds.rounds import Rounds

        yield Rounds(pipeline, work, self.workers)
