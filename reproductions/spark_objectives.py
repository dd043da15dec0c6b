"""Objectives that both programs minimise, and judges of both: NumPy functions of what came back.

MLlib scales the target of a linear regression to standard deviation 1 and multiplies back, as glmnet does. Its L1
penalty survives this unchanged, its L2 penalty comes out divided by the standard deviation s of the target: in the
units of the data MLlib minimises

    (1/2n)‖y − Xw − b‖² + r·e·‖w‖₁ + ½·(r/s)·(1 − e)·‖w‖²        r = regParam, e = elasticNetParam

without standardisation of features. `spark_penalty` gives the r and e whose objective is that of `st.ElasticNet`. The
solver "l-bfgs" takes s with n − 1, "normal" with n. For logistic regression the loss is the mean, so regParam is
1 / (n·C).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Penalty:
    """l1·‖w‖₁ + ½·l2·‖w‖²."""

    l1: float
    l2: float

    def __call__(self, coef: Floats) -> float:
        """The penalty of coefficients."""
        return float(self.l1 * np.abs(coef).sum() + 0.5 * self.l2 * coef @ coef)


def stretto_penalty(alpha: float, l1_ratio: float) -> Penalty:
    """The penalty of `st.ElasticNet(alpha, l1_ratio=…)`."""
    return Penalty(alpha * l1_ratio, alpha * (1 - l1_ratio))


def mllib_penalty(reg: float, elastic: float, spread: float) -> Penalty:
    """The penalty of MLlib's LinearRegression(regParam, elasticNetParam), in the units of the data.

    spread: standard deviation of the target.
    """
    return Penalty(reg * elastic, reg * (1 - elastic) / spread)


def spark_penalty(penalty: Penalty, spread: float) -> tuple[float, float]:
    """(regParam, elasticNetParam) with which MLlib has this penalty."""
    reg = penalty.l1 + penalty.l2 * spread
    return reg, penalty.l1 / reg


def spread_of(y: Floats, solver: str) -> float:
    """The standard deviation that a solver of MLlib divides the target by."""
    return float(np.std(y, ddof=0 if solver == "normal" else 1))


def squared(X: Any, y: Floats, coef: Floats, intercept: float, penalty: Penalty) -> float:
    """The objective of an elastic net."""
    rest = y - X @ coef - intercept
    return float(rest @ rest) / (2 * len(y)) + penalty(coef)


def logistic(X: Any, y: Floats, coef: Floats, intercept: float, penalty: Penalty) -> float:
    """The mean logistic loss and the penalty. y: −1 or +1."""
    return float(np.logaddexp(0, -y * (X @ coef + intercept)).mean()) + penalty(coef)


def strongest(X: Any, y: Floats) -> float:
    """The smallest L1 penalty that leaves no coefficient of a least-squares problem with intercept."""
    return float(np.abs(X.T @ (y - y.mean())).max()) / len(y)


def strongest_logistic(X: Any, y: Floats) -> float:
    """The same for the mean logistic loss; y: −1 or +1."""
    share = (y > 0).mean()
    return float(np.abs(X.T @ ((y > 0) - share)).max()) / len(y)


# --- judges ---------------------------------------------------------------------------------------------------------


def rmse(rows: Any, cols: Any, values: Any, W: Any, H: Any) -> float:
    """Root mean square error of w_i·h_j over ratings; W [m, K] and H [n, K]."""
    total = 0.0
    for first in range(0, len(values), 1 << 16):
        part = slice(first, first + (1 << 16))
        off = np.einsum("ik,ik->i", W[rows[part]], H[cols[part]], dtype=np.float64) - values[part]
        total += float(off @ off)
    return float(np.sqrt(total / len(values)))


def factor_objective(rows: Any, cols: Any, values: Any, W: Any, H: Any, reg: float) -> float:
    """Σ (r − w_i·h_j)² + reg·(‖w_i‖² + ‖h_j‖²) over the ratings."""
    by_row, by_col = np.bincount(rows, minlength=len(W)), np.bincount(cols, minlength=len(H))
    squares = by_row @ np.square(W, dtype=np.float64).sum(axis=1) + by_col @ np.square(H, dtype=np.float64).sum(axis=1)
    return float(len(values) * rmse(rows, cols, values, W, H) ** 2 + reg * squares)


def fold_in(phi: Floats, seen: Any, alpha: float, steps: int = 50) -> Floats:
    """Topics in documents [documents, K] for topics phi [K, V] that stay fixed: expectation maximisation.

    seen: counts [documents, V], CSR. alpha: what is added to the expected count of each topic.
    """
    docs = np.repeat(np.arange(seen.shape[0]), np.diff(seen.indptr))
    by_entry = np.ascontiguousarray(phi.T)[seen.indices]  # [entries, K]
    starts = seen.indptr[:-1]
    if (np.diff(seen.indptr) == 0).any():
        raise ValueError("a held-out document has no word to infer its topics from; drop empty documents")
    theta = np.full((seen.shape[0], phi.shape[0]), 1 / phi.shape[0])
    for _ in range(steps):
        joint = theta[docs] * by_entry
        joint *= (seen.data / joint.sum(axis=1))[:, None]
        theta = np.add.reduceat(joint, starts, axis=0) + alpha
        theta /= theta.sum(axis=1, keepdims=True)
    return theta
