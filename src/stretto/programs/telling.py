"""What a run of a program tells those who watch it, whichever engine makes its rounds.

with telling(name, options, plan) as told:
    ...
    told.look(look, last)           # after some rounds
    told.ended("until")             # why it was over; without it the run counts as failed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stretto.observe.events import Bus, EpochDone, PlanMade, RunEnded, RunStarted, Status

from .values import Look, Options

_STATUS: dict[str, Status] = {"rounds": "done", "schedule": "done", "interrupted": "stopped"}


class Told:
    """One run, as it is told."""

    def __init__(self, tell: Bus, goal: int | None) -> None:
        self.status: Status = "failed"
        self._tell, self._goal = tell, goal

    def look(self, look: Look, last: Look) -> None:
        """In numbers for each round since another look."""
        rounds = max(1, look.round - last.round)
        seconds, items = (look.seconds - last.seconds) / rounds, (look.updates - last.updates) // rounds
        self._tell(EpochDone(time.time(), look.round, self._goal or look.round, seconds, items, look.objective))

    def ended(self, why: str) -> None:
        """It is over; why: a word of `Result.stopped`."""
        self.status = _STATUS.get(why, "early")


@contextmanager
def telling(name: str, options: Options, plan: Callable[[], str]) -> Iterator[Told]:
    """Begin, and end with whatever came of it. plan: the plan in words, asked for only by those who want it."""
    listeners = []
    if options.verbose:
        from stretto.observe.progress import Progress

        listeners.append(Progress(verbose=options.verbose, unit="jobs", step="round"))
    with Bus(*listeners) as tell:
        tell(RunStarted(time.time(), {"program": name, "seed": options.seed}))
        if options.verbose > 1:
            tell(PlanMade("", plan()))
        told, message = Told(tell, options.rounds), ""
        try:
            yield told
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
            raise
        finally:
            tell(RunEnded(time.time(), told.status, message))
