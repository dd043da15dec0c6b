"""Array declarations of ALS and CCD++, the solvers that work row by row, then column by column.

A visit is one block of the rows that are solved. It reads their entries, writes their factors, and may read every row
of the other side: entries and factors of the solved side are partitioned, those of the other side are replicated. In
the other half of an epoch the sides change roles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.kernels.factorization import als, ccd
from stretto.kernels.numeric.lanes import padded
from stretto.plan.arrays import (
    Array,
    StepSpec,
    by_rows,
    by_visits,
    constant,
    number,
    per_visit,
    per_worker,
    replicated,
)
from stretto.plan.kernel_reference import named_kernel
from stretto.plan.plan import Logical
from stretto.schedule.orders.order import Ints

from .problem import FactorizationProblem

SIDES = ("rows", "columns")
_FACTORS, _BIASES = ("W", "H"), ("b", "c")


class _Side:
    """Arrays shared by the steps that solve rows (0) or columns (1). counts [m]: entries of each row."""

    def __init__(self, problem: FactorizationProblem, logical: Logical, counts: Ints, side: int) -> None:
        cut, other = (logical.rows, logical.cols) if side == 0 else (logical.cols, logical.rows)
        self.problem, self.side, self.bounds = problem, side, cut.bounds
        self.solved, self.fixed = len(cut), len(other)
        self._at = np.concatenate([[0], np.cumsum(counts)])[cut.bounds]
        self._rows = "row" if side == 0 else "col"

    def entries(self, values: str = "values", *, written: bool = False) -> tuple[Array, ...]:
        """Bounds, first entry of each row, indices of the other side, and values."""
        total, name = int(self._at[-1]), self._rows
        return (
            constant(f"{name}_bounds"),
            by_visits(f"{name}_ptr", self.bounds[:-1], self.bounds[1:] + 1, dtype="<i8", shape=(self.solved + 1,)),
            by_visits(f"{name}_indices", self._at, dtype="<i4", shape=(total,)),
            by_visits(f"{name}_{values}", self._at, written=written, dtype="<f4", shape=(total,)),
        )

    def weights(self) -> Array:
        """Weights of the entries; without them an array of length 0."""
        name, total = f"{self._rows}_weights", int(self._at[-1])
        return by_visits(name, self._at, dtype="<f4", shape=(total,)) if self.problem.weights else constant(name)

    def factors(self, *, written: bool = True) -> Array:
        """Factors of the solved side."""
        width = padded(self.problem.rank + self.problem.biases)
        shape = (self.solved, width)
        return by_rows(_FACTORS[self.side], self.bounds, written=written, dtype="<f4", shape=shape)

    def others(self) -> Array:
        """Factors of the other side."""
        width = padded(self.problem.rank + self.problem.biases)
        return replicated(_FACTORS[1 - self.side], dtype="<f4", shape=(self.fixed, width))

    def column(self, name: str, *, written: bool = True) -> Array:
        """[m] one number for each solved row."""
        return by_rows(name, self.bounds, written=written, dtype="<f4", shape=(self.solved,))


def specs_als(problem: FactorizationProblem, logical: Logical, counts: tuple[Ints, Ints]) -> dict[str, StepSpec]:
    """The steps of ALS by name."""
    cg = problem.linear_solver == "cg"
    found = {}
    for side, name in enumerate(SIDES):
        here = _Side(problem, logical, counts[side], side)
        more = ("inner",) if cg else ("base", "own_base")
        numbers = [number(k) for k in ("mean", "reg", "own", "own_reg", "alpha")]
        rest = (here.others(), replicated("gram"), replicated(_BIASES[1 - side]), *numbers)
        rest += (constant("prior"), *map(number, more), per_worker("scratch"))
        worker = als.cg_worker if cg else als.cholesky_worker
        arguments = (*here.entries(), here.weights(), here.factors(), *rest)
        found[f"solve {name}"] = StepSpec(f"solve {name}", named_kernel(worker), arguments)
        if problem.implicit:
            gram = (constant("bounds"), here.factors(written=False), per_visit("partial"))
            found[f"gram {name}"] = StepSpec("gram", named_kernel(als.gram_worker), gram)
    here = _Side(problem, logical, counts[0], 0)
    both = (here.factors(written=False), here.others())
    if problem.implicit:
        loss = (*here.entries(), *both, replicated("gram"), number("alpha"), per_worker("scratch"))
        found["loss"] = StepSpec("loss", named_kernel(als.implicit_worker), loss)
    else:
        biases = (here.column("b", written=False) if problem.biases else constant("b"), replicated("c"))
        loss = (*here.entries(), here.weights(), *both, *biases, number("mean"))
        found["loss"] = StepSpec("loss", named_kernel(als.squared_worker), loss)
    return found


def specs_ccd(problem: FactorizationProblem, logical: Logical, counts: tuple[Ints, Ints]) -> dict[str, StepSpec]:
    """The steps of CCD++ by name; steps of one name process the pairs of columns in turn."""
    found = {}
    for side, name in enumerate(SIDES):
        here = _Side(problem, logical, counts[side], side)
        reg: Any = (number("reg"), number("weighted"))
        turned = (here.column("x"), replicated("y"), replicated("old_y"))
        last = (here.column("last_x", written=False), replicated("last_y"))
        # Sweeps only read the residual, but other steps change it, so it is not declared as an entry that is sent once.
        residual = here.entries("residual", written=True)
        sweep = (*residual, here.column("x"), replicated("y"), *reg)
        for step, kernel, arguments in (
            ("turn", ccd.turn_worker, (*residual, *turned, *last, *reg)),
            ("sweep", ccd.sweep_worker, sweep),
            ("settle", ccd.settle_worker, (*residual, *last)),
        ):
            found[f"{step} {name}"] = StepSpec(f"{step} {name}", named_kernel(kernel), arguments)
    return found
