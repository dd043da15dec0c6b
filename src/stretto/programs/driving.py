"""Driving the compiled engine: calls one after another, looks at the objective in between, and an end.

How many rounds a call makes is chosen so that it takes a twentieth of a second, which lets Ctrl-C and a limit of time
be heeded soon; it changes no number.
"""

from __future__ import annotations

import time

from stretto.errors import Diverged
from stretto.observe.events import Bus, EpochDone, RunEnded, RunStarted, Status
from stretto.runtime.session import heeding_ctrl_c

from .blame import blame
from .machine import Machine
from .values import Look, Options, Result

_CALL = 0.05  # seconds
_STATUS: dict[str, Status] = {"rounds": "done", "interrupted": "stopped"}


def drive(name: str, machine: Machine, options: Options) -> Result:
    """Run a machine to its end. name: what messages call the program."""
    listeners = []
    if options.verbose:
        from stretto.observe.progress import Progress

        listeners.append(Progress(verbose=options.verbose, unit="jobs", step="round"))
    with Bus(*listeners) as tell:
        tell(RunStarted(time.time(), {"program": name, "seed": options.seed}))
        status: Status = "failed"
        try:
            driver = _Driver(name, machine, options, tell)
            with heeding_ctrl_c(driver):
                stopped = driver.run()
            status = _STATUS.get(stopped, "early")
        finally:
            tell(RunEnded(time.time(), status, ""))
    return Result(
        params=machine.params(driver.done),
        rounds=driver.done,
        updates=machine.counts[1],
        seconds=driver.seconds,
        stopped=stopped,
        history=tuple(driver.history),
        record=machine.record(driver.done),
        schedule_seconds=machine.schedule_seconds,
        busy_seconds=machine.busy_seconds,
    )


class _Driver:
    def __init__(self, name: str, machine: Machine, options: Options, tell: Bus) -> None:
        self._name, self._machine, self._options, self._tell = name, machine, options, tell
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
            seconds = self._machine.advance(to)
            chunk = max(1, int(min(2.0, _CALL / max(seconds, 1e-9)) * (to - self.done)))
            self.done, self.seconds = to, self.seconds + seconds
            if failed := self._machine.counts[2]:
                raise Diverged(
                    f"{self._name}: a coefficient is no finite number after round {failed}; too many coordinates that "
                    "disturb each other went together: take a smaller width, or schedule=st.schedule.prioritised()"
                )
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
        samples, updates, _ = self._machine.counts
        look = Look(self.done, self.seconds, samples, self._machine.objective(self.done), updates)
        if self.history:
            last = self.history[-1]
            rounds = max(1, look.round - last.round)
            each, items = (look.seconds - last.seconds) / rounds, (look.updates - last.updates) // rounds
            goal = self._options.rounds or look.round
            self._tell(EpochDone(time.time(), look.round, goal, each, items, look.objective))
        self.history.append(look)
        return look
