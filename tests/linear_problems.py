"""Sparse regression checked by hand: problems with awkward columns, their objective, and how far a solution is from its
optimality conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as some
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Made:
    """A problem: X [n, p] dense, y [n] numbers, weight [n]."""

    X: Floats
    y: Floats
    weight: Floats
    sparse: bool
    how: str = ""  # what distinguishes it from others made here

    def __repr__(self) -> str:
        return f"Made({self.how}{', sparse' if self.sparse else ''}{'' if np.ptp(self.weight) else ', equal weights'})"

    @property
    def given(self) -> Any:
        """X as it is handed to fit."""
        return sp.csr_array(self.X) if self.sparse else self.X

    @property
    def signs(self) -> Floats:
        """y as classes −1 and +1, both of them present."""
        found = np.where(self.y > np.median(self.y), 1.0, -1.0)
        found[0], found[-1] = -1.0, 1.0
        return found


@some.composite
def problems(draw: some.DrawFn) -> Made:
    """Few samples and many features or the reverse, with duplicated, constant, all-zero and collinear columns."""
    n, p = draw(some.sampled_from([(8, 60), (60, 8), (25, 25), (2, 5), (40, 1)]))
    seed = draw(some.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    sparse = draw(some.booleans())
    X = rng.normal(size=(n, p))
    if sparse:
        X *= rng.random((n, p)) < 0.4
    kinds = draw(some.lists(some.sampled_from(["duplicate", "constant", "zero", "collinear", "huge"]), max_size=5))
    for kind in kinds:
        j, k, m = rng.integers(0, p, 3)
        X[:, j] = {
            "duplicate": X[:, k],
            "constant": np.full(n, 2.0),
            "zero": np.zeros(n),
            "collinear": X[:, k] - 0.5 * X[:, m],
            "huge": 30.0 * X[:, k],
        }[kind]
    y = X @ np.where(rng.random(p) < 0.3, rng.normal(size=p), 0.0) + rng.normal(size=n) + rng.normal()
    weight = rng.uniform(0.1, 3.0, n) if draw(some.booleans()) else np.ones(n)
    return Made(X, y, weight, sparse, f"{n} × {p}, seed {seed}, {kinds}")


def loss_of(loss: str, y: Floats, z: Floats) -> Floats:
    return 0.5 * (y - z) ** 2 if loss == "squared" else np.logaddexp(0.0, -y * z)


def objective(
    X: Floats, y: Floats, weight: Floats, coef: Floats, intercept: float, l1: float, l2: float, loss: str = "squared"
) -> float:
    """Σ weight·loss + l1·‖w‖₁ + ½·l2·‖w‖²."""
    fit = float((weight * loss_of(loss, y, X @ coef + intercept)).sum())
    return fit + l1 * float(np.abs(coef).sum()) + 0.5 * l2 * float(coef @ coef)


def assert_optimal(
    made: Made,
    y: Floats,
    weight: Floats,
    coef: Floats,
    intercept: float,
    l1: float,
    l2: float,
    gap: float,
    *,
    loss: str = "squared",
    positive: bool = False,
    fit_intercept: bool = True,
) -> None:
    """The optimality conditions hold as nearly as a duality gap implies.

    With curvature L along a coordinate whose slope is v too steep, one step gains v²/2L, or at least v|w|/2 where it
    would cross zero. The gap bounds all that can be gained.
    """
    # A gap is a difference of two numbers as large as the objective, and no better than their rounding.
    gap += 1e-14 * float((weight * loss_of(loss, y, np.zeros_like(y))).sum())
    z = made.X @ coef + intercept
    curvature = 1.0 if loss == "squared" else 0.25
    pull = weight * (y - z) if loss == "squared" else weight * y / (1.0 + np.exp(y * z))
    slope = made.X.T @ pull - l2 * coef
    L = curvature * (weight[:, None] * made.X**2).sum(axis=0) + l2
    at_zero = slope - l1 if positive else np.abs(slope) - l1
    off = np.where(coef == 0.0, np.maximum(at_zero, 0.0), np.abs(slope - l1 * np.sign(coef)))
    crossing = np.divide(2.0 * gap, np.abs(coef), out=np.zeros_like(coef), where=coef != 0.0)
    rounding = 1e-9 * (1.0 + l1 + (np.abs(made.X) * np.abs(weight * y)[:, None]).sum(axis=0))
    allowed = np.maximum(np.sqrt(2.0 * L * gap), crossing) + rounding
    assert np.all(off <= allowed), (off - allowed).max()
    if positive:
        assert np.all(coef >= 0.0)
    if fit_intercept:
        total = curvature * weight.sum()
        assert abs(pull.sum()) <= np.sqrt(2.0 * total * gap) + 1e-9 * np.abs(weight * y).sum()
    else:
        assert intercept == 0.0
