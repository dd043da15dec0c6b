"""`RowProblem`: linear classification by solvers that read one sample after another.

Several classes are several problems over the same rows, each one class against the rest.

    problem = RowProblem(DesignRows.of(X), y, np.array([1]), C * weight, "squared_hinge", bias=1.0)
    problem.arrays, problem.bounds, problem.run(crew, …)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.data.design.design import for_kernels
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step
from stretto.schedule.orders.rotation import independent
from stretto.solvers.softmax.rows import DesignRows

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PARTS = 16  # parts of the rows at most, whatever the number of threads
_ROUNDING = 2.0**-46  # of the loss at w = 0
_NUMBERS = 1 << 15  # numbers of X in a part, at least
_SWEEPS = 8  # of a pass over the rows, about


@dataclass(frozen=True, eq=False)
class RowProblem:
    """Σ weight·loss(y, z) + l1‖w‖₁ + ½·l2‖w‖² for each class against the rest; z = x·w + bias·w[p].

    The intercept w[p] has the L2 penalty alone, or none.
    """

    rows: DesignRows  # [n, p]
    y: Ints  # [n] class index
    positive: Ints  # [k] the class index that counts as +1 in each problem
    weight: Floats  # [n] C times the sample weight; samples of weight 0 are not read
    loss: str  # "hinge", "squared_hinge" or "logistic"
    bias: float  # value of the feature whose coefficient is the intercept; 0: no intercept
    l1: float = 0.0
    l2: float = 1.0
    free: bool = False  # the intercept has no penalty
    profile: str = "exact"

    @property
    def squared(self) -> bool:
        return self.loss == "squared_hinge"

    @cached_property
    def rounding(self) -> float:
        """A gap of this size is rounding, so solvers aim at no less."""
        # The gap of a squared loss is a sum of squares of what rounding leaves.
        return (_ROUNDING**2 if self.squared else _ROUNDING) * float(self.weight.sum())

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array]:
        """values, indices and indptr as `kernels/samples/sample_rows.py` takes them."""
        if self.rows.sparse:
            indptr, indices, values = self.rows.parts
            return values, indices, for_kernels(indptr.astype(np.int64, copy=False))
        return self.rows.parts[0].reshape(-1), np.empty(0, np.int32), np.empty(0, np.int64)

    @cached_property
    def bounds(self) -> Ints:
        """First row of each part: parts of about the same number of entries."""
        n, p = self.rows.shape
        work = np.diff(self.rows.parts[0]).astype(np.int64) + 8 if self.rows.sparse else np.full(n, p + 8, np.int64)
        before = np.concatenate([[0], np.cumsum(work)])
        count = max(1, min(_PARTS, int(before[-1]) // _NUMBERS))
        inside = np.searchsorted(before, np.linspace(0, before[-1], count + 1)[1:-1])
        return np.unique(np.concatenate([[0], inside, [n]])).astype(np.int64)

    @cached_property
    def gradient_bounds(self) -> Ints:
        """`bounds`, or fewer parts where a vector of all features for each would take more memory than X."""
        most = max(2, 2 * self.rows.entries // (self.rows.shape[1] + 1))
        step = -(-(len(self.bounds) - 1) // most)
        return np.unique(np.append(self.bounds[:-1:step], self.bounds[-1]))

    def run(self, crew: Crew, name: str, kernel: Any, visits: int, *args: Any) -> Floats:
        """Run one pass of a kernel over independent visits; return the result of each visit."""
        step = make_step(name, kernel, independent(visits), np.ones(visits, np.int64), *args)
        crew.run_pass(step, self.profile, _SWEEPS * self.rows.entries)
        return step.out
