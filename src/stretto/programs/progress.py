"""Progress events of a run of a program: progress bar, log lines and run record.

with telling(name, options, plan) as progress:
    ...
    progress.look(look, last)           # after some rounds
    progress.ended("until")             # why it ended; without this call the run counts as failed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from stretto.observe.events import Bus, EpochDone, PlanMade, Status
from stretto.runtime.files.run_checkpoints import warn
from stretto.runtime.reported import recorded
from stretto.runtime.session import Session

from .values import Look, RunOptions

_STATUS: dict[str, Status] = {"rounds": "done", "schedule": "done", "interrupted": "stopped"}


class ProgressReporter:
    """Emits the progress events of one run."""

    def __init__(self, tell: Bus, goal: int | None) -> None:
        self.status: Status = "failed"
        self.tell, self._goal = tell, goal

    def look(self, look: Look, last: Look) -> None:
        """Emit an evaluation, with means over the rounds since the `last` one."""
        rounds = max(1, look.round - last.round)
        seconds, items = (look.seconds - last.seconds) / rounds, (look.updates - last.updates) // rounds
        self.tell(EpochDone(time.time(), look.round, self._goal or look.round, seconds, items, look.objective))

    def ended(self, why: str) -> None:
        """Note that the run ended. why: a value of `Result.stopped`."""
        self.status = _STATUS.get(why, "early")


@contextmanager
def telling(name: str, options: RunOptions, plan: Callable[[], str]) -> Iterator[ProgressReporter]:
    """Emit the start and the end of a run. plan: returns the plan in words; called only if a listener wants it."""
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
            progress = ProgressReporter(tell, options.rounds)
            yield progress
            ending.status = progress.status
