"""Working-set schedule (`st.schedule.working_sets`): solve for columns near their constraints; drop proven zeros.

The priority of a coordinate is the distance of its dual constraint from being active, (l1 − |pull|)/norm: a coordinate
beyond its constraint must move, one close to it may have to. If the duality gap proves a coordinate zero at the optimum
(a gap-safe sphere), it leaves the pool permanently. In contrast to `prioritised`, no floor is needed.

    spec = working_sets(first=200, growth=2.0)
    chosen = spec.choose(support, distance, samples)      # column numbers, the support among them

As a schedule, rounds of `width` jobs sweep over the set until it is solved well enough, then a new set is chosen.
`st.SparseRegression` chooses the set by distance and screens by the gap; other programs choose the jobs that still
move (`set_chooser`).
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

WIDEST = 256  # the most jobs of a round if the width is derived from the data


@dataclass(frozen=True)
class WorkingSets(Schedule):
    """Working sets; see `working_sets`. Estimators solve for a whole set at once and ignore `width`."""

    first: int | None = None  # columns of the first set; None: derived from the number of columns
    growth: float = 2.0  # columns of the next sets, as a multiple of the support
    screen: bool = True  # drop columns that the duality gap proves to be zero
    width: int | None = None  # jobs of a round; None: as many as are safe for the columns of the set, 1 without columns

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 1:
            raise PlanError(f"first must be at least 1; got {self.first}")
        if not self.growth > 1.0:
            raise PlanError(f"growth must be more than 1, or no set would ever grow; got {self.growth}")
        if self.width is not None:
            check_width(self.width)

    def start(self, size: int, seed: int, data: Any = None) -> SetChooser:
        """A chooser that selects the jobs that still move."""
        columns = columns_or_none(data, size)
        width = self.width
        if width is None:
            width = 1 if columns is None else measured_width(columns, WIDEST)[1]
        return SetChooser(size, min(size, width))

    def explain(self) -> str:
        """The spec in words."""
        begin = "a set by the number of features" if self.first is None else f"{self.first:,} features"
        screened = "columns that the gap proves zero are dropped" if self.screen else "no column is dropped"
        return f"working sets: {begin} first, then {self.growth:g} times the support, nearest to entering; {screened}"

    def start_size(self, columns: int, sparse: bool) -> int:
        """Size of the first set.

        The Gram matrix of k dense columns costs about as much as one pass over all columns when k is √columns. A few
        times that is still cheap and saves passes. A pass over sparse columns is cheap.
        """
        if self.first is not None:
            return self.first
        return 100 if sparse else max(100, int(2.0 * np.sqrt(columns)))

    def choose(self, support: Ints, distance: Floats, samples: int, *, sparse: bool = False) -> Ints:
        """The columns to solve for next, in ascending order. The support is always included.

        A solution rarely needs more columns than there are samples, so sets above twice that size grow slowly. With an
        l2 penalty or equal columns a solution may need more, so growth never stops.

        Parameters
        ----------
        support : array of int
            Columns with a coefficient other than 0.
        distance : array [p]
            Distance of each column to its constraint: negative beyond it, +∞ for a column that left the pool.
        samples : int
            Number of samples.
        sparse : bool
            Whether columns are sparse.
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
        # Ties are broken by number, so that the set does not depend on the sort.
        limit = np.partition(nearer, size - 1)[size - 1]
        sure = np.flatnonzero(nearer < limit)
        tied = np.flatnonzero(nearer == limit)[: size - len(sure)]
        return np.sort(np.concatenate([sure, tied])).astype(np.int64)

    def safe(self, pull: Floats, norm: Floats, l1: Floats, radius: float) -> NDArray[np.bool_]:
        """[p] which columns are proven zero. pull [p]: of a feasible dual point, at most `radius` from the optimum."""
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
