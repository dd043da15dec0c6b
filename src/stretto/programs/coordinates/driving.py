"""Driving the compiled engine: calls one after another, looks at the objective in between, and an end.

How many rounds a call makes is chosen so that it takes a twentieth of a second, which lets Ctrl-C and a limit of time
be heeded soon; it changes no number.
"""

from __future__ import annotations

from collections.abc import Callable

from stretto.programs.error_context import blame
from stretto.programs.progress import Told, telling
from stretto.programs.values import Look, Options, Result
from stretto.runtime.interrupts import heeding_ctrl_c

from .cost_model import Machine
from .segments import SegmentMachine
from .state import diverged

_CALL = 0.05  # seconds


def drive(name: str, machine: Machine | SegmentMachine, options: Options, plan: Callable[[], str]) -> Result:
    """Run a machine to its end. name: what messages call the program; plan: its plan in words."""
    with telling(name, options, plan) as told:
        driver = _Driver(name, machine, options, told)
        with heeding_ctrl_c(driver) as ctrl_c:
            stopped = driver.run()
            if ctrl_c.heard():  # also when it came too late to stop anything
                stopped = "interrupted"
        told.ended(stopped)
    return Result(
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


class _Driver:
    def __init__(self, name: str, machine: Machine | SegmentMachine, options: Options, told: Told) -> None:
        self._name, self._machine, self._options, self._told = name, machine, options, told
        self.done, self.seconds = 0, 0.0
        self.history: list[Look] = []
        self._asked = False

    def ask(self) -> None:
        """End as soon as the rounds of the present call are made."""
        self._asked = True

    def run(self) -> str:
        """Make rounds until something ends it; what it was."""
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
            self._told.look(look, self.history[-1])
        self.history.append(look)
        return look
