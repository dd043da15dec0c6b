"""`Plan`: the frozen plan of a run over a block grid, with its fingerprint (logical part) and runtime (physical part).

The **logical** plan holds the program, its parameters, the grid, the order of visits, the seed, the profile and the
digest of the data. Its hash is the **fingerprint**: same fingerprint, same bits. The **physical** plan holds the
runtime, the number of workers and the memory budget. It may change between runs, or during one, without changing the
result.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretto.cached import cached_property
from stretto.data.partition import BlockPartition
from stretto.schedule.orders.bound import Bound, bound
from stretto.schedule.orders.order import Ints, Order

from .arrays import Array, StepSpec
from .cost import Cost
from .planned import BasePlan, Runner

GRADES = ("identical", "replayable", "statistical")


@dataclass(frozen=True, eq=False)
class Logical:
    """Everything that can change a result."""

    program: str  # such as "mf/sgd"
    parameters: tuple[tuple[str, Any], ...]  # settings of the program, by name
    data: str  # digest of the entries
    seed: int  # of random numbers
    profile: str  # numeric profile
    width: int  # blocks that may be processed at a time
    order: Order  # of the visits
    rows: BlockPartition  # the blocks of rows
    cols: BlockPartition  # the blocks of columns

    @property
    def settings(self) -> dict[str, Any]:
        """What the fingerprint is made of, by name, in values that can be printed and saved as JSON."""
        found = {name: _plain(value) for name, value in self.parameters}
        found |= {"program": self.program, "seed": self.seed, "profile": self.profile, "width": self.width}
        places = hashlib.sha256()
        for array in (self.order.row_block, self.order.col_block, self.rows.place, self.cols.place):
            places.update(np.ascontiguousarray(array).tobytes())
        return found | {
            "data digest": self.data,
            "order": self.order.name,
            "grid": f"{len(self.rows.bounds) - 1} × {len(self.cols.bounds) - 1} blocks",
            "digest of the blocks": places.hexdigest()[:16],
        }

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of all of the above."""
        digest = hashlib.sha256()
        head = [self.program, self.parameters, self.data, self.seed, self.profile, self.width, self.order.name]
        digest.update(json.dumps(head, sort_keys=True, default=str).encode())
        for array in (self.order.row_block, self.order.col_block, self.rows.place, self.rows.bounds):
            digest.update(np.ascontiguousarray(array).tobytes())
        for array in (self.cols.place, self.cols.bounds):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


@dataclass(frozen=True)
class Physical:
    """Where a plan runs; changes no result."""

    runtime: str = "threads"  # name of the runtime
    workers: int = 1  # threads or processes
    memory: int | None = None  # budget in bytes; None keeps everything in memory
    tile: int | None = None  # blocks along one side of the part of the grid held at a time; None holds all


@dataclass(frozen=True)
class PlanSettings:
    """What a planner of a grid needs besides its problem and the data."""

    seed: int
    profile: str  # numeric profile
    width: int  # blocks that may be processed at a time
    physical: Physical


@dataclass(frozen=True, eq=False, repr=False)
class Plan(BasePlan):
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

    logical: Logical
    steps: tuple[StepSpec, ...]  # what an epoch runs; each names its kernel and arrays
    weight: Ints  # [V] entries of each visit
    cost: Cost
    physical: Physical = field(default_factory=Physical)
    grade: str = "identical"
    waves: tuple[Ints, ...] = ()  # visits that run together, one wave after the other; none: all are one wave
    axes: tuple[str, ...] = (
        "row",
        "column",
    )  # what the rows and columns of the grid are called; "" where there is none
    runner: Runner | None = None  # what `run` calls; None: the plan belongs to a run that has been made

    @property
    def fingerprint(self) -> str:
        """A short hash of everything that can change a number."""
        return self.logical.fingerprint

    @property
    def settings(self) -> dict[str, Any]:
        """What the fingerprint is made of, by name."""
        return self.logical.settings

    @property
    def title(self) -> str:
        """The plan in a few words, without its fingerprint."""
        from .explain import place

        shape = f"{len(self.logical.rows):,} × {len(self.logical.cols):,}"
        return f"{self.logical.program} on {shape}, {self.cost.entries:,} entries, {self.grade}, {place(self)}"

    @property
    def order(self) -> Order:
        """The order of the visits."""
        return self.logical.order

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The arrays of all steps by name, as the first step that uses them sees them; numbers are left out."""
        found: dict[str, Array] = {}
        for step in self.steps:
            for name, array in step.arrays.items():
                if array.kind != "number":
                    found.setdefault(name, array)
        return found

    def bound(self, workers: int | None = None) -> Bound:
        """How busy the order can keep n workers.

        Parameters
        ----------
        workers : int or None, default None
            Workers; None for those of the plan.
        """
        return bound(self.order, self.weight, workers or self.physical.workers, self.waves)

    def explain(self) -> str:
        """The plan in words: a heading, then one fact a line."""
        from .explain import explain

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
        from .draw import draw

        return draw(self, path, workers)
