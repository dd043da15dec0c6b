"""Problems with an L2 penalty alone and fewer samples than features, solved in the space of the rows.

The solution is a combination of the rows of X, so β = Xᵀα, and the problem depends on X only through K = XXᵀ, which has
the same objective and the same duality gap in terms of α. It is much smaller. What it finds is a start for the fit on
all columns, whose first round proves it, or continues from it where rounding was too large.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.kernels.newton import row_newton
from stretto.kernels.newton import row_space as kernels
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent
from stretto.solvers.linear.point import PreparedProblem
from stretto.solvers.linear.regression import Fit

Floats = NDArray[np.float64]

_PARTS, _COLUMNS = 16, 1024  # parts of the features, at most; features of a part, at least
_PANEL = 256  # rows of a visit
_ROWS = 1024  # samples up to which products of all pairs take less time than passes over the columns
_WIDER = 2  # features for each sample, at least
_CLOSER = 0.5  # share of the gap that the smaller problem is solved to: rounding takes some of the rest


def suits(setting: PreparedProblem, l1: float, l2: float) -> bool:
    """Whether a fit with these penalties starts from that of the smaller problem."""
    design = setting.problem.design
    n, p = design.shape
    wide = _WIDER * n <= p and n <= _ROWS
    plain = isinstance(design, Design) and not design.sparse and not setting.problem.positive
    return plain and wide and l1 == 0.0 and l2 > 0.0 and not setting.loss.quadratic


def reduced_start(setting: PreparedProblem, l2: float, gap: float, share: float, least: float, steps: int) -> Fit:
    """The solution of the smaller problem, in terms of all columns.

    gap, share, least : the fit's goal, min(gap, max(share · objective, least))
    steps : Newton steps, at most
    """
    columns, problem, crew, profile = setting.columns, setting.problem, setting.crew, setting.profile
    n, p = problem.design.shape
    size = -(-n // kernels.WIDTH) * kernels.WIDTH
    bounds, panels = parts(p, _PARTS, _COLUMNS), np.unique([*range(0, size, _PANEL), size])
    products = np.zeros((len(bounds) - 1, size, size))
    count = (len(bounds) - 1) * (len(panels) - 1)
    step = make_step(
        "products", kernels.products_worker, independent(count), np.ones(count, np.int64), bounds, panels,
        *columns.parts, setting.scale, products,
    )  # fmt: skip
    crew.run_pass(step, profile, p * size * size // 32)
    kernels.add_parts[profile](products)
    K = np.tril(products[0])
    del products
    K += np.tril(K, -1).T
    vectors, numbers = np.zeros((row_newton.VECTORS, size)), np.zeros(row_newton.NUMBERS)
    args = (
        K, problem.y, problem.weight, problem.intercept, l2, _CLOSER * gap, _CLOSER * share, least, steps,
        np.empty((size, size)), vectors, numbers,
    )  # fmt: skip
    step = make_step("newton", row_newton.fit_worker, independent(1), np.ones(1, np.int64), *args)
    crew.run_pass(step, profile, size**3 // 4)
    intercept, objective, left, made = numbers.tolist()
    if not math.isfinite(objective):
        vectors[row_newton.ALPHA], intercept = 0.0, setting.zero.at.b
    coef = np.empty(p)
    columns.price(np.arange(p, dtype=np.int64), vectors[row_newton.ALPHA, :n].copy(), coef)
    return Fit(coef / setting.scale**2, intercept, left, objective, 1 + int(made), int(made), False)
