"""Programs side by side to the same objective: the setting that each needs, then fits in alternation in one process.

    race = Race(objective, {"Stretto": ours, "scikit-learn": theirs}, SETTINGS)
    race.run(least, close=1e-3)         # title → seconds, setting, objective

A program is a function of a setting, such as a tolerance or a number of epochs, that fits and gives what `objective`
takes. Settings are tried in their order, each harder than the one before.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from .process_copy import in_copy

REPEATS = 3
STEADY = 0.1  # seconds: fits of a program are repeated until they take this long together, `MOST` times at most
MOST = 15
LONG = 2.0  # seconds from which on a fit is measured once
LIMIT = float(os.environ.get("BENCH_LIMIT", "60"))
OWN = 20.0  # times the limit: what the first program has, where its time decides how long the others may search

# Wall time, or with BENCH_CLOCK=cpu the processor time of the whole process, which other work hardly changes.
SHARED = os.environ.get("BENCH_CLOCK") == "cpu"
clock = time.process_time if SHARED else time.perf_counter
CAUTION = """

**The machine was shared while this was measured** (`BENCH_CLOCK=cpu`): seconds are those of the processor, of all
threads together."""

RULES = """\
Each program gets the loosest of its settings (in brackets) whose objective, computed by one function for all from
the coefficients that came back, is at most {close:g} above the smallest one known; a user would not know that setting.
Fits with it are then timed in one process, the programs in turn, so that other work on the machine slows all of them
alike: medians of {repeats} to {most}, or one fit where it takes more than {long:g} s. Compiling is apart: a small fit
comes first. `> {limit:g}`: not reached in that many seconds."""


def rules(close: float) -> str:
    """How it was measured, as text."""
    return RULES.format(close=close, repeats=REPEATS, most=MOST, long=LONG, limit=LIMIT) + CAUTION * SHARED


@dataclass(frozen=True)
class Finish:
    """The result of a program. setting: None if none of its settings reached the objective."""

    seconds: float
    setting: Any
    objective: float

    @property
    def cell(self) -> str:
        """As a table shows it."""
        return f"> {LIMIT:g}" if self.setting is None else f"{self.seconds:.3g} ({self.setting:g})"


@dataclass(frozen=True)
class Race:
    """Programs on one problem. The first one sets the time that the others are given, if `patience` is finite."""

    objective: Callable[[Any], float]
    programs: Mapping[str, Callable[[Any], Any]]
    settings: Mapping[str, Sequence[Any]]
    threads: int = 1  # for BLAS and OpenMP
    limit: float = LIMIT  # seconds after which no harder setting is tried
    patience: float = math.inf  # the search of another program ends after so many times the first one's time
    shortest: float = 0.3  # seconds that every search has

    def run(self, least: float, close: float) -> dict[str, Finish]:
        """Find the settings, then measure the programs in turn."""
        found: dict[str, Finish] = {}
        for title in self.programs:
            found[title] = self._search(title, least * (1 + close), found)
        times: dict[str, list[float]] = {title: [] for title in self.programs}
        for turn in range(MOST):
            for title, finish in found.items():
                mine = times[title]
                short = turn < REPEATS or sum(mine) < STEADY
                if finish.setting is not None and short and not (mine and mine[0] > LONG):
                    mine.append(self._timed(title, finish.setting)[0])
        return {
            title: Finish(statistics.median(times[title]) if times[title] else one.seconds, one.setting, one.objective)
            for title, one in found.items()
        }

    def _timed(self, title: str, setting: Any) -> tuple[float, Any]:
        with threadpool_limits(self.threads):
            began = clock()
            result = self.programs[title](setting)
            return clock() - began, result

    def _search(self, title: str, target: float, found: Mapping[str, Finish]) -> Finish:
        """The loosest setting of a program that reaches the target."""
        if math.isinf(self.patience):
            return self._settle(title, target, self.limit)
        if not found:  # its time is the measure of the others, so it is needed even where it is long
            return self._settle(title, target, OWN * self.limit)
        first = next(iter(found.values()))
        limit = min(self.limit, max(self.shortest, self.patience * first.seconds))
        if self.threads > 1:  # a copy of a process does not have its other threads, and may wait for them
            return self._settle(title, target, limit)
        # A single fit may take minutes and cannot be interrupted: it runs in a copy of the process, which can.
        found_here = in_copy(lambda: self._settle(title, target, limit), 1.5 * limit, processor=SHARED)
        return found_here or Finish(limit, None, math.inf)

    def _settle(self, title: str, target: float, limit: float) -> Finish:
        spent = value = 0.0
        for setting in self.settings[title]:
            seconds, result = self._timed(title, setting)
            spent, value = spent + seconds, self.objective(result)
            if value <= target:
                return Finish(seconds, setting, value)
            if spent > limit:
                break
        return Finish(limit, None, value)


def ratio(finishes: Mapping[str, Finish], ours: str) -> str:
    """Our time over that of the fastest other program, a bound if none of them reached the objective."""
    others = [one for title, one in finishes.items() if title != ours]
    done = [one.seconds for one in others if one.setting is not None]
    if finishes[ours].setting is None:
        return "—"
    best = min(done) if done else LIMIT
    return f"{'' if done else '< '}{finishes[ours].seconds / best:.2f}"
