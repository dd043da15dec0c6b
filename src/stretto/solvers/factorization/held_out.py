"""Error of predictions on held-out ratings: RMSE, mean absolute error or log loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.kernels.factorization.loss_codes import CODES
from stretto.kernels.factorization.predict import cost_worker
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import EntryArrays
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.rotation import independent

from .problem import Factors

_PARTS = 64


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out ratings, as positions in the plan's order; −1 for a row or column that is not in the training data."""

    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: NDArray[np.float32]
    bounds: Ints

    @classmethod
    def out(cls, data: EntryArrays, rows: BlockPartition, cols: BlockPartition) -> HeldOut:
        """Convert held-out data to the order of a plan with these partitions."""
        return cls(
            _places(data.rows, rows), _places(data.cols, cols), data.values, parts(len(data.values), _PARTS, 8192)
        )

    def cost(self, factors: Factors, loss: str, crew: Crew) -> float:
        """Mean loss of the predictions, in the units of the ratings."""
        if not len(self.values):
            return math.nan
        values = (
            self.values
            if factors.scale == 1.0 and factors.mean == 0.0
            else (self.values - np.float32(factors.mean)) / np.float32(factors.scale)
        )
        step = make_step(
            "measure",
            cost_worker,
            independent(len(self.bounds) - 1),
            np.diff(self.bounds),
            self.bounds,
            self.rows,
            self.cols,
            values,
            factors.W.array,
            factors.H.array,
            factors.b.array,
            factors.c.array,
            np.float32(0.0),
            CODES[loss],
        )
        crew.run(step, "exact")
        return mean_cost(step.total(), len(self.values), loss, factors.scale)

    def metrics(self, factors: Factors, loss: str, crew: Crew) -> dict[str, float]:
        """The held-out error under its standard name."""
        return named("test", self.cost(factors, loss, crew), loss)


def _places(index: NDArray[np.integer], cut: BlockPartition) -> NDArray[np.int32]:
    known = (index >= 0) & (index < len(cut))
    return np.where(known, cut.place[np.where(known, index, 0)], np.int32(-1)).astype(np.int32)


def mean_cost(total: float, entries: int, loss: str, scale: float) -> float:
    """The mean loss in the units of the ratings, from the total in standardised units."""
    power = {"squared": 2, "absolute": 1}.get(loss, 0)
    return total / entries * scale**power


def named(prefix: str, cost: float, loss: str) -> dict[str, float]:
    """The standard metric of a loss: root mean squared error, mean absolute error, log loss; else the loss itself."""
    if loss == "squared":
        return {f"{prefix}_rmse": math.sqrt(cost)}
    return {f"{prefix}_{ {'absolute': 'mae', 'logistic': 'logloss'}.get(loss, 'loss') }": cost}
