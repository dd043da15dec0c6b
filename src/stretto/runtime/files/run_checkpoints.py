"""The checkpoints of one run: when the next one is due, how it is written, what must match when it is read.

    run = RunCheckpoints(Saving(Path("runs/first/checkpoints"), every_epochs=5), plan.fingerprint, plan.settings)
    if run.due(epoch):
        run.save({"W": W}, {"step": epoch, "epoch": epoch}, epoch)
    found = run.latest()                # verified; OtherPlan says which settings differ

Estimators, loops, linear models, programs and jobs over tables all save through this class. The module `checkpoint`
handles the files.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from stretto.checks import of
from stretto.errors import CheckpointError
from stretto.observe.events import CheckpointRejected, CheckpointSaved, Event, Listener, Warned

from . import checkpoint
from .checkpoint import Checkpoint

# Mean time between failures assumed when the checkpoint interval is not given: a day.
_FAILURE_SECONDS = 86_400.0
_FIRST_SAVE = 0.05  # estimated seconds of a save before the first measurement


@dataclass(frozen=True)
class Saving:
    """Where and when checkpoints are saved.

    Without `every_epochs` and `every_seconds` the interval follows from how long saving takes.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoints.
    every_epochs : int or None, default None
        Epochs between two checkpoints; rounds for linear models and programs, clocks for tables.
    every_seconds : float or None, default None
        Seconds between two checkpoints.
    keep : int, default 2
        Checkpoints to keep; older ones are deleted.

    Examples
    --------
    >>> from pathlib import Path
    >>> import stretto as st
    >>> st.Saving(Path("checkpoints"), every_epochs=5).keep
    2
    """

    folder: Path
    every_epochs: int | None = None
    every_seconds: float | None = None
    keep: int = 2

    def __post_init__(self) -> None:
        check = of("Saving")
        if not isinstance(self.folder, str | os.PathLike):
            raise check.wrong("folder", "the path of a folder", self.folder)
        check.optional("every_epochs", self.every_epochs, least=1, whole=True)
        check.optional("every_seconds", self.every_seconds, least=0)
        check.number("keep", self.keep, least=1, whole=True)


def warn(event: Event) -> None:
    """The default listener: turns problems into warnings."""
    if isinstance(event, CheckpointRejected):
        warnings.warn(f"{event.reason}; the previous checkpoint is used", RuntimeWarning, stacklevel=2)
    elif isinstance(event, Warned):
        warnings.warn(event.message, RuntimeWarning, stacklevel=2)


class RunCheckpoints:
    """The checkpoints of one run.

    Parameters
    ----------
    saving : Saving
        Where and when.
    fingerprint : str
        Of the plan; a checkpoint of another one is refused.
    settings : mapping
        The settings that the fingerprint covers, by name, to say what differs.
    profile : str
        Numeric profile; the bits of "fast" depend on the processor, which then has to be the same.
    tell : function(event)
        Receives CheckpointSaved, CheckpointRejected and Warned.
    """

    def __init__(
        self,
        saving: Saving,
        fingerprint: str,
        settings: Mapping[str, Any],
        *,
        profile: str = "",
        tell: Listener = warn,
    ) -> None:
        self.saving, self.fingerprint, self.settings = saving, fingerprint, settings
        self._profile, self._tell = profile, tell
        self._saved_at = time.perf_counter()
        self.save_seconds = _FIRST_SAVE  # of the last save

    def writing(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes: RunError if one saves into it."""
        return checkpoint.writing(self.saving.folder)

    # -- when ----------------------------------------------------------------------------------------------------------

    def due(self, done: int) -> bool:
        """Whether a checkpoint is due now, after `done` epochs or rounds."""
        if self.asked_after(done):
            return True
        left = self.seconds_left()
        return left is not None and left <= 0

    def asked_after(self, done: int) -> bool:
        """Whether a checkpoint is requested after `done` epochs or rounds, whatever the time."""
        every = self.saving.every_epochs
        return every is not None and done % every == 0

    def seconds_left(self) -> float | None:
        """Seconds until the next checkpoint is due; None where only epochs count."""
        if self.saving.every_seconds is not None:
            interval = self.saving.every_seconds
        elif self.saving.every_epochs is not None:
            return None
        else:
            interval = checkpoint.interval_seconds(self.save_seconds, mean_time_to_failure=_FAILURE_SECONDS)
        return max(0.0, interval - (time.perf_counter() - self._saved_at))

    # -- writing and reading -------------------------------------------------------------------------------------------

    def save(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], epoch: int) -> bool:
        """Write a checkpoint; return whether it is on disk. A failing disk is reported, and the run goes on.

        Parameters
        ----------
        arrays : mapping of str to array
            What to save.
        meta : mapping
            JSON values with "step", the number of the checkpoint; the fingerprint and its settings are added.
        epoch : int
            Epochs or rounds done, for listeners.
        """
        about = {**meta, "fingerprint": self.fingerprint, "settings": dict(self.settings)}
        if self._profile:
            about |= {"profile": self._profile, "target": _target()}
        began = time.perf_counter()
        try:
            path = checkpoint.save(self.saving.folder, arrays, about, keep=self.saving.keep)
        except CheckpointError as error:
            self._tell(Warned(str(error)))
            self._saved_at = time.perf_counter()
            return False
        self._saved_at = time.perf_counter()
        self.save_seconds = self._saved_at - began
        size = sum(array.nbytes for array in arrays.values())
        self._tell(CheckpointSaved(time.time(), str(path), epoch, size, self.save_seconds))
        return True

    def latest(self) -> Checkpoint:
        """The newest valid checkpoint of this plan. Damaged ones are reported and skipped."""
        found = checkpoint.latest(self.saving.folder, self.fingerprint, settings=dict(self.settings), report=self._tell)
        if self._profile == "fast" and found.meta.get("target") != _target():
            raise CheckpointError(
                f"{found.path} was computed in profile 'fast' for {found.meta.get('target')}, but this is {_target()}: "
                "the bits would differ; resume on such a machine, or start again with profile='exact'"
            )
        return found

    def any_saved(self) -> bool:
        """Whether the folder holds a checkpoint, valid or not."""
        return checkpoint.any_saved(self.saving.folder)


def _target() -> str:
    from stretto.kernels.core.compile import target  # imported late: it imports Numba

    return target()
