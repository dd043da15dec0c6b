"""`TensorBoard`: the numbers of every epoch as event files."""

from __future__ import annotations

import os
from typing import Any

from stretto.observe.events import EpochDone, Event, PlanMade, RunStarted

from .service import ServiceListener, needed, scalars, settings


class TensorBoard(ServiceListener):
    """Write objective, metrics and speed of every epoch for TensorBoard. Needs `pip install 'stretto[tensorboard]'`.

    The step is the number of the epoch, so a run that is resumed goes on in the same curves. Settings and the plan are
    texts of step 0.

    Parameters
    ----------
    folder : str or Path
        Folder of the event files; a folder for each run, in a folder that TensorBoard shows.

    Examples
    --------
    >>> import stretto as st
    >>> session = st.Session(listeners=[st.listeners.TensorBoard("logs/first")])  # doctest: +SKIP
    """

    _title = "TensorBoard"

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self._make = needed("tensorboardX", "tensorboardX", "tensorboard", self._title).SummaryWriter
        self.folder = os.fspath(folder)
        self._writer: Any = None

    def _take(self, event: Event) -> None:
        """Write the numbers of an epoch."""
        if isinstance(event, RunStarted):
            self._writer = self._make(self.folder, purge_step=event.epoch + 1 if event.epoch else None)
            lines = [f"| {name} | {value} |" for name, value in settings(event.config).items()]
            self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]), 0, event.time)
        elif isinstance(event, PlanMade):
            self._writer.add_text("plan", "\n".join("    " + line for line in event.text.splitlines()), 0)
        elif isinstance(event, EpochDone):
            for name, value in scalars(event).items():
                self._writer.add_scalar(name, value, event.epoch, event.time)
            self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
