"""Working sets: which coordinates of a sparse regression are worth solving for together, and which never will be.

The same idea as `prioritised`, with certificates in place of guesses. A coordinate's urgency is how near its constraint
in the dual is to being active, (l1 − |pull|)/norm: what has crossed it must move, what is close may have to. Where the
duality gap proves a coordinate zero at the optimum (a gap-safe sphere), it leaves the pool for good; a floor on
priorities, the other way to forget nothing, is not needed.

    spec = working_sets(first=200, growth=2.0)
    chosen = spec.choose(support, distance, samples)      # column numbers, the support among them

As a schedule, rounds of `width` jobs walk over the set until it is solved well enough, then a new set is chosen.
`st.SparseRegression` chooses it by distance and screens by the gap; any other program by what still moves
(`set_chooser`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError

from .automatic.candidates import columns_or_none, measured_width
from .chooser import check_width
from .set_chooser import SetChooser
from .spec import Floats, Ints, Schedule

WIDEST = 256  # jobs of a round, where the width is measured


@dataclass(frozen=True)
class WorkingSets(Schedule):
    """first: how many are solved for at the start; None goes by the number of columns. growth: how many times the
    support is solved for afterwards. screen: let go of what is proven zero. width: jobs of a round; None: as many as
    are safe for the columns of the set, and 1 where there are none. Estimators solve for a whole set at once.
    """

    first: int | None = None
    growth: float = 2.0
    screen: bool = True
    width: int | None = None

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 1:
            raise PlanError(f"first must be at least 1; got {self.first}")
        if not self.growth > 1.0:
            raise PlanError(f"growth must be more than 1, or no set would ever grow; got {self.growth}")
        if self.width is not None:
            check_width(self.width)

    def start(self, size: int, seed: int, data: Any = None) -> SetChooser:
        """A chooser that goes by what still moves."""
        columns = columns_or_none(data, size)
        width = self.width
        if width is None:
            width = 1 if columns is None else measured_width(columns, WIDEST)[1]
        return SetChooser(size, min(size, width))

    def explain(self) -> str:
        """The spec in words."""
        begin = "a set by the number of features" if self.first is None else f"{self.first:,} features"
        screened = "what the gap proves zero leaves for good" if self.screen else "nothing is let go of"
        return f"working sets: {begin} first, then {self.growth:g} times the support, nearest to entering; {screened}"

    def start_size(self, columns: int, sparse: bool) -> int:
        """Size of the first set. Inner products of k dense columns cost about as much as one look at all of them when k
        is √columns; a few times that is still cheap and saves looks. Sparse columns are quickly looked at.
        """
        if self.first is not None:
            return self.first
        return 100 if sparse else max(100, int(2.0 * np.sqrt(columns)))

    def choose(self, support: Ints, distance: Floats, samples: int, *, sparse: bool = False) -> Ints:
        """The columns to solve for next, in rising order. distance [p]: of each column to its constraint, negative
        beyond it, +∞ for a column that is out of the pool; the support is always taken. A solution rarely needs more
        columns than there are samples, so from twice that on sets grow slowly; with l2, or where columns are the same,
        it may, so they never stop.
        """
        held = len(support)
        grown = max(held + 1 + held // 4, min(int(self.growth * held), 2 * samples))
        size = max(self.start_size(len(distance), sparse), grown)
        nearer = distance.copy()
        nearer[support] = -np.inf
        pool = int(np.count_nonzero(nearer < np.inf))
        size = min(size, pool)
        if size == 0:
            return np.empty(0, np.int64)
        # Ties by number, so that the set is the same whatever the sort does.
        limit = np.partition(nearer, size - 1)[size - 1]
        sure = np.flatnonzero(nearer < limit)
        tied = np.flatnonzero(nearer == limit)[: size - len(sure)]
        return np.sort(np.concatenate([sure, tied])).astype(np.int64)

    def safe(self, pull: Floats, norm: Floats, l1: Floats, radius: float) -> NDArray[np.bool_]:
        """[p] which columns are proven zero; pull [p]: of a feasible dual point, at most `radius` from the best."""
        return pull + norm * radius < l1


def working_sets(
    first: int | None = None, *, growth: float = 2.0, screen: bool = True, width: int | None = None
) -> WorkingSets:
    """Solve for a growing set of the columns nearest to their constraints, and drop columns that are proven zero.

    Parameters
    ----------
    first : int or None, default None
        Columns of the first set; None goes by the number of columns.
    growth : float, default 2.0
        Columns of the next sets, as a multiple of the support.
    screen : bool, default True
        Drop columns that the duality gap proves to be zero.
    width : int or None, default None
        Jobs of a round; None: as many as are safe for the columns of the set. Estimators do not use it.

    Returns
    -------
    WorkingSets

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.working_sets(growth=3.0).growth
    3.0
    """
    return WorkingSets(first, growth, screen, width)
