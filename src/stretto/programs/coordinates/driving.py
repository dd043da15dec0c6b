"""The main loop of the compiled engine: call it, evaluate the objective in between, and check whether to stop.

A call takes about a twentieth of a second, so that Ctrl-C and a time limit take effect soon. The number of rounds of a
call changes no result.
"""

from __future__ import annotations

from collections.abc import Callable

from stretto.programs.error_context import blame
from stretto.programs.progress import ProgressReporter, telling
from stretto.programs.values import Look, ProgramResult, RunOptions
from stretto.runtime.interrupts import heeding_ctrl_c

from .engine import CoordinateEngine
from .segments import SegmentEngine
from .state import diverged

_CALL = 0.05  # seconds


def drive(
    name: str, machine: CoordinateEngine | SegmentEngine, options: RunOptions, plan: Callable[[], str]
) -> ProgramResult:
    """Run an engine to its end. name: of the program, for messages; plan: its plan in words."""
    with telling(name, options, plan) as progress:
        driver = _EngineDriver(name, machine, options, progress)
        with heeding_ctrl_c(driver) as ctrl_c:
            stopped = driver.run()
            if ctrl_c.heard():  # also when it came too late to stop anything
                stopped = "interrupted"
        progress.ended(stopped)
    return ProgramResult(
        params=machine.state.params(driver.done),
        rounds=driver.done,
        updates=machine.state.counts[1],
        seconds=driver.seconds,
        stopped=stopped,
        history=tuple(driver.history),
        record=machine.record(driver.done),
        schedule_seconds=machine.schedule_seconds,
        busy_seconds=machine.busy_seconds,
        choices=machine.choices,
    )


class _EngineDriver:
    def __init__(
        self, name: str, machine: CoordinateEngine | SegmentEngine, options: RunOptions, progress: ProgressReporter
    ) -> None:
        self._name, self._machine, self._options, self._progress = name, machine, options, progress
        self.done, self.seconds = 0, 0.0
        self.history: list[Look] = []
        self._asked = False

    def ask(self) -> None:
        """Request the end of the run after the current call."""
        self._asked = True

    def run(self) -> str:
        """Run rounds until a stopping rule applies; return its name."""
        options, chunk = self._options, 1
        self._look()
        while True:
            if options.rounds is not None and self.done >= options.rounds:
                return self._end("rounds")
            goal = self.done + options.every - self.done % options.every
            to = min(goal, self.done + chunk, options.rounds if options.rounds is not None else goal)
            to = min(to, self._machine.limit)
            seconds = self._machine.advance(to)
            chunk = max(1, int(min(2.0, _CALL / max(seconds, 1e-9)) * (to - self.done)))
            self.done, self.seconds = to, self.seconds + seconds
            if failed := self._machine.state.counts[2]:
                raise diverged(self._name, failed)
            if self.done == goal:
                look = self._look()
                if self._enough(look):
                    return "until"
            if options.seconds is not None and self.seconds >= options.seconds:
                return self._end("seconds")
            if self._asked:
                return self._end("interrupted")

    def _enough(self, look: Look) -> bool:
        until = self._options.until
        try:
            return until is not None and bool(until(look))
        except Exception as error:
            blame(self._name, "until", f"round {look.round}", error)

    def _end(self, why: str) -> str:
        if self.history[-1].round != self.done:
            self._look()
        return why

    def _look(self) -> Look:
        samples, updates, _ = self._machine.state.counts
        look = Look(self.done, self.seconds, samples, self._machine.state.objective(self.done), updates)
        if self.history:
            self._progress.look(look, self.history[-1])
        self.history.append(look)
        return look
