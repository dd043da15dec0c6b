"""`schedule="auto"` (`st.schedule.auto`): choose the schedule by the correlation of the data and by measured progress.

    st.SparseRegression(X, y, alpha, schedule="auto")            # short for st.schedule.auto()
    result = st.run(program, rounds=2000)
    result.choices                                               # round, schedule, why

`candidates` lists the schedules to try, `trials` chooses between them. Same program, seed and kind of runtime: same
choices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.schedule.checks import number, whole
from stretto.schedule.spec import Chooser, Floats, Ints, Schedule

from .candidates import COMPILED, Candidates, RoundCost, candidates, columns_or_none
from .trials import Decision, Trials


@dataclass(frozen=True, repr=False)
class Auto(Schedule):
    """The schedule that makes most progress per unit of work; see `auto`."""

    width: int = 256  # the most jobs of a round
    latency: float | None = None  # seconds of a message between nodes; None: that of the runtime

    def __post_init__(self) -> None:
        whole("width", self.width)
        if self.width < 1:
            raise PlanError(f"a round has at least one job, got width={self.width}")
        if self.latency is not None:
            number("latency", self.latency)
            if self.latency < 0:
                raise PlanError(f"latency is a time in seconds, 0 or more, got {self.latency}")

    def __repr__(self) -> str:
        known = "" if self.latency is None else f", latency={self.latency}"
        return f"Auto(width={self.width}{known})"

    def start(self, size: int, seed: int, data: Any = None) -> AutoChooser:
        """A chooser that has no objective to compare candidates by and uses a safe one; see `begin`."""
        return self.begin(size, seed, data, objective=False)

    def begin(
        self,
        size: int,
        seed: int,
        data: Any = None,
        cost: RoundCost = COMPILED,
        *,
        depth: int = 1,
        objective: bool = True,
        learns: bool = True,
        free: bool = False,
    ) -> AutoChooser:
        """The state before the first round; see `candidates` for the parameters."""
        if size < 1:
            raise PlanError("there is nothing to schedule: a program needs at least one parameter")
        found = self.candidates(size, data, cost, depth=depth, objective=objective, learns=learns, free=free)
        columns = columns_or_none(data, size)
        entries = np.ones(size) if columns is None else np.asarray(columns.length, np.float64)
        trials = Trials(found.tried, cost, float(entries.sum()), depth)
        return AutoChooser(trials, size, seed, data, entries, observes=objective, lines=found.lines())

    def candidates(self, size: int, data: Any, cost: RoundCost = COMPILED, **how: Any) -> Candidates:
        """The candidates for `size` jobs."""
        return candidates(size, data, cost, widest=min(self.width, size), **how)

    def explain(self) -> str:
        rule = "the candidate with most progress per work, tried again when progress falls"
        return f"auto: up to {self.width:,} together; {rule}"


def auto(width: int = 256, *, latency: float | None = None) -> Auto:
    """Choose the schedule from the correlation of the data and from progress; `schedule="auto"` is short for it.

    Candidates are cyclic rounds at the width that is safe for the spectral radius of the data, narrower ones, and
    prioritised rounds where choosing them costs little beside their updates. They are compared by the decrease of the
    objective per unit of work. Where no columns are given, rounds become wider only while the objective falls; without
    an objective, one safe candidate is used.

    Parameters
    ----------
    width : int, default 256
        The most jobs of a round.
    latency : float or None, default None
        Seconds that a message between nodes takes, which decides what a round costs; None: that of the runtime, 0 in
        one memory. The same latency and pipeline make the same choices on every runtime.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.auto(64)
    Auto(width=64)
    """
    return Auto(width, latency)


def ready_schedule(schedule: Any) -> Any:
    """Replace "auto" by `auto()`; return any other schedule unchanged."""
    return auto() if isinstance(schedule, str) and schedule == "auto" else schedule


class AutoChooser(Chooser):
    """The choosers of the candidates, one of them in use.

    The changes of a round go to the chooser that chose the round, even if another one is in use by then.
    """

    def __init__(
        self,
        trials: Trials,
        size: int,
        seed: int,
        data: Any,
        entries: Floats,
        *,
        observes: bool,
        lines: Sequence[str],
    ) -> None:
        self.trials, self._size, self._seed, self._data, self._entries = trials, size, seed, data, entries
        self._observes, self.lines = observes, tuple(lines)  # lines: the candidates in words
        self._started: dict[int, Chooser] = {}
        self._owners: deque[int] = deque()  # choosers of the rounds in flight, oldest first

    @property
    def due(self) -> bool:
        """Whether the objective is to be given to `observe` before the next round is chosen."""
        return self._observes and self.trials.due

    @property
    def learns(self) -> bool:
        """Whether any candidate uses how far jobs moved."""
        return any(one.learns for one in self.trials.candidates)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The choices made so far."""
        return tuple(self.trials.decisions)

    def observe(self, number: int, objective: float) -> None:
        """The objective after round `number`, the newest that was learned from."""
        self.trials.observe(number, objective)

    def chooser(self, k: int) -> Chooser:
        """The chooser of a candidate; it is started when it is first needed."""
        if k not in self._started:
            self._started[k] = self.trials.candidates[k].schedule.start(self._size, self._seed, self._data)
        return self._started[k]

    def choose(self) -> Ints:
        if self._observes or self.learns:
            self._owners.append(self.trials.current)
        return self.chooser(self.trials.current).choose()

    def learn(self, jobs: Ints, change: Floats) -> None:
        if not self._owners:
            return
        owner = self._owners.popleft()
        self.trials.account(float(self._entries[jobs].sum()), len(jobs), 1, owner)
        if self.trials.candidates[owner].learns:
            self.chooser(owner).learn(jobs, change)

    def arrays(self) -> dict[str, NDArray[Any]]:
        saved: dict[str, NDArray[Any]] = {"trials": self.trials.array(), "owners": np.array(self._owners, np.int64)}
        for k, chooser in self._started.items():
            saved |= {f"{k}/{name}": array for name, array in chooser.arrays().items()}
        return saved

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        if "trials" not in arrays:
            raise PlanError("this is the state of another schedule: its 'trials' are missing")
        self.trials.restore(arrays["trials"])
        self._owners = deque(arrays["owners"].tolist())
        self._started = {}
        parts: dict[int, dict[str, NDArray[Any]]] = {}
        for key, array in arrays.items():
            k, _, name = key.partition("/")
            if name:
                parts.setdefault(int(k), {})[name] = array
        for place, part in parts.items():
            self.chooser(place).restore(part)
