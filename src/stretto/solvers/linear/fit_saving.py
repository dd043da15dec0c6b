"""Checkpoints and the run record of a linear model's fit.

A fit is nested: cross-validation folds contain paths, paths contain penalties, penalties contain rounds. Each level
registers a function that returns its state. A checkpoint holds the states of all open levels. A fit that resumes
returns each level its own state.

    with saved.level("path", lambda: {"gaps": gaps[:k]}):       # while the path is computed
        state = saved.take("path")                              # from the checkpoint, or None
        solver.fit(…, ended=saved.ended)                        # saves when a checkpoint is due
        saved.round(objective, {"gap": gap})                    # one row of the record's epoch table

The state of cluster nodes follows from the data and the driver's vectors, so the driver saves everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from numpy.typing import NDArray

from stretto.checks import wrong
from stretto.errors import CheckpointError
from stretto.observe.events import EpochDone, Event, Listener, PlanMade
from stretto.plan.job import JobPlan
from stretto.runtime.files.run_checkpoints import RunCheckpoints
from stretto.runtime.reported import recorded
from stretto.runtime.session import Session

Arrays = dict[str, NDArray[Any]]


class FitSaving:
    """Checkpoints and run record of one fit; without a session it does nothing.

    goal : maximum number of rounds, for progress bars; 0 if unknown
    items : matrix entries that a round reads about once
    """

    def __init__(self, tell: Listener | None = None, checkpoints: RunCheckpoints | None = None, items: int = 0) -> None:
        self._tell, self._checkpoints, self.items, self.goal = tell, checkpoints, items, 0
        self._levels: dict[str, Callable[[], Arrays]] = {}
        self._found: Arrays = {}
        self._rounds = self._saved = self._saves = 0
        self._began = time.perf_counter()

    @property
    def watching(self) -> bool:
        """Whether the fit must call `round`."""
        return self._tell is not None

    def tell(self, event: Event) -> None:
        """Report an event to the record and the listeners."""
        if self._tell is not None:
            self._tell(event)

    @property
    def ended(self) -> Callable[[], None] | None:
        """Callback for a solver to call between two rounds; None if nothing is saved."""
        return None if self._checkpoints is None else self._save_if_due

    def resume(self) -> int:
        """Read the newest checkpoint; return the number of rounds completed by then."""
        if self._checkpoints is None:
            raise CheckpointError("resume=True needs a folder of checkpoints; give Session(saving=Saving(folder))")
        found = self._checkpoints.latest()
        self._found = dict(found.arrays)
        self._rounds = self._saved = int(found.meta["epoch"])
        self._saves = found.step
        return self._rounds

    def take(self, name: str) -> Arrays | None:
        """State of a level in the checkpoint that the fit resumes from; None from the second call on."""
        mine = [key for key in self._found if key.startswith(f"{name}/")]
        return {key.removeprefix(f"{name}/"): self._found.pop(key) for key in mine} or None

    @contextmanager
    def level(self, name: str, state: Callable[[], Arrays]) -> Iterator[None]:
        """While this level is open, include the result of `state` in checkpoints."""
        self._levels[name] = state
        try:
            yield
        finally:
            del self._levels[name]

    def round(self, objective: float, metrics: Mapping[str, float]) -> None:
        """Record a completed round, or a completed point of a path."""
        self._rounds += 1
        now, began = time.perf_counter(), self._began
        self._began = now
        if self._tell is not None:
            goal = max(self.goal, self._rounds)
            self._tell(EpochDone(time.time(), self._rounds, goal, now - began, self.items, objective, metrics))

    def _save_if_due(self) -> None:
        checkpoints = self._checkpoints
        assert checkpoints is not None
        timed = checkpoints.saving.every_epochs is None or checkpoints.saving.every_seconds is not None
        # Count rounds, not points: several points of a path may fall between two counted rounds.
        if not checkpoints.due(self._rounds) or (not timed and self._rounds == self._saved):
            return
        arrays = {f"{name}/{key}": a for name, state in self._levels.items() for key, a in state().items()}
        self._saves += 1
        checkpoints.save(arrays, {"step": self._saves, "epoch": self._rounds}, self._rounds)
        self._saved = self._rounds


@contextmanager
def saving_fit(session: Session | None, plan: JobPlan) -> Iterator[FitSaving]:
    """Open the run record and the checkpoints of a fit; close them with its outcome."""
    given: Any = session
    if given is not None and not isinstance(given, Session):
        must = "an st.Session, such as st.Session(record='runs/first'), or None"
        raise wrong(plan.program, "session", must, given)
    if session is None:
        yield FitSaving()
        return
    with session.listen("entries", "round") as tell:
        checkpoints = None
        if session.saving is not None:
            checkpoints = RunCheckpoints(
                session.saving, plan.fingerprint, plan.settings, profile=plan.profile, tell=tell
            )
        saved = FitSaving(tell, checkpoints, plan.cost.entries)
        done = saved.resume() if session.resume else 0
        with (
            nullcontext() if checkpoints is None else checkpoints.writing(),
            recorded(tell, {**plan.settings, **session.config}, done) as ending,
        ):
            tell(PlanMade(plan.fingerprint, plan.explain(), plan.profile))
            try:
                yield saved
            except KeyboardInterrupt:
                ending.status, ending.message = "stopped", "interrupted"
                raise
            ending.status = "done"
