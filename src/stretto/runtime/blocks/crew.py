"""`Crew`: the threads of one run, which make the visits of steps.

A crew exists for one run: threads are started once and nothing is global, so two fits at once and a fork in between are
safe. Every worker calls the same compiled kernel with the same arrays and claims ready visits by itself. A serial crew
makes them one after another in the numbering of the order. Python only starts the workers and waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.kernels.core import claims
from stretto.kernels.core.clock import read_cycles
from stretto.runtime.files.mapped_arrays import Disk
from stretto.runtime.interrupts import heeding_ctrl_c, shielding_ctrl_c
from stretto.schedule.orders.order import Ints

from . import pass_control
from .step import BlockStep, StepOutcome
from .team import Team
from .tiles import TileWalk

if TYPE_CHECKING:
    from stretto.runtime.cluster.parts.driver import RemoteParts


# Multiplications up to which a pass runs in the calling thread, alone (some milliseconds) and where others could help.
_SHORT_ALONE, _SHORT = 1 << 23, 1 << 18


class _StoppablePass:
    """A pass that Ctrl-C stops."""

    def __init__(self, halt: Callable[[], None]) -> None:
        self.ask = halt


class Crew:
    """The threads of one run.

    Attributes
    ----------
    workers : int
        Threads that it has.
    width : int
        Threads that the next step uses, at most `workers`. It may change between two steps; no result depends on it.
    runs_ahead : bool
        Whether `run` uses `then`.
    needs_spec : bool
        Whether steps need a `spec` of their arguments.
    """

    needs_spec = False
    runs_ahead = False

    def __init__(self, workers: int, serial: bool) -> None:
        self.workers = self.width = workers
        self.serial = serial
        self._threads: Team | None = None  # started by the first step that needs them
        self._running: claims.Pass | None = None
        self._walk: TileWalk | None = None
        self.asked = False  # the user wants to stop; the driver of the crew does so between two steps

    def run(
        self,
        step: BlockStep,
        profile: str,
        finished: Ints | None = None,
        seconds: float | None = None,
        *,
        drain: bool = False,
        again: bool = False,
        then: BlockStep | None = None,
    ) -> StepOutcome:
        """Make every visit of the step that is not in `finished`.

        `step.before` is called first, `step.after` when all visits are made.

        Parameters
        ----------
        step : BlockStep
            The visits and their kernel.
        profile : str
            The numeric profile, "exact" or "fast".
        finished : array of int or None
            Visits that are already made.
        seconds : float or None
            Stop claiming visits after this time; running visits finish, and the result names the finished ones.
        drain : bool
                Ctrl-C stops in the same way. Otherwise it is raised, since a partial result would be taken for a
            complete one.
        again : bool
                A similar step was run before and the log is not needed: nothing is compiled or logged, and the log is
            empty.
        then : BlockStep or None
                The step that is certain to run next, without the caller reading anything in between. A crew of a
            cluster may start it early; until it is requested, `told_ahead` is True.
        """
        if self._walk is not None and self._walk.applies(step):
            return self._walk.run(self._visits, step, profile, finished, seconds, drain=drain)
        if step.before is not None:
            step.before(finished is None)
        return self._visits(step, profile, finished, seconds, drain=drain, again=again)

    def run_pass(self, step: BlockStep, profile: str, work: int) -> None:
        """Make every visit of a step that was compiled before and whose log is not needed.

        work : multiplications of all visits together; a short pass runs in the calling thread, because waking another
            takes longer, and Ctrl-C can wait for it
        """
        short = work <= (_SHORT_ALONE if self.width == 1 else _SHORT)
        if not short or self._walk is not None or step.before is not None or step.after is not None:
            self.run(step, profile, again=True)
            return
        step.kernel[profile](pass_control.alone(step.order), 0, step.out, *step.args)

    @property
    def _team(self) -> Team:
        """The threads. Even a single worker has its own, so that the main thread can handle Ctrl-C."""
        if self._threads is None:
            with shielding_ctrl_c():
                self._threads = Team(self.workers)
        return self._threads

    apart = 0  # hosts that `apply` distributes items to; 0: everything runs in this process

    def shares(self, count: int, readers: Ints | None = None) -> list[Sequence[int]]:
        """0 to count − 1, distributed over the hosts. `readers` [count]: the only host that can process each."""
        return [range(count)]

    def apply(self, function: Callable[[Any, Crew], Any], items: Sequence[Any]) -> list[Any]:
        """function(item, crew) of every item; on a cluster each on a host, with that host's crew."""
        return [function(item, self) for item in items]

    def run_here(self, step: BlockStep, profile: str, finished: Ints | None = None) -> StepOutcome:
        """Make the visits of a step in this process, whatever hosts the crew has."""
        return Crew.run(self, step, profile, finished)

    def _visits(
        self,
        step: BlockStep,
        profile: str,
        finished: Ints | None,
        seconds: float | None,
        only: Ints | None = None,
        *,
        drain: bool,
        again: bool = False,
    ) -> StepOutcome:
        """Make the visits of a step, or those of them in `only`."""
        pass_ = self._pass_of(step, finished, only)
        compiled = step.kernel[profile]
        self._running = pass_ if drain or seconds is not None else None
        if not again:
            # A worker that is stopped before it begins returns at once. If it has to be compiled, that happens now and
            # not inside the measured time.
            compiled(claims.stopped(), 0, step.out, *step.args)

        def halt() -> None:
            pass_.control[claims.STOP] = 1

        team = self._team
        began, cycles = time.perf_counter_ns(), read_cycles()
        shares = [(pass_.words, worker, step.out, *step.args) for worker in range(self.width)]
        interrupted = False
        with heeding_ctrl_c(_StoppablePass(halt)) as ctrl_c:
            call = team.call(compiled, shares, halt)
            try:
                if not call.wait(seconds):
                    self.stop()
                    call.wait()
            except KeyboardInterrupt:  # of a second Ctrl-C, or of another handler
                interrupted = True
                halt()
                call.wait()
            interrupted = ctrl_c.heard() or interrupted
        if interrupted and not drain:
            self._running = None
            raise KeyboardInterrupt
        nanoseconds, cycles_gone = time.perf_counter_ns() - began, read_cycles() - cycles
        self._running = None
        call.check()
        control = pass_.control
        if again and not (control[claims.LEFT] or control[claims.FAILED] or interrupted or step.after):
            return StepOutcome(step, seconds=nanoseconds / 1e9, log=np.empty((0, claims.LOG_COLUMNS), np.int64))
        log = pass_control.logged(pass_)
        log[:, 2:] = (log[:, 2:] - cycles) * (nanoseconds / max(1, cycles_gone))
        made = log[:, 0] if finished is None else np.union1d(log[:, 0], finished)
        whole = len(made) == len(step.order) and not interrupted
        interrupted = interrupted or (drain and self.asked and not whole)
        if whole and step.after is not None:
            step.after()
        failed = int(pass_.control[claims.FAILED])
        return StepOutcome(
            step,
            seconds=nanoseconds / 1e9,
            log=log,
            finished=None if whole else np.sort(made),
            failed=failed - 1 if failed else None,
            interrupted=interrupted,
        )

    def _pass_of(self, step: BlockStep, finished: Ints | None, only: Ints | None) -> claims.Pass:
        """A pass over the visits of a step that are to be made."""
        if step.unstarted is not None and finished is None and only is None:
            return step.unstarted.copy(serial=self.serial)
        script = None
        if self.serial:
            every = np.arange(len(step.order)) if only is None else only
            script = np.setdiff1d(every, finished if finished is not None else [])
        return pass_control.start(
            step.order, step.order.tails(step.weight), finished=finished, script=script, only=only
        )

    def stream(self, disk: Disk) -> None:
        """From now on, make steps whose arrays are in files of `disk` tile by tile."""
        self._walk = TileWalk(disk)

    def parts(self) -> RemoteParts | None:
        """Nodes that hold parts of data; None where all data are in this process."""
        return None

    @property
    def told_ahead(self) -> bool:
        """Whether a step was started early that has to be run next."""
        return False

    def stop(self) -> None:
        """Ask the running step to stop after the visits in progress."""
        if self._running is not None:
            self._running.control[claims.STOP] = 1

    def ask(self) -> None:
        """Request a stop as soon as it is safe: of the running step if it can be interrupted, then of the run."""
        self.asked = True
        self.stop()

    def gather(self) -> None:
        """Copy what was learned into the steps' arrays. On threads they always hold it."""

    def close(self) -> None:
        with shielding_ctrl_c():
            if self._walk is not None:
                self._walk.close()
            if self._threads is not None:
                self._threads.close()
