"""Minimise over a large working set without a Gram matrix: coordinate sweeps, then conjugate gradients on the support.

Sweeps find the non-zero coordinates and their signs. On these the problem is a linear system. Conjugate gradients solve
it, each iteration with one pass over the columns and one over the rows. A line search follows the direction to its
solution until the objective would rise, also past coordinates that change sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import conjugate_gradients, descent, gram, shuffled

from .columns import ColumnPasses
from .subproblem import Minimum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# (columns in the model, their coefficients, their gradients) → the minimum over them, or None if too many
Table = Callable[[Ints, Floats, Floats], Minimum | None]

_SWEEPS = 10  # sweeps before each solution of the linear system
_TURNS = 50
_CG = 200
_SHUFFLED_TURNS, _SHUFFLED_SWEEPS, _SHUFFLED_CG = 5, 30, 100
_CLOSE = 0.95  # of the gradient at which a column moves: columns with a larger one are in the Gram matrix


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """A quadratic model of the loss on k chosen columns."""

    columns: ColumnPasses
    which: Ints  # [k] the chosen columns
    v: Floats  # [n] minus the loss derivatives
    d: Floats  # [n] curvatures
    mean: Floats  # [k] column means under d; zeros without an intercept
    l1: Floats  # [k] L1 penalty of each column
    ridge: Floats  # [k] L2 penalty of each column
    unit: Floats  # [k] scale of each coefficient, for tolerances
    positive: bool  # whether coefficients must be ≥ 0

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


def minimise_smooth(model: QuadraticModel, b: Floats, tolerance: float, iterations: int) -> Minimum | None:
    """Minimise b [k] without an L1 penalty, by conjugate gradients; None where so many iterations are not enough."""
    curve = model.curvature()
    left = model.gather(model.which, model.v, model.mean) - model.ridge * b
    way, step = np.zeros_like(b), left / curve
    size = float(np.sum(left * step))
    for made in range(1, iterations + 1):
        u = model.d * model.spread(model.which, step, model.mean)
        back = model.gather(model.which, u, model.mean) + model.ridge * step
        bend = float(np.sum(step * back))
        if not bend > 0.0:
            return None
        way += size / bend * step
        left -= size / bend * back
        worst = float(np.max(np.abs(left) / model.unit))
        if worst <= tolerance or model.columns.crew.asked:
            return Minimum(b + way, worst, 0, made)
        now = float(np.sum(left * left / curve))
        step = left / curve + now / size * step
        size = now
    return None


def minimise_swept(model: QuadraticModel, b: Floats, tolerance: float) -> Minimum:
    """Minimise b [k] to violations of `tolerance` units by sweeps and conjugate gradients."""
    b = b.copy()
    u = model.v.copy()
    curve, mass = model.curvature(), float(np.sum(model.d))
    said, lag = np.zeros(3), np.zeros(1)
    sweep = (descent.sweep_sparse if model.columns.sparse else descent.sweep_dense)[model.columns.profile]
    newtons = 0
    for _ in range(_TURNS):
        sweep(
            model.which, *model.columns.parts, b, model.l1, model.ridge, model.unit, model.mean, curve, u,
            model.d, mass, lag, 0.3 * tolerance, _SWEEPS, model.positive, said,
        )  # fmt: skip
        u += model.d * lag[0]
        lag[0] = 0.0
        if said[descent.WORST] <= tolerance or model.columns.crew.asked:
            break
        newtons += _towards(model, b, u, curve)
    return Minimum(b, float(said[descent.WORST]), int(said[descent.SWEPT]), newtons)


def minimise_shuffled(
    model: QuadraticModel, b: Floats, most: float, largest: float, seed: int, table: Table, spent: int
) -> tuple[Minimum, int]:
    """Minimise b [k] over sparse columns in random order, for a few turns at most.

    It ends when violations sum to `most` or are at most `largest` units each. After the sweeps of a turn, conjugate
    gradients run. If they failed for as long as a Gram matrix would take, that is used instead.

    spent : conjugate-gradient iterations since the last success; returned with its new value
    """
    b = b.copy()
    u = model.v.copy()
    curve, mass = model.curvature(), float(np.sum(model.d))
    said, lag, order = np.zeros(4), np.zeros(1), np.arange(len(b))
    sweep = shuffled.sweep_shuffled[model.columns.profile]
    newtons = 0
    for turn in range(_SHUFFLED_TURNS):
        if turn:
            made = _by_table(model, b, u, table) if _as_long_as_a_table(model, b, spent) else 0
            if made:
                spent = 0
            else:
                made = _towards(model, b, u, curve, (0.3 * most, 0.3 * largest))
                spent += made
            newtons += made
        sweep(
            model.which, *model.columns.parts, b, model.l1, model.ridge, model.unit, model.mean, curve, u,
            model.d, mass, lag, order, seed, most, largest, _SHUFFLED_SWEEPS, model.positive, said,
        )  # fmt: skip
        u += model.d * lag[0]
        lag[0] = 0.0
        if said[shuffled.SUM] <= most or said[shuffled.WORST] <= largest or model.columns.crew.asked:
            spent = 0
            break
    return Minimum(b, float(said[shuffled.WORST]), int(said[shuffled.SWEPT]), newtons), spent


def _as_long_as_a_table(model: QuadraticModel, b: Floats, iterations: int) -> bool:
    """Whether these iterations over the support took as long as a Gram matrix of it would.

    A Gram matrix takes some eight factorisations of k³/3 fast operations; an iteration one slow operation per entry.
    """
    on = model.which[np.flatnonzero(b)]
    return 16.0 * iterations * float(model.columns.entries[on].sum()) >= float(len(on)) ** 3


def _by_table(model: QuadraticModel, b: Floats, u: Floats, table: Table) -> int:
    """Move b and u to the minimum over the support and the columns about to enter; return the Newton steps made."""
    pulls = model.gather(model.which, u, model.mean)
    on = np.flatnonzero((b != 0.0) | (np.abs(pulls) >= _CLOSE * model.l1))
    done = table(on, b[on], pulls[on])
    if done is None:
        return 0
    u -= model.d * model.spread(model.which[on], done.b - b[on], model.mean[on])
    b[on] = done.b
    return max(1, done.newtons)


def _towards(
    model: QuadraticModel, b: Floats, u: Floats, curve: Floats, goals: tuple[float, float] | None = None
) -> int:
    """Move b and u towards the solution of the linear system on the support; return the iterations made."""
    on = np.flatnonzero(b)
    if not len(on):
        return 0
    which, mean, ridge = model.which[on], model.mean[on], model.ridge[on]
    slack = model.gather(which, u, mean) - ridge * b[on] - model.l1[on] * np.sign(b[on])
    if goals is None:
        way, product, made = _conjugate(model, which, mean, ridge, slack, curve[on])
    else:
        way, product, made = _by_rows(model, on, slack, curve[on], *goals)
    slope, bend = -float(np.sum(slack * way)), float(np.sum(product * product * model.d) + np.sum(ridge * way * way))
    if not slope < 0.0 or not bend > 0.0:
        return made
    t = best_along(b[on], way, slope, bend, model.l1[on], model.positive)
    there = b[on] + t * way
    # A coordinate at which the step ends is set to exactly zero. One that may not be negative stops at zero.
    there[np.abs(there) <= 1e-12 * np.abs(b[on])] = 0.0
    if model.positive:
        there = np.maximum(there, 0.0)
    u -= model.d * model.spread(which, there - b[on], mean)
    b[on] = there
    return made


def _by_rows(
    model: QuadraticModel, on: Ints, slack: Floats, curve: Floats, most: float, largest: float
) -> tuple[Floats, Floats, int]:
    """`_conjugate` over sparse entries by rows, until the residual sums to `most` or is at most `largest` units."""
    columns, which = model.columns, model.which[on]
    entries = int(columns.entries[which].sum())
    start, whose, value = np.empty(columns.n + 1, np.int64), np.empty(entries, np.int32), np.empty(entries)
    kept = np.arange(len(which))
    gram.by_rows[columns.profile](*columns.parts, which, len(which), kept, start, whose, value)
    way, product = np.zeros_like(slack), np.zeros(columns.n)
    step, back, out = np.empty_like(slack), np.empty_like(slack), np.empty(columns.n)
    made = conjugate_gradients.conjugate[columns.profile](
        start, whose, value, model.d, model.mean[on], model.ridge[on], curve, model.unit[on], most, largest,
        _SHUFFLED_CG, way, slack.copy(), step, back, product, out,
    )  # fmt: skip
    return way, product, int(made)


def _conjugate(
    model: QuadraticModel, which: Ints, mean: Floats, ridge: Floats, slack: Floats, curve: Floats
) -> tuple[Floats, Floats, int]:
    """way ≈ (XᵀDX + ridge)⁻¹ slack by preconditioned conjugate gradients, X way, iterations."""
    way, product = np.zeros_like(slack), np.zeros(model.columns.n)
    left = slack.copy()
    step = left / curve
    size = first = float(np.sum(left * step))
    for made in range(1, _CG + 1):
        out = model.spread(which, step, mean)
        back = model.gather(which, model.d * out, mean) + ridge * step
        bend = float(np.sum(step * back))
        if not bend > 0.0:
            return way, product, made
        t = size / bend
        way += t * step
        product += t * out
        left -= t * back
        ready = left / curve
        now = float(np.sum(left * ready))
        if now <= 1e-8 * first:
            return way, product, made
        step = ready + (now / size) * step
        size = now
    return way, product, _CG


def best_along(b: Floats, way: Floats, slope: float, bend: float, l1: Floats, positive: bool) -> float:
    """The step t in (0, 1] that minimises the objective along b + t·way.

    slope < 0 and bend : first and second derivative at 0; where a coordinate changes sign the slope rises by 2·l1·|way|
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
