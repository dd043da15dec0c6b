"""Run the rounds of a program on threads: a pipeline decides which tasks may start, workers run them.

    Rounds(Pipeline(depth=3), work, workers=2).run()

`work` is the program: Python functions that choose, update and aggregate. Every free worker takes the most urgent task,
runs it and reports it to the pipeline, under one lock that is held for microseconds. Serial does the same on the
caller's own thread, where a debugger can follow it.

If several tasks fail, the error that is raised is the one that the serial order would have met first.
"""

from __future__ import annotations

import contextvars
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Protocol

from stretto.runtime.blocks.team import Team
from stretto.schedule.pipeline import AGGREGATE, CHOOSE, STAGES, UPDATE, Pipeline, StageTask
from stretto.schedule.waiting import JobOrder


class RoundWork(Protocol):
    """The functions of a program's rounds."""

    def choose(self, number: int) -> tuple[int, JobOrder | None]:
        """Choose round `number`: how many jobs it has (0: no round is left), and which of them wait for which."""
        ...

    def update(self, number: int, job: int) -> None:
        """Run one job; the results are kept until they are aggregated."""
        ...

    def aggregate(self, number: int, job: int, last: bool) -> None:
        """Apply the results of a round, or of one job that is aggregated by itself, to the parameters.

        Parameters
        ----------
        last : bool
            The round is complete after it.
        """
        ...

    def due(self, number: int) -> bool:
        """Whether the parameters are evaluated or saved after this round; no new task starts meanwhile."""
        ...

    def enough(self, number: int) -> bool:
        """Evaluate, if that is due; return whether this round was the last."""
        ...


class RoundsRun(ABC):
    """One run of a program's rounds, wherever its updates run.

    Attributes
    ----------
    asked : bool
        Whether a stop was requested.
    spent : dict of str to float
        Seconds of processor time in each stage, without evaluations.
    """

    def __init__(self, pipeline: Pipeline, work: RoundWork) -> None:
        self.pipeline, self.work = pipeline, work
        self.asked = False
        self.spent = dict.fromkeys(STAGES, 0.0)
        self._errors: list[tuple[StageTask, Exception]] = []
        self._interrupt: BaseException | None = None  # Ctrl-C or sys.exit() in the middle of a task

    @abstractmethod
    def clock(self) -> float:
        """Seconds of a monotonic or virtual clock."""

    @abstractmethod
    def _make(self) -> None:
        """Run rounds until the pipeline is finished."""

    def run(self) -> None:
        """Run rounds until the pipeline is finished; raise the first error."""
        self._make()
        errors = [(task.key, error) for task, error in self._errors if self.pipeline.reached(task)]
        first = self._interrupt or min(errors, key=lambda found: found[0], default=(None, None))[1]
        if first is not None:
            raise first.with_traceback(None)  # the traceback of a worker thread does not help the user

    def ask(self) -> None:
        """Request a stop as soon as the parameters are consistent. Only sets a flag: a signal may arrive at any
        moment.
        """
        self.asked = True

    def _fail(self, task: StageTask, error: BaseException) -> None:
        self.pipeline.failed(task)
        if isinstance(error, Exception):
            self._errors.append((task, error))
        else:
            self._interrupt = error
            self.pipeline.stop(after=-1)


class Rounds(RoundsRun):
    """A run on threads of this process, or on the caller's own (`serial`)."""

    def __init__(self, pipeline: Pipeline, work: RoundWork, workers: int, serial: bool = False) -> None:
        super().__init__(pipeline, work)
        self._workers, self._serial = workers, serial
        self._changed = Condition()
        self._idle = 0
        self._looking = False

    def clock(self) -> float:
        return time.perf_counter()

    def _make(self) -> None:
        if self._serial:  # on the caller's own thread
            self._work()
        else:
            self._run_on(Team(self._workers), self._workers)

    def _run_on(self, team: Team, workers: int) -> None:
        # The caller's settings, such as np.errstate, apply to the workers too; a context is entered by one at a time.
        shares = [(contextvars.copy_context(),) for _ in range(workers)]
        try:
            call = team.call(lambda context: context.run(self._work), shares)
            try:
                call.wait()
            except BaseException:  # a second Ctrl-C
                with self._changed:
                    self.pipeline.stop(after=-1)
                call.wait()
                raise
            call.check()
        finally:
            team.close()

    def _work(self) -> None:
        """The loop of every worker: take a task, run it, report it."""
        task = self._next()
        while task is not None:
            jobs, turns, enough = 0, None, False
            error: BaseException | None = None
            began = time.thread_time()
            try:
                if task.stage == CHOOSE:
                    jobs, turns = self.work.choose(task.round)
                elif task.stage == UPDATE:
                    self.work.update(task.round, task.job)
                else:
                    enough = self._aggregate(task)
            except BaseException as problem:
                error = problem
            spent = time.thread_time() - began
            with self._changed:
                self.spent[STAGES[task.stage]] += spent
                if error is not None:
                    self._fail(task, error)
                elif task.stage == CHOOSE:
                    self.pipeline.chosen(task, jobs, turns)
                elif task.stage == UPDATE:
                    self.pipeline.updated(task)
                else:
                    if enough:
                        self.pipeline.stop(after=task.round)
                    self.pipeline.aggregated(task)
                task = self._taken()

    def _next(self) -> StageTask | None:
        with self._changed:
            return self._taken()

    def _taken(self) -> StageTask | None:
        """Wait for the next task of this worker; None at the end. The lock is held."""
        pipeline = self.pipeline
        while True:
            if self.asked:
                pipeline.halt()
            if not self._looking:
                task = pipeline.take()
                if task is not None:
                    if self._idle and pipeline.ready:
                        self._changed.notify()  # which in turn wakes the next
                    return task
                if not pipeline.running:
                    self._changed.notify_all()
                    return None
            self._idle += 1
            self._changed.wait()
            self._idle -= 1

    def _aggregate(self, task: StageTask) -> bool:
        last = self.pipeline.last_job(task)
        self.work.aggregate(task.round, task.job, last)
        if not last:
            return False
        if not self.work.due(task.round):
            return self.work.enough(task.round)
        with self._alone():
            return self.work.enough(task.round)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No new task starts, so that the time of an evaluation can be separated from that of the rounds."""
        began = time.thread_time()
        with self._changed:
            self._looking = True
        try:
            yield
        finally:
            with self._changed:
                self._looking = False
                self.spent[STAGES[AGGREGATE]] -= time.thread_time() - began
                self._changed.notify_all()
