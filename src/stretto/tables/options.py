"""Options of `st.run` for a worker function that belong together: evaluations of the objective, and checkpoints."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretto.checks import whole
from stretto.comm.units import seconds
from stretto.errors import PlanError
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.tables.job import CheckpointSettings, TableEvaluation
from stretto.runtime.tables.run.times import Period, TimePoints, Times

from .whole import View


@dataclass(frozen=True, eq=False)
class EvaluationOptions:
    """The options of `st.run` for evaluations of the objective."""

    watch: Callable[[View], float] | None
    every: int | None  # clocks between two evaluations
    every_seconds: str | float | Sequence[str | float] | None
    until: Callable[[TableEvaluation], bool] | None

    def checked(self) -> EvaluationOptions:
        """The same options with the default of `every`; PlanError names the wrong one."""
        every = 1 if self.every is None and self.every_seconds is None else self.every
        clocks = None if every is None else whole("every", every, 1)
        if self.every_seconds is not None and self.watch is None:
            raise PlanError("run: every_seconds= needs watch=, which it calls; pass watch= as well")
        if self.watch is not None:
            check_function("watch", self.watch, "watch(view) -> objective")
        if self.until is not None:
            check_function("until", self.until, "until(look) -> bool")
            if self.watch is None:
                raise PlanError("run: until= needs watch=: it is called after each evaluation; pass both")
        self.times()
        given = self.every_seconds
        return replace(self, every=clocks, every_seconds=tuple(given) if isinstance(given, list) else given)

    def times(self) -> Times | None:
        """Seconds at which evaluations are due, from a period or a list of seconds."""
        given: Any = self.every_seconds
        if given is None:
            return None
        if isinstance(given, list | tuple | np.ndarray):
            moments = sorted({seconds(float(one) if isinstance(one, np.generic) else one) for one in given})
            if not moments:
                raise PlanError("run: every_seconds=[] names no second; leave it out, or name some")
            return TimePoints(tuple(moments))
        period = seconds(given)
        if period <= 0:
            raise PlanError(
                f"run: every_seconds={given!r}; give a time above 0, such as 0.5 or '500ms', or a list of seconds"
            )
        return Period(period)


@dataclass(frozen=True, eq=False)
class CheckpointOptions:
    """The options of `st.run` for checkpoints."""

    folder: str | os.PathLike[str] | Saving | None
    every: int | None  # clocks between two checkpoints
    resume: bool

    def in_files(self, fingerprint: str, settings: dict[str, Any]) -> CheckpointSettings | None:
        """Settings of checkpoints that are saved in a folder; None without one. The arguments identify the run."""
        if self.folder is None:
            if self.resume or self.every is not None:
                raise PlanError(
                    "run: resume= and checkpoint_every= need checkpoint=, the folder checkpoints are saved in"
                )
            return None
        clocks, folder = self._clocks(), self.folder
        if isinstance(folder, Saving):
            if folder.every_epochs is not None or folder.every_seconds is not None:
                raise PlanError(
                    "run: tables are saved by clocks; say checkpoint_every= and leave every_… out of st.Saving"
                )
            return CheckpointSettings(Path(folder.folder), clocks, folder.keep, self.resume, fingerprint, settings)
        if not isinstance(folder, str | os.PathLike):
            raise PlanError(f"run: checkpoint={folder!r}; give a folder, or st.Saving(folder, keep=)")
        return CheckpointSettings(Path(folder), clocks, 2, self.resume, fingerprint, settings)

    def in_memory(self) -> int | None:
        """Clocks between checkpoints that a simulated cluster keeps to itself."""
        if self.folder is not None or self.resume:
            raise PlanError(
                "run: a simulated cluster keeps its checkpoints in memory; leave checkpoint= and resume= out, and say "
                "checkpoint_every= for the clocks between them"
            )
        return self._clocks()

    def _clocks(self) -> int | None:
        return None if self.every is None else whole("checkpoint_every", self.every, 1)


def check_function(name: str, value: Any, words: str) -> None:
    """PlanError unless `value` can be called with one argument. words: what it should look like."""
    if not callable(value):
        raise PlanError(f"run: {name}={value!r} cannot be called; give a function {words}")
    try:
        inspect.signature(value).bind(None)
    except TypeError:
        raise PlanError(f"run: {name} must be a function {words}; it cannot be called with one argument") from None
    except ValueError:
        pass  # a function that does not say what it takes
