"""What surrounds a run: who is told of it, where it is recorded and saved, how it goes on or ends.

model.fit(X, session=Session(record="runs/first", checkpoint_every="5 epochs"))
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stretto.observe.events import Bus, Listener, RunEnded, RunStarted, Status

from .train import Outcome, Saving, Trainer


@dataclass(frozen=True)
class Session:
    """record: folder of the run record. saving: when to save checkpoints. resume: go on from the newest checkpoint.

    verbose: 0 quiet, 1 a progress bar, 2 the plan too. listeners: called with every event. config: noted in the record.
    """

    record: str | Path | None = None
    saving: Saving | None = None
    resume: bool = False
    verbose: int = 0
    listeners: Sequence[Listener] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    def listen(self) -> Bus:
        """Everyone who is told, as one listener."""
        listeners = list(self.listeners)
        if self.record is not None:
            from stretto.observe.record import RunRecord

            listeners.append(RunRecord(self.record, exist_ok=self.resume))
        if self.verbose:
            from stretto.observe.progress import Progress

            listeners.append(Progress(verbose=self.verbose))
        return Bus(*listeners)

    def drive(self, trainer: Trainer, epochs: int, settings: Mapping[str, Any]) -> Outcome:
        """Run the trainer to its end and tell how it began and ended. Stopped by the user, it is saved first."""
        if self.resume:
            trainer.restore()
        tell = trainer.tell
        tell(RunStarted(time.time(), {**settings, **self.config}, trainer.position.epoch))
        status: Status = "failed"
        message = ""
        try:
            outcome = trainer.run(epochs)
            status = outcome.status
            if status == "stopped":
                trainer.save()
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
            raise
        finally:
            tell(RunEnded(time.time(), status, message))
        return outcome


def scratch_folder(session: Session | None) -> tempfile.TemporaryDirectory[str]:
    """A folder for what does not fit in memory: beside the run record when there is one. It goes away when it is
    dropped.
    """
    within = None if session is None or session.record is None else Path(session.record).parent
    if within is not None:
        within.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="stretto-", dir=within)
