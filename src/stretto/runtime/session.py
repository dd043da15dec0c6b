"""What surrounds a run: who is told of it, where it is recorded and saved, how it goes on or ends.

model.fit(X, session=Session(record="runs/first", saving=Saving(Path("runs/first/checkpoints"), every_epochs=5)))
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stretto.observe.events import Bus, Listener, RunEnded, RunStarted, Status

from .train import Outcome, Saving, Trainer


@dataclass(frozen=True)
class Session:
    """record: folder of the run record. saving: when to save checkpoints. resume: go on from the newest checkpoint.

    verbose: 0 quiet, 1 a progress bar, 2 the plan too. listeners: called with every event. config: noted in the record.
    unit: what is counted per second.
    """

    record: str | Path | None = None
    saving: Saving | None = None
    resume: bool = False
    verbose: int = 0
    listeners: Sequence[Listener] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "ratings"

    def listen(self) -> Bus:
        """Everyone who is told, as one listener."""
        listeners = list(self.listeners)
        if self.record is not None:
            from stretto.observe.record import RunRecord

            listeners.append(RunRecord(self.record, exist_ok=self.resume))
        if self.verbose:
            from stretto.observe.progress import Progress

            listeners.append(Progress(verbose=self.verbose, unit=self.unit))
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
            with heeding_ctrl_c(trainer.crew):
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


class Asked(Protocol):
    """What can be asked to end as soon as it is safe: a crew, or rounds."""

    def ask(self) -> None: ...


@contextmanager
def heeding_ctrl_c(crew: Asked) -> Iterator[None]:
    """The first Ctrl-C asks the crew to stop where that is safe, a second one stops at once.

    Python delivers signals to the main thread only, and a handler somebody else has installed is left alone.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield
        return

    def ask(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        crew.ask()

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Scratch:
    """A folder that goes away when it is dropped, without a word. A copy of its owner (pickle) does not have it."""

    def __init__(self, within: Path | None = None) -> None:
        self.name = tempfile.mkdtemp(prefix="stretto-", dir=within)
        self._remove = weakref.finalize(self, _remove, self.name, os.getpid())

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def _remove(folder: str, owner: int) -> None:
    # A forked child inherits the object; the folder is still its parent's.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_folder(session: Session | None) -> Scratch:
    """A folder for what does not fit in memory: beside the run record when there is one. It goes away when it is
    dropped.
    """
    within = None if session is None or session.record is None else Path(session.record).parent
    if within is not None:
        within.mkdir(parents=True, exist_ok=True)
    return Scratch(within)
