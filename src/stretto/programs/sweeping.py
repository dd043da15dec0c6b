"""A large working set, solved over the data itself: sweeps, then conjugate gradients on what is not zero.

Sweeps find out which coordinates are not zero and their signs; on these the problem is a linear system, which
conjugate gradients solve with one pass over the columns and one over the rows each. The way towards its solution is
followed until the objective would rise, past coordinates that change sign if need be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.kernels import descent, shuffled

from .columns import Columns
from .inner import Minimum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CG = 200
import os
_SHUFFLED_TURNS, _SHUFFLED_SWEEPS, _SHUFFLED_CG = int(os.environ.get("T","5")), int(os.environ.get("S","30")), int(os.environ.get("G","60"))


@dataclass(frozen=True, eq=False)
class Model:
    """A quadratic model of the loss on some columns: pull and curvature of the samples, [n]."""

    columns: Columns
    which: Ints  # [k]
    v: Floats
    d: Floats
    mean: Floats  # [k] under d; zeros without an intercept
    l1: Floats  # [k]
    ridge: Floats  # [k]
    unit: Floats  # [k]
    positive: bool

    def curvature(self) -> Floats:
        """[k] Σ d (x − m)² + ridge."""
        square = np.empty(len(self.which))
        self.columns.squares(self.which, self.d, self.mean, square)
        return square + self.ridge

    def spread(self, which: Ints, coef: Floats, mean: Floats) -> Floats:
        """[n] Σ coef_j (x_j − m_j)."""
        z = np.zeros(self.columns.n)
        self.columns.add(which, coef, z)
        return z - np.sum(coef * mean)

    def gather(self, which: Ints, u: Floats, mean: Floats) -> Floats:
        """[len(which)] (x_j − m_j)·u."""
        product = np.empty(self.columns.p)
        self.columns.price(which, u, product)
        return product[which] - mean * np.sum(u)


def minimise_swept(model: Model, b: Floats, tolerance: float, sweeps: int, turns: int) -> Minimum:
    """b [k] down to violations of `tolerance` units, or as far as so many turns, each of sweeps and conjugate gradients, go."""
    b = b.copy()
    u = model.v.copy()
    curve, mass = model.curvature(), float(np.sum(model.d))
    said, lag = np.zeros(3), np.zeros(1)
    sweep = (descent.sweep_sparse if model.columns.design.sparse else descent.sweep_dense)[model.columns.profile]
    newtons = 0
    for _ in range(turns):
        sweep(
            model.which, *model.columns.parts, b, model.l1, model.ridge, model.unit, model.mean, curve, u,
            model.d, mass, lag, 0.3 * tolerance, sweeps, model.positive, said,
        )  # fmt: skip
        u += model.d * lag[0]
        lag[0] = 0.0
        if said[descent.WORST] <= tolerance or model.columns.crew.asked:
            break
        newtons += _towards(model, b, u, curve)
    return Minimum(b, float(said[descent.WORST]), int(said[descent.SWEPT]), newtons)


def minimise_shuffled(model: Model, b: Floats, most: float, largest: float, seed: int) -> Minimum:
    """b [k] down to violations that sum to `most` or are at most `largest` units each, over sparse columns in random
    order; or as far as a few turns of sweeps and conjugate gradients go.
    """
    b = b.copy()
    u = model.v.copy()
    curve, mass = model.curvature(), float(np.sum(model.d))
    said, lag, order = np.zeros(4), np.zeros(1), np.arange(len(b))
    sweep = shuffled.sweep_shuffled[model.columns.profile]
    newtons = 0
    for turn in range(_SHUFFLED_TURNS):
        sweep(
            model.which, *model.columns.parts, b, model.l1, model.ridge, model.unit, model.mean, curve, u,
            model.d, mass, lag, order, seed, most, largest, _SHUFFLED_SWEEPS, model.positive, said,
        )  # fmt: skip
        u += model.d * lag[0]
        lag[0] = 0.0
        if said[shuffled.SUM] <= most or said[shuffled.WORST] <= largest or model.columns.crew.asked:
            break
        if turn < _SHUFFLED_TURNS - 1:
            newtons += _towards(model, b, u, curve, 0.3 * most, 0.3 * largest, _SHUFFLED_CG)
    return Minimum(b, float(said[shuffled.WORST]), int(said[shuffled.SWEPT]), newtons)


def _towards(
    model: Model, b: Floats, u: Floats, curve: Floats, most: float = 0.0, largest: float = 0.0, iterations: int = _CG
) -> int:
    """Move b and u towards the solution of the linear system on the support; iterations made."""
    on = np.flatnonzero(b)
    if not len(on):
        return 0
    which, mean, ridge = model.which[on], model.mean[on], model.ridge[on]
    slack = model.gather(which, u, mean) - ridge * b[on] - model.l1[on] * np.sign(b[on])
    way, product, made = _conjugate(model, on, slack, curve[on], most, largest, iterations)
    slope, bend = -float(np.sum(slack * way)), float(np.sum(product * product * model.d) + np.sum(ridge * way * way))
    if not slope < 0.0 or not bend > 0.0:
        return made
    t = best_along(b[on], way, slope, bend, model.l1[on], model.positive)
    there = b[on] + t * way
    # A coordinate the way ends at is zero exactly, not nearly; one that may not be negative stops at zero.
    there[np.abs(there) <= 1e-12 * np.abs(b[on])] = 0.0
    if model.positive:
        there = np.maximum(there, 0.0)
    u -= model.d * model.spread(which, there - b[on], mean)
    b[on] = there
    return made


def _conjugate(
    model: Model, on: Ints, slack: Floats, curve: Floats, most: float, largest: float, iterations: int
) -> tuple[Floats, Floats, int]:
    """way ≈ (XᵀDX + ridge)⁻¹ slack by preconditioned conjugate gradients, X way, iterations. The residual ends at 1e-8
    of what it was, or when it sums to `most` or is at most `largest` units everywhere.
    """
    which, mean, ridge, unit = model.which[on], model.mean[on], model.ridge[on], model.unit[on]
    columns = model.columns
    way, product = np.zeros_like(slack), np.zeros(columns.n)
    left = slack.copy()
    step = left / curve
    size = first = float(np.sum(left * step))
    z, u, pulls = np.zeros(columns.n), np.empty(columns.n), np.empty(columns.p)
    add, price = columns.adding(which, step, z), columns.pricing(which, u, pulls)
    for made in range(1, iterations + 1):
        z[:] = 0.0
        add()
        out = z - np.sum(step * mean)
        np.multiply(model.d, out, out=u)
        price()
        back = pulls[which] - mean * np.sum(u) + ridge * step
        bend = float(np.sum(step * back))
        if not bend > 0.0:
            return way, product, made
        t = size / bend
        way += t * step
        product += t * out
        left -= t * back
        ready = left / curve
        now = float(np.sum(left * ready))
        if now <= 1e-8 * first or _small(left / unit, most, largest):
            return way, product, made
        step *= now / size
        step += ready
        size = now
    return way, product, iterations


def _small(violation: Floats, most: float, largest: float) -> bool:
    size = np.abs(violation)
    return bool(np.sum(size) <= most or np.max(size) <= largest)


def best_along(b: Floats, way: Floats, slope: float, bend: float, l1: Floats, positive: bool) -> float:
    """Where in (0, 1] the objective is least along b + t·way. slope < 0 and bend: its first and second derivative at 0;
    where a coordinate changes sign the slope rises by 2·l1·|way|.
    """
    crossing = np.full(len(b), np.inf)
    np.divide(-b, way, out=crossing, where=way != 0.0)
    passed = np.flatnonzero((crossing > 0.0) & (crossing < 1.0))
    passed = passed[np.argsort(crossing[passed], kind="stable")]
    if positive:
        end = crossing[passed[0]] if len(passed) else 1.0
        return float(min(end, -slope / bend))
    for j in passed:
        at = crossing[j]
        if slope + at * bend >= 0.0:
            break
        jump = 2.0 * l1[j] * abs(way[j])
        if slope + jump + at * bend >= 0.0:
            return float(at)
        slope += jump
    return float(min(1.0, -slope / bend))
