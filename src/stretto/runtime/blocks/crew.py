"""The threads of one run, which make the visits of a step.

A crew lives as long as a run: threads are started once, nothing is global, so two fits at once and a fork in between
are safe. Every worker calls the same compiled kernel with the same arrays, and claims ready visits by itself; a serial
crew makes them one after another in the order's own numbering. Python only starts the workers and waits.
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
from .step import Done, Step
from .team import Team
from .tiles import TileWalk

if TYPE_CHECKING:
    from stretto.runtime.cluster.parts.driver import Parts


class _Halting:
    """A pass that Ctrl-C ends."""

    def __init__(self, halt: Callable[[], None]) -> None:
        self.ask = halt


class Crew:
    """The threads of one run.

    runs_ahead: whether `run` makes use of `then`. needs_spec: whether it has to know what the arguments of a step are.
    """

    needs_spec = False
    runs_ahead = False

    def __init__(self, workers: int, serial: bool) -> None:
        self.workers = workers
        self.serial = serial
        # Even one worker gets a thread of its own, so that the main thread stays free to notice Ctrl-C.
        with shielding_ctrl_c():
            self._team = Team(workers)
        self._running: claims.Pass | None = None
        self._walk: TileWalk | None = None
        self.asked = False  # the user wants to stop, which the driver of the crew does between two steps

    def run(
        self,
        step: Step,
        profile: str,
        finished: Ints | None = None,
        seconds: float | None = None,
        *,
        drain: bool = False,
        again: bool = False,
        then: Step | None = None,
    ) -> Done:
        """Make every visit of the step; those in `finished` are already made.

        When `seconds` have gone by, or with drain on Ctrl-C, claiming stops, running visits end, and the result says
        what was finished. Without drain Ctrl-C is passed on, since half a result would be taken for a whole one.
        `step.before` is called first, `step.after` when all visits are made. again: a step like this one was run before
        and nobody looks at the log of this one, so that neither compiling nor logging takes time; its log is empty.
        then: the step that is run next for certain, nothing of this one being looked at before; crews of a cluster may
        begin it, and until it is asked for they are `told_ahead`.
        """
        if self._walk is not None and self._walk.applies(step):
            return self._walk.run(self._visits, step, profile, finished, seconds, drain=drain)
        if step.before is not None:
            step.before(finished is None)
        return self._visits(step, profile, finished, seconds, drain=drain, again=again)

    apart = 0  # hosts that items are dealt out to by `apply`; 0: all is done here

    def shares(self, count: int, readers: Ints | None = None) -> list[Sequence[int]]:
        """0 to count − 1, dealt out to the hosts; readers [count]: the only host for each."""
        return [range(count)]

    def apply(self, function: Callable[[Any, Crew], Any], items: Sequence[Any]) -> list[Any]:
        """function(item, crew) of every item; on a cluster each on a host, whose own crew it is given."""
        return [function(item, self) for item in items]

    def run_here(self, step: Step, profile: str, finished: Ints | None = None) -> Done:
        """Make the visits of a step where its arrays are, whatever the crew drives."""
        return Crew.run(self, step, profile, finished)

    def _visits(
        self,
        step: Step,
        profile: str,
        finished: Ints | None,
        seconds: float | None,
        only: Ints | None = None,
        *,
        drain: bool,
        again: bool = False,
    ) -> Done:
        """Make the visits of a step, or those of them in `only`."""
        script = None
        if self.serial:
            every = np.arange(len(step.order)) if only is None else only
            script = np.setdiff1d(every, finished if finished is not None else [])
        pass_ = pass_control.start(
            step.order, step.order.tails(step.weight), finished=finished, script=script, only=only
        )
        compiled = step.kernel[profile]
        self._running = pass_ if drain or seconds is not None else None
        if not again:
            # Told to stop before it begins, a worker returns at once; if it has to be compiled, that happens here and
            # not inside the time that is measured.
            compiled(claims.stopped(), 0, step.out, *step.args)

        def halt() -> None:
            pass_.control[claims.STOP] = 1

        began, cycles = time.perf_counter_ns(), read_cycles()
        shares = [(pass_.words, worker, step.out, *step.args) for worker in range(self.workers)]
        interrupted = False
        with heeding_ctrl_c(_Halting(halt)) as ctrl_c:
            call = self._team.call(compiled, shares, halt)
            try:
                if not call.wait(seconds):
                    self.stop()
                    call.wait()
            except KeyboardInterrupt:  # of a second Ctrl-C, or of a handler that is not ours
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
            return Done(step, seconds=nanoseconds / 1e9, log=np.empty((0, claims.LOG_COLUMNS), np.int64))
        log = pass_control.logged(pass_)
        log[:, 2:] = (log[:, 2:] - cycles) * (nanoseconds / max(1, cycles_gone))
        made = log[:, 0] if finished is None else np.union1d(log[:, 0], finished)
        whole = len(made) == len(step.order) and not interrupted
        interrupted = interrupted or (drain and self.asked and not whole)
        if whole and step.after is not None:
            step.after()
        failed = int(pass_.control[claims.FAILED])
        return Done(
            step,
            seconds=nanoseconds / 1e9,
            log=log,
            finished=None if whole else np.sort(made),
            failed=failed - 1 if failed else None,
            interrupted=interrupted,
        )

    def stream(self, disk: Disk) -> None:
        """From now on steps whose arrays are in files of `disk` are made tile by tile."""
        self._walk = TileWalk(disk)

    def parts(self) -> Parts | None:
        """Nodes that hold parts of data; None where all data are in this memory."""
        return None

    @property
    def told_ahead(self) -> bool:
        """Whether a step was begun that has to be run next."""
        return False

    def stop(self) -> None:
        """Ask the running step to end after the visits now being made."""
        if self._running is not None:
            self._running.control[claims.STOP] = 1

    def ask(self) -> None:
        """Ask for an end as soon as it is safe: of the running step if it can be left half made, then of the run."""
        self.asked = True
        self.stop()

    def gather(self) -> None:
        """See that the arrays of the steps that were run hold what was learned. Here they always do."""

    def close(self) -> None:
        with shielding_ctrl_c():
            if self._walk is not None:
                self._walk.close()
            self._team.close()
