"""Prioritised schedule (`st.schedule.prioritised`): jobs that moved most first, and no conflicting jobs in a round.

A round of `width` jobs is made in three steps (Algorithm 2 of Kim et al., SMPFRAME, CMU-PDL-15-103):

1. Candidates, more than `width`: drawn without replacement with probability proportional to priority. The priority is
   `by` of the job's last change, (Δβ)² by default. Jobs that never ran come first, so that the first sweep reaches all
   jobs. Jobs in flight in another round are left out.
2. An independent set: candidates are tested in order of priority. A candidate is taken if its correlation with all
   jobs taken before is below the threshold. The same holds for every moving job of a round in flight, since the
   candidate would not read the change of that job.
3. The floor: jobs that stopped moving may have to move again. A share of the rounds after the first sweep, the floor,
   repeats the rounds of the first sweep in turn; so does every round for which no job moves or no candidate is taken.
   These rounds are known to be independent sets, so they are cheap. They leave out only jobs in flight, so every job
   runs within `bound(size)` rounds in any case.

With Q schedulers, job j belongs to scheduler j mod Q. The schedulers choose in turn, each from its own jobs, so that
they can choose at the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from stretto.errors import PlanError

from .checks import function, number, whole
from .chooser import Conflicts, LearningChooser, Priority, check_width, named, new_choice
from .columns import columns_of, correlation, table
from .spec import Floats, Schedule


def delta_squared(change: Floats) -> Floats:
    """The square of the last change: a priority for `prioritised`. What moved far is far from converged.

    Parameters
    ----------
    change : ndarray [k]
        Last change of each job.

    Returns
    -------
    ndarray [k]

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> st.schedule.delta_squared(np.array([-2.0, 0.5])).tolist()
    [4.0, 0.25]
    """
    return change * change


@dataclass(frozen=True, repr=False)
class Prioritised(Schedule):
    """The jobs that move most, if they do not disturb each other; see `prioritised` for the fields."""

    width: int = 64
    by: Priority = delta_squared
    candidates: int | None = None
    conflicts: Conflicts | None = correlation
    threshold: float = 0.1
    sample: int | None = None
    floor: float = 0.3
    schedulers: int = 1
    cache: int = 1 << 22

    def __post_init__(self) -> None:
        check_width(self.width)
        for name in ("candidates", "sample", "schedulers", "cache"):
            if (value := getattr(self, name)) is not None or name in {"schedulers", "cache"}:
                whole(name, value)
        for name in ("floor", "threshold"):
            number(name, getattr(self, name))
        function("by", self.by, "change")
        if self.conflicts is not None:
            function("conflicts", self.conflicts, "candidates, data")
        if self.candidates is not None and self.candidates < self.width:
            raise PlanError(
                f"a round of {self.width} needs at least as many candidates, got candidates={self.candidates}"
            )
        if not 0 < self.floor < 1:
            raise PlanError(f"floor is a share of the rounds, between 0 and 1, got {self.floor}")
        if not self.threshold > 0:
            raise PlanError(f"threshold must be above 0, or nothing could go together, got {self.threshold}")
        if self.schedulers < 1:
            raise PlanError(f"at least one scheduler has to choose, got schedulers={self.schedulers}")
        if self.sample is not None and self.sample < 1:
            raise PlanError(f"correlations need at least one row to be sampled, got sample={self.sample}")
        if self.cache < 1:
            raise PlanError(f"cache holds at least one pair, got {self.cache}")

    @property
    def drawn(self) -> int:
        """Candidates of a round."""
        return 2 * self.width if self.candidates is None else self.candidates

    def bound(self, size: int, pipeline: int = 1) -> int:
        """The number n for which every job is in one of any n consecutive rounds, from the first on.

        >>> prioritised(width=64, floor=0.25).bound(8000)
        40001
        """
        queues = self.schedulers
        own = -(-size // queues)
        return queues * (own + math.ceil(own / self.floor) + -(-pipeline // queues))

    def start(self, size: int, seed: int, data: Any = None) -> LearningChooser:
        from stretto.kernels.rounds.chooser_state import PRIORITISED

        if self.schedulers > max(1, size):
            raise PlanError(f"{self.schedulers} schedulers cannot share out {size} jobs; take at most as many")
        choice = new_choice(
            PRIORITISED, size, seed, min(self.width, size),
            candidates=min(self.drawn, size), schedulers=self.schedulers,
            floor=self.floor, threshold=self.threshold, moving=math.isqrt(self.cache),
        )  # fmt: skip
        by = None if self.by is delta_squared else self.by
        if self.conflicts is not correlation:
            return LearningChooser(choice, by=by, conflicts=self.conflicts, data=data)
        if data is None:
            raise PlanError(
                "conflicts by correlation need the data: one column for each job. Pass them, a function "
                "conflicts(candidates, data) of your own, or conflicts=None to go by priority alone"
            )
        any_long = None
        if hasattr(data, "any_long"):  # columns of one scheduler, see `scheduler_share`
            data, any_long = data.whole(), data.any_long
        columns = columns_of(data)
        if columns.size != size:
            raise PlanError(f"there are {size} jobs and {columns.size} columns of data; each job needs its own column")
        tools = table(
            columns, seed, sample=self.sample, schedulers=self.schedulers, width=min(self.width, size),
            any_long=any_long,
        )  # fmt: skip
        return LearningChooser(choice, tools, by=by)

    def explain(self) -> str:
        rule = "conflicts ignored"
        if self.conflicts is not None:
            rule = f"those with a {named(self.conflicts)} below {self.threshold:g} together"
        chosen = f"prioritised by {named(self.by)}: up to {self.width} of {self.drawn} candidates, {rule}"
        several = f"; {self.schedulers} schedulers in turn" if self.schedulers > 1 else ""
        return f"{chosen}; {self.floor:.0%} of the rounds for a walk over all{several}"

    def __repr__(self) -> str:
        conflicts = None if self.conflicts is None else named(self.conflicts)
        return (
            f"Prioritised(width={self.width}, by={named(self.by)}, candidates={self.drawn}, conflicts={conflicts}, "
            f"threshold={self.threshold}, sample={self.sample}, floor={self.floor}, schedulers={self.schedulers})"
        )


def prioritised(
    width: int = 64,
    *,
    by: Priority = delta_squared,
    candidates: int | None = None,
    conflicts: Conflicts | None = correlation,
    threshold: float = 0.1,
    sample: int | None = None,
    floor: float = 0.3,
    schedulers: int = 1,
    cache: int = 1 << 22,
) -> Prioritised:
    """Jobs that moved most come first, and jobs that would disturb each other do not run together.

    Parameters
    ----------
    width : int, default 64
        The most jobs of a round.
    by : callable, default delta_squared
        by(change [k]) -> priority [k], at least 0.
    candidates : int or None, default None
        Jobs that are drawn and compared for a round; None for 2·width.
    conflicts : callable or None, default correlation
        conflicts(candidates [L], data) -> [L, L], compared with `threshold`. `correlation` is compiled in; None goes by
        priority alone.
    threshold : float, default 0.1
        Jobs whose conflict is larger do not run together.
    sample : int or None, default None
        Rows that long columns are compared on; None: 512 for sparse data and 256 for dense data, if there are more.
    floor : float, default 0.3
        Share of rounds that go through all jobs in turn.
    schedulers : int, default 1
        Choosers that share the jobs.
    cache : int, default 4194304
        Pairs whose correlation is remembered; changes no result.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.prioritised(width=32, threshold=0.2).drawn
    64
    """
    return Prioritised(width, by, candidates, conflicts, threshold, sample, floor, schedulers, cache)
