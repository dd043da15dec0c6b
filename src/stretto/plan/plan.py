"""`Plan`: the frozen plan of a run over a block grid, with its fingerprint (logical part) and runtime (physical part).

The **logical** plan holds the program, its parameters, the grid, the order of visits, the seed, the profile and the
digest of the data. Its hash is the **fingerprint**: same fingerprint, same bits. The **physical** plan holds the
runtime, the number of workers and the memory budget. It may change between runs, or during one, without changing the
result.
"""

from __future__ import annotations

from dataclasses import dataclass

from .draw import draw
from .explain import explain, place
from .grid_plan import GRADES, GridPlan, Logical, Physical

__all__ = ["GRADES", "Logical", "Physical", "Plan"]  # other packages, and pickled models, name them here


@dataclass(frozen=True)
class PlanSettings:
    """What a planner of a grid needs besides its problem and the data."""

    seed: int
    profile: str  # numeric profile
    width: int  # blocks that may be processed at a time
    physical: Physical


@dataclass(frozen=True, eq=False, repr=False)
class Plan(GridPlan):
    """What a run over a grid of blocks will do: arrays, steps, order, grade and cost. Nothing is allocated yet.

    `model.plan(X)` returns one. `print(plan)` explains it, `plan.run()` runs it.

    Parameters
    ----------
    logical : Logical
        Everything that can change a number: program, parameters, data, seed, blocks, order.
    steps : tuple of StepSpec
        What an epoch runs; each step names its kernel and arrays.
    weight : ndarray of int [V]
        Entries of each visit.
    cost : Cost
        Estimated bytes and operations.
    physical : Physical, default Physical()
        Where it runs; changes no number.
    grade : str, default "identical"
        What it promises: "identical", "replayable" or "statistical".
    waves : tuple of ndarray, default ()
        Visits that may run together, one wave after the other; () if all visits are one wave.
    axes : tuple of str, default ("row", "column")
        Names of the rows and columns of the grid; "" where there is none.
    runner : callable or None, default None
        What `run` calls; None for a plan that has run already.

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> plan = st.MatrixFactorization(4, max_iter=5, random_state=0).plan(X)
    >>> plan.grade, len(plan.fingerprint)
    ('identical', 16)
    >>> print(plan.explain().splitlines()[0])  # doctest: +ELLIPSIS
    plan ...
    """

    @property
    def title(self) -> str:
        """The plan in a few words, without its fingerprint."""
        shape = f"{len(self.logical.rows):,} × {len(self.logical.cols):,}"
        return f"{self.logical.program} on {shape}, {self.cost.entries:,} entries, {self.grade}, {place(self)}"

    def explain(self) -> str:
        """The plan in words: a heading, then one fact a line."""
        return explain(self)

    def draw(self, path: str | None = None, workers: int | None = None) -> str:
        """The block grid coloured by step and worker, as SVG text.

        Parameters
        ----------
        path : str or None, default None
            File to write it to (.svg or .png).
        workers : int or None, default None
            Workers to colour by; None for those of the plan.
        """
        return draw(self, path, workers)
