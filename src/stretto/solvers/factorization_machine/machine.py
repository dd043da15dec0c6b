"""`Machine`: the parameters of a factorization machine, one padded row for each feature, and its epochs.

machine = Machine.start(field, fields, k, spread=0.1, seed=0, profile="exact")
epochs = Epochs(machine, batches, y, mass, share, "logistic", crew)
epochs.run(order, steps)            # AdaGrad over the batches in this order; returns the loss
machine.scores(rows, crew)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core.claims import stopped
from stretto.kernels.core.waves import FIRST
from stretto.kernels.factorization_machine import epoch as kernels
from stretto.kernels.numeric.lanes import aligned, padded
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.pass_control import UnstartedPass
from stretto.runtime.blocks.step import BlockStep
from stretto.schedule.orders.wavefront import chain

from .batches import Batches, SampleRows, run_parts

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

_SHARED = 1 << 15  # multiplications of a batch from which on threads share it; meeting after less takes longer


@dataclass(frozen=True)
class StepSizes:
    """How an epoch changes parameters."""

    rate: float  # AdaGrad's learning rate of coefficients and factors
    rate_bias: float  # that of the intercept; 0: it is not learned
    l2: float  # penalty of a coefficient, for each sample that has its feature
    l2_factors: float  # that of factors


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that a fit does not learn from."""

    rows: SampleRows
    y: Floats  # [n]
    mass: Floats  # [n]


@dataclass(frozen=True, eq=False)
class Machine:
    """Parameters and AdaGrad's sums; p features, F fields, k factors for each field."""

    k: int
    field: NDArray[np.int32]  # [p] of each feature; zeros without fields
    fields: int
    weights: Singles  # [p, width]: factors of each field, then the coefficient, then zeros
    squares: Singles  # [p, width]
    bias: Floats  # [2] intercept, its squares
    profile: str = "exact"

    @staticmethod
    def start(field: NDArray[np.int32], fields: int, k: int, *, spread: float, seed: int, profile: str) -> Machine:
        """Coefficients of 0 and uniform factors of standard deviation spread / √k."""
        p = len(field)
        width = padded(fields * k + 1)
        weights, squares = aligned((p, width)), aligned((p, width))
        squares[...] = 1.0
        drawn = np.random.default_rng(seed).random((p, fields * k), np.float32)
        weights[:, : fields * k] = (drawn - np.float32(0.5)) * np.float32(math.sqrt(12.0 / k) * spread)
        return Machine(k, field, fields, weights, squares, np.array([0.0, 1.0]), profile)

    @property
    def width(self) -> int:
        return int(self.weights.shape[1])

    @property
    def lanes(self) -> int:
        """Place of the coefficient in a row: the number of factors before it."""
        return self.fields * self.k

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state for a checkpoint."""
        return {"weights": self.weights, "squares": self.squares, "bias": self.bias}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `arrays` returned."""
        for name, array in self.arrays().items():
            array[...] = arrays[name]

    def copy(self) -> Machine:
        """A machine with the same parameters and memory of its own."""
        weights, squares = aligned(self.weights.shape), aligned(self.weights.shape)
        made = replace(self, weights=weights, squares=squares, bias=np.zeros(2))
        made.restore(self.arrays())
        return made

    def scores(self, rows: SampleRows, crew: Crew) -> Floats:
        """[n] z of every row."""
        bounds, size = rows.bounds, self.fields * self.width
        z, sums = np.empty(len(rows.starts) - 1), np.empty((len(bounds) - 1) * size, np.float32)
        work = len(rows.columns) * size
        run_parts(
            crew, "scores", kernels.scores_worker, self.profile, bounds, work, rows.starts, rows.columns, rows.values,
            self.field, self.fields, self.k, self.width, self.bias, self.weights.reshape(-1), sums, z,
        )  # fmt: skip
        return z

    def losses(self, held: HeldOut, loss: str, crew: Crew) -> Floats:
        """[n] weighted loss of each sample that is held out."""
        z, costs = self.scores(held.rows, crew), np.empty(len(held.y))
        code, bounds = kernels.CODES[loss], held.rows.bounds
        run_parts(
            crew, "costs", kernels.costs_worker, self.profile, bounds, 20 * len(z), code, held.y, held.mass, z, costs
        )
        return costs


class Epochs:
    """Runs epochs of a machine over batches; holds the memory that they share.

    Parameters
    ----------
    machine : Machine
        Its arrays are changed in place.
    batches : Batches
        The samples.
    y, mass : [n] array
        Target (0 or 1 for the logistic loss) and weight of each sample, in the order of the batches.
    share : [p] array of float32
        Multiplies the penalties of each feature.
    loss : str
        "squared" or "logistic".
    crew : Crew
        Threads.
    """

    def __init__(
        self, machine: Machine, batches: Batches, y: Floats, mass: Floats, share: Singles, loss: str, crew: Crew
    ) -> None:
        self.machine, self.crew = machine, crew
        self._data = (*batches.arrays[:4], y, mass, *batches.arrays[4:], machine.field)
        self._share, self._loss = share, kernels.CODES[loss]
        size = batches.largest
        memory = aligned((size * machine.fields * machine.width,)), np.zeros(size, np.float32)
        self._costs = np.zeros(len(batches) * kernels.SAMPLE_PARTS)
        self._memory = (*memory, self._costs)
        self._work = len(batches.entry_row) * machine.fields * machine.width // len(batches)
        self._unstarted = UnstartedPass(chain(1), np.ones(1, np.int64))
        self._ready = False

    def run(self, order: Ints, steps: StepSizes) -> float:
        """Visit the batches `order`; return the sum of the weighted losses of all samples."""
        machine, crew, kernel, out = self.machine, self.crew, kernels.epoch_worker, np.zeros(1)
        width = crew.width if self._work >= _SHARED else 1
        F, k, length, lane = machine.fields, machine.k, machine.width, machine.lanes
        mask, penalty, rate = (np.zeros(shape, np.float32) for shape in ((F, length), length, length))
        for f in range(F):
            mask[f, f * k : (f + 1) * k] = 1.0
        penalty[:lane], penalty[lane], rate[: lane + 1] = steps.l2_factors, steps.l2, steps.rate
        args = (
            width, np.zeros(FIRST + 2 * len(order), np.int64), order, *self._data, F, k, length, penalty,
            self._share, mask.reshape(-1), rate, self._loss, machine.bias, float(steps.rate_bias),
            machine.weights.reshape(-1), machine.squares.reshape(-1), *self._memory,
        )  # fmt: skip
        if not self._ready:  # so that it is compiled before the pass begins
            kernel[machine.profile](stopped(), 0, out, *args)
            self._ready = True
        self._costs[:] = 0.0
        step = BlockStep("epoch", kernel, chain(1), np.ones(1, np.int64), args, out, unstarted=self._unstarted)
        every, crew.width = crew.width, width
        try:
            crew.run(step, machine.profile, again=True)
        finally:
            crew.width = every
        return math.fsum(self._costs)
