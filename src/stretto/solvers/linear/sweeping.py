"""A large working set, solved over the data itself: sweeps, then conjugate gradients on what is not zero.

Sweeps find out which coordinates are not zero and their signs; on these the problem is a linear system, which
conjugate gradients solve with one pass over the columns and one over the rows each. The way towards its solution is
followed until the objective would rise, past coordinates that change sign if need be.
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
# (numbers of columns in the model, their coefficients, their pulls) → the minimum over them, or None for too many
Table = Callable[[Ints, Floats, Floats], Minimum | None]

_SWEEPS = 10  # before each solution of the linear system
_TURNS = 50
_CG = 200
_SHUFFLED_TURNS, _SHUFFLED_SWEEPS, _SHUFFLED_CG = 5, 30, 100
_CLOSE = 0.95  # of the pull at which a column moves: those that are pulled more are in the table of products


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """A quadratic model of the loss on some columns: pull and curvature of the samples, [n]."""

    columns: ColumnPasses
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


def minimise_swept(model: QuadraticModel, b: Floats, tolerance: float) -> Minimum:
    """b [k] down to violations of `tolerance` units."""
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
    """b [k] down to violations that sum to `most` or are at most `largest` units each, over sparse columns in random
    order; or as far as a few turns go. Between the sweeps of two turns come conjugate gradients or, when these were
    repeated without success for as long as it takes, a table of inner products.

    spent : iterations of conjugate gradients since the last success; returned as it is afterwards.
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
    """Whether so many iterations over the support took as long as a table of it: some eight factors of k³/3 quick
    steps, against a slow step for each entry.
    """
    on = model.which[np.flatnonzero(b)]
    return 16.0 * iterations * float(model.columns.entries[on].sum()) >= float(len(on)) ** 3


def _by_table(model: QuadraticModel, b: Floats, u: Floats, table: Table) -> int:
    """Move b and u to the minimum over the support and the columns about to enter; Newton steps made."""
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
    """Move b and u towards the solution of the linear system on the support; iterations made."""
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
    # A coordinate the way ends at is zero exactly, not nearly; one that may not be negative stops at zero.
    there[np.abs(there) <= 1e-12 * np.abs(b[on])] = 0.0
    if model.positive:
        there = np.maximum(there, 0.0)
    u -= model.d * model.spread(which, there - b[on], mean)
    b[on] = there
    return made


def _by_rows(
    model: QuadraticModel, on: Ints, slack: Floats, curve: Floats, most: float, largest: float
) -> tuple[Floats, Floats, int]:
    """`_conjugate` over the entries of sparse columns by rows, until the residual sums to `most` or is at most
    `largest` units everywhere.
    """
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
