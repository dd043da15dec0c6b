"""Progress bar over epochs with the objective, the speed and the time left.

verbose 0 prints nothing. 1 draws a bar on a terminal; elsewhere (a pipe, a log file) it prints warnings and one line at
the end. 2 adds the plan, every epoch and every checkpoint as lines, on a terminal or not.

The bar is redrawn when an event arrives, at most ten times a second by the events' own times. It needs no thread, which
would compete with the workers.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import TYPE_CHECKING

from stretto.observe.events import (
    CheckpointRejected,
    CheckpointSaved,
    EpochDone,
    Event,
    PlanMade,
    RunEnded,
    RunStarted,
    SettingTuned,
    Warned,
    WidthChosen,
)
from stretto.text import amount, duration, show_mib

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_REDRAW = 0.1
_RECENT = 8  # epochs that the speed is estimated from: the first ones may include compilation
_ENDINGS = {"done": "done", "early": "stopped early", "stopped": "stopped", "failed": "failed"}


class Progress:
    """A listener that shows the progress of a run.

    console : where it is shown; standard error unless given, so that results can be piped.
    step, unit : names of an epoch and of the items in it.
    """

    def __init__(
        self, console: Console | None = None, *, verbose: int = 1, unit: str = "ratings", step: str = "epoch"
    ) -> None:
        self.verbose, self.unit, self.step = verbose, unit, step
        self._console = console
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._drawn = float("-inf")
        self._started = 0.0
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._last: EpochDone | None = None

    def __call__(self, event: Event, /) -> None:
        if self.verbose <= 0:
            return
        if isinstance(event, RunStarted):
            self._started = event.time
            self._recent.clear()
            self._last = None
        elif isinstance(event, EpochDone):
            self._epoch(event)
        elif isinstance(event, Warned):
            self._say(f"warning: {event.message}")
        elif isinstance(event, CheckpointRejected):
            self._say(f"warning: passed over a checkpoint: {event.reason}")
        elif isinstance(event, RunEnded):
            self._end(event)
        elif self.verbose >= 2 and isinstance(event, PlanMade):
            self._say(event.text)
        elif self.verbose >= 2 and isinstance(event, WidthChosen):
            self._say(f"{event.width} thread{'s' * (event.width > 1)}: {event.reason}")
        elif self.verbose >= 2 and isinstance(event, SettingTuned):
            self._say(f"{event.knob}: {event.before} to {event.after} ({event.kind}): {event.reason}")
        elif self.verbose >= 2 and isinstance(event, CheckpointSaved):
            self._say(f"saved {event.path}: {show_mib(event.bytes)} in {duration(event.seconds)}")

    def close(self) -> None:
        """Remove the bar from the screen and restore the cursor."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _epoch(self, event: EpochDone) -> None:
        self._last = event
        self._recent.append((event.seconds, event.items))
        if self.verbose >= 2:
            self._say(f"{self.step} {event.epoch}/{event.epochs}  {self._numbers(event)}  {duration(event.seconds)}")
        if not self._screen().is_terminal:
            return
        if self._bar is None:
            self._open(event.epochs)
        assert self._bar is not None
        assert self._task is not None
        self._bar.update(
            self._task, completed=event.epoch, total=event.epochs, numbers=self._numbers(event), left=self._left(event)
        )
        if event.time - self._drawn >= _REDRAW or event.epoch == event.epochs:
            self._drawn = event.time
            self._bar.refresh()

    def _open(self, epochs: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn(self.step),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("{task.fields[left]}", style="cyan"),
            console=self._screen(),
            auto_refresh=False,
            transient=True,  # the final line replaces it
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=epochs, numbers="", left="")

    def _end(self, event: RunEnded) -> None:
        self.close()
        parts = [_ENDINGS[event.status]]
        if self._last is not None:
            parts += [
                f"{self._last.epoch}/{self._last.epochs} {self.step}s in {duration(event.time - self._started)}",
                self._numbers(self._last),
            ]
        self._say("  ".join(parts) + (f"  ({event.message})" if event.message else ""))

    def _numbers(self, event: EpochDone) -> str:
        # An objective that is minus a log-likelihood among the metrics is redundant.
        known = "log_likelihood" in event.metrics or event.objective == math.inf
        parts = [] if known else [f"objective {event.objective:.6g}"]
        parts += [f"{name.replace('_', ' ')} {value:.4f}" for name, value in event.metrics.items()]
        seconds, items = sum(s for s, _ in self._recent), sum(n for _, n in self._recent)
        if seconds > 0:
            parts.append(f"{amount(items / seconds)} {self.unit}/s")
        return "  ".join(parts)

    def _left(self, event: EpochDone) -> str:
        """Time left, by the median epoch: one slow epoch (a save, another program) should not change the estimate."""
        return f"{duration((event.epochs - event.epoch) * statistics.median(s for s, _ in self._recent))} left"

    def _say(self, text: str) -> None:
        """Print a line above the bar, without markup, colours or wrapping."""
        self._screen().print(text, markup=False, highlight=False, soft_wrap=True)

    def _screen(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True)
        return self._console
