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
from dataclasses import replace

from stretto.observe.events import Bus, EpochDone, PlanMade, Status
from stretto.runtime.files.run_checkpoints import warn
from stretto.runtime.session import Session, recorded

from .values import Look, Options

_STATUS: dict[str, Status] = {"rounds": "done", "schedule": "done", "interrupted": "stopped"}


class Told:
    """One run, as it is told."""

    def __init__(self, tell: Bus, goal: int | None) -> None:
        self.status: Status = "failed"
        self.tell, self._goal = tell, goal

    def look(self, look: Look, last: Look) -> None:
        """In numbers for each round since another look."""
        rounds = max(1, look.round - last.round)
        seconds, items = (look.seconds - last.seconds) / rounds, (look.updates - last.updates) // rounds
        self.tell(EpochDone(time.time(), look.round, self._goal or look.round, seconds, items, look.objective))

    def ended(self, why: str) -> None:
        """It is over; why: a word of `Result.stopped`."""
        self.status = _STATUS.get(why, "early")


@contextmanager
def telling(name: str, options: Options, plan: Callable[[], str]) -> Iterator[Told]:
    """Begin, and end with whatever came of it. plan: the plan in words, asked for only by those who want it."""
    session = options.session or Session()
    verbose = options.verbose or session.verbose
    with replace(session, verbose=verbose).listen("jobs", "round") as tell:
        if not verbose:
            tell = Bus(*tell.listeners, warn)
        done = 0
        if session.record is not None and options.keeping is not None and options.keeping.resume:
            done = int(options.keeping.checkpoints(tell).latest().meta["round"])
        config = {"program": name, "seed": options.seed, "pipeline": options.pipeline, **session.config}
        with recorded(tell, config, done) as ending:
            if verbose > 1 or session.record is not None:
                tell(PlanMade(options.fingerprint, plan()))
            told = Told(tell, options.rounds)
            yield told
            ending.status = told.status
