"""Progress over several fits: a bar on a terminal, a line for each fit elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Self


class FitProgress:
    """Shows on standard error which fit runs and what the last ones gave.

    with FitProgress(12, verbose=1) as progress:
        progress.begin("50 topics, seed 0")
        progress.end("50 topics, seed 0: perplexity 2031.0")
    """

    def __init__(self, fits: int, *, verbose: int) -> None:
        self._fits, self._verbose, self._done = fits, verbose, 0
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._verbose > 0 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                MofNCompleteColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn(),
                console=Console(file=sys.stderr), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("", total=self._fits)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str) -> None:
        """A fit begins."""
        if self._bar is not None:
            self._bar.update(self._task, description=what)

    def end(self, found: str) -> None:
        """The fit has ended."""
        self._done += 1
        if self._bar is not None:
            self._bar.advance(self._task)
        elif self._verbose > 0:
            print(f"{self._done}/{self._fits}  {found}", file=sys.stderr, flush=True)
