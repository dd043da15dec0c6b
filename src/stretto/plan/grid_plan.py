"""`GridPlan`: what a plan over a block grid holds; `Plan` adds its words and its picture."""

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


@dataclass(frozen=True, eq=False, repr=False)
class GridPlan(BasePlan):
    """The parts of a `Plan`, which documents the parameters."""

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
