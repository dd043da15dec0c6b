"""Problems with an L2 penalty alone and fewer samples than features, solved in the space of the rows.

The solution is a combination of the rows of X, so β = Xᵀα. With XXᵀ = LLᵀ, the problem on L [n, r], r ≤ n, has the same
objective and the same duality gap: Lγ are the predictions, and γ has the norm of β. It is much smaller. What it finds
is a start for the fit on all columns, whose first round proves it, or continues from it where rounding was too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.kernels.newton import row_space as kernels
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent
from stretto.solvers.linear.point import PreparedProblem
from stretto.solvers.linear.regression import Fit, RegressionProblem

Floats = NDArray[np.float64]

_PARTS, _COLUMNS = 16, 1024  # parts of the features, at most; features of a part, at least
_PANEL = 256  # rows of a visit
_ROWS = 1024  # samples up to which products of all pairs take less time than passes over the columns
_WIDER = 2  # features for each sample, at least
_TOLERANCE = 1e-13  # of the largest squared norm of a row: what is left of the others is rounding


def suits(setting: PreparedProblem, l1: float, l2: float) -> bool:
    """Whether a fit with these penalties starts from that of the smaller problem."""
    design = setting.problem.design
    n, p = design.shape
    wide = _WIDER * n <= p and n <= _ROWS
    plain = isinstance(design, Design) and not design.sparse and not setting.problem.positive
    return plain and wide and l1 == 0.0 and l2 > 0.0 and not setting.loss.quadratic


def reduced_start(setting: PreparedProblem, solve: Callable[[RegressionProblem], Fit]) -> Fit:
    """The solution of the smaller problem, in terms of all columns. solve: fit a problem with the same penalty."""
    columns, problem = setting.columns, setting.problem
    n, p = problem.design.shape
    size = -(-n // kernels.WIDTH) * kernels.WIDTH
    bounds, panels = parts(p, _PARTS, _COLUMNS), np.unique([*range(0, size, _PANEL), size])
    K = np.zeros((len(bounds) - 1, size, size))
    count = (len(bounds) - 1) * (len(panels) - 1)
    step = make_step(
        "products", kernels.products_worker, independent(count), np.ones(count, np.int64), bounds, panels,
        *columns.parts, setting.scale, K,
    )  # fmt: skip
    columns.crew.run_pass(step, setting.profile, p * size * size // 32)
    kernels.add_parts[setting.profile](K)
    L, pivot = np.zeros((n, n)), np.empty(n, np.int64)
    rank = kernels.factor[setting.profile](K[0], n, _TOLERANCE, np.empty(n), pivot, L)
    design = Design((n, rank), dense=np.asfortranarray(L[:, :rank]))
    found = solve(replace(problem, design=design, scale=None))
    alpha = np.zeros(n)
    alpha[pivot[:rank]] = _solve_transposed(L[pivot[:rank], :rank], found.coef)
    coef = np.empty(p)
    columns.price(np.arange(p, dtype=np.int64), alpha, coef)
    return replace(found, coef=coef / setting.scale**2)


def _solve_transposed(lower: Floats, right: Floats) -> Floats:
    """The solution of lowerᵀ x = right. No BLAS: its summation order depends on the processor."""
    x = right.copy()
    for m in range(len(x) - 1, -1, -1):
        x[m] /= lower[m, m]
        x[:m] -= x[m] * lower[m, :m]
    return x
