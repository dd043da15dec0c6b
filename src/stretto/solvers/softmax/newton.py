"""Newton steps of softmax regression, for the end of a fit.

The loss is replaced by its quadratic model. The penalised model is minimised over the features that have non-zero
weights or a gradient large enough to get one. On a face, where no weight changes its sign, this is a linear system,
which conjugate gradients solve. A weight that would change its sign stops at zero, and the next face continues there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metric import DiagonalMetric, SampledGram
from .passes import Passes
from .point import SoftmaxPoint

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NEAR = 0.9  # of the gradient at which a feature gets a non-zero weight
_FIXED = 1e6  # times the largest curvature: fixes a weight at its value
_FLAT = 1e-11  # of the features' own curvatures, if a direction has none
_FACES = 12
_TRIES = 5  # attempts to find the weights that may leave zero together
_TURNS = 60  # conjugate-gradient iterations on a face


@dataclass
class _Model:
    """The quadratic model over m features and the intercept, at weights w."""

    passes: Passes
    w: Floats  # [m + 1, K] weights
    r: Floats  # [m + 1, K] gradient of the smooth part at w
    l1: Floats  # [m + 1, 1]
    ridge: Floats
    curved: Floats  # [m + 1, K] approximate diagonal of the Hessian
    used: Mask  # [m + 1, K] False for padding
    dtype: np.dtype[Any]  # of the last evaluation

    def even(self, r: Floats) -> Floats:
        """Divide a gradient by the diagonal of the Hessian."""
        return r / self.curved

    def bend(self, v: Floats) -> Floats:
        return np.where(self.used, self.passes.curve(v.astype(self.dtype)) + self.ridge * v, 0.0)

    def slope(self) -> Floats:
        """The gradient of steepest descent, with the subgradient of |w|."""
        at_zero = np.sign(self.r) * np.maximum(np.abs(self.r) - self.l1, 0.0)
        return np.where(self.used, np.where(self.w != 0.0, self.r + self.l1 * np.sign(self.w), at_zero), 0.0)

    def worth(self, d: Floats, bent: Floats) -> float:
        """The change of the model along d."""
        smooth = np.sum(self.r * d) + 0.5 * np.sum(d * bent)
        return float(smooth + np.sum(self.l1 * (np.abs(self.w + d) - np.abs(self.w))))


def newton_step(point: SoftmaxPoint, metric: DiagonalMetric | SampledGram, closeness: float) -> Floats:
    """[p + 1, K] the step to the minimum of the model; stops at `closeness` times the initial gradient."""
    model, which = _model(point)
    table = metric if isinstance(metric, SampledGram) else None
    share = point.spread() if table is not None else 1.0
    first = float(np.abs(model.slope()).max())

    def solved(v: Floats, free: Mask) -> tuple[Floats, Floats]:
        even: Callable[[Floats], Floats] = model.even
        if table is not None:
            table.renew(share, np.where(free, 0.0, _FIXED * float(model.curved.max())))
            even = table.solve
        return _conjugate(model, v, free, 0.3 * closeness * first, even)

    for _ in range(_FACES):
        v = model.slope()
        if float(np.abs(v).max()) <= closeness * first or not _face(model, v, solved):
            break
    way = np.zeros(point.passes.shape)
    way[which] = model.w - point.W[which]
    return way


def smooth_step(point: SoftmaxPoint, metric: SampledGram, closeness: float) -> Floats:
    """[p + 1, K] the Newton step with |w| smoothed at zero: one linear system, preconditioned by the metric."""
    # Primal-dual step of Chan, Golub and Mulet: the loss gradient predicts where a weight will end. A weight that stays
    # non-zero keeps the small curvature of the smoothed |w|; one that goes to zero gets that of a parabola above it.
    l1 = point.problem.l1[:, None]
    size = np.hypot(point.W, point.round)
    held = np.clip(-point.G / np.where(l1 > 0.0, l1, 1.0), -1.0, 1.0)
    bent = l1 / size * np.maximum(1.0 - held * point.W / size, 1e-6) + point.problem.ridge[:, None]
    metric.renew(point.spread(), bent - point.problem.ridge[:, None])
    r = -point.g
    e, z = np.zeros_like(r), metric.solve(r)
    d, now = z.copy(), float(np.sum(r * z))
    enough = closeness * closeness * now
    for _ in range(_TURNS):
        if not now > enough:
            break
        whole = point.passes.curve(d.astype(point.dtype)) + bent * d
        if not point.problem.intercept:
            whole[-1] = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            curve = float(np.sum(d * whole))
        if not 0.0 < curve < np.inf:  # lost in rounding, or overflowed
            break
        a = now / curve
        e += a * d
        r -= a * whole
        z = metric.solve(r)
        last, now = now, float(np.sum(r * z))
        d = z + (now / last) * d
    return e


def _model(point: SoftmaxPoint) -> tuple[_Model, NDArray[np.int64]]:
    problem, passes = point.problem, point.passes
    l1 = problem.l1[:, None]
    wanted = np.any((point.W != 0.0) | (np.abs(point.g) > _NEAR * l1), axis=1)
    wanted[-1] = True
    which = np.flatnonzero(wanted)
    if problem.rows.sparse and len(which) < 0.7 * len(wanted):
        rows = problem.rows.columns(which[:-1])
        passes = Passes(rows, problem.y, problem.weight, problem.classes, passes.crew, passes.profile)
        passes.look(point.W[which].astype(point.dtype))
    else:
        which = np.arange(len(wanted))
        passes.look(point.W.astype(point.dtype))
    used = np.zeros((len(which), passes.width), bool)
    used[:, : problem.classes] = True
    used[-1] &= problem.intercept
    ridge = problem.ridge[which, None]
    curved = passes.squares()[:, None] * passes.unsure()[None] + ridge
    curved = np.maximum(curved, 1e-12 * float(curved.max()))
    return _Model(passes, point.W[which], point.g[which], l1[which], ridge, curved, used, point.dtype), which


def _conjugate(
    model: _Model, v: Floats, free: Mask, enough: float, even: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """(e, its product with the Hessian): a solution of H e = −v over the free weights."""
    e, bent = np.zeros_like(v), np.zeros_like(v)
    r = np.where(free, -v, 0.0)
    z = np.where(free, even(r), 0.0)
    d = z.copy()
    size = float(np.sum(r * z))
    for _ in range(_TURNS):
        if float(np.abs(r).max()) <= enough or not size > 0.0:
            break
        whole = model.bend(d)
        curve = float(np.sum(d * whole))
        flat = not curve > _FLAT * float(np.sum(d * d * model.curved))
        # Without curvature, as with two equal columns, the model has no minimum: the step ends at the next sign change.
        a = _corner(model, model.w + e, d, v) if flat else size / curve
        if not np.isfinite(a):
            break
        e += a * d
        bent += a * whole
        if flat:
            break
        r -= a * np.where(free, whole, 0.0)
        z = np.where(free, even(r), 0.0)
        last, size = size, float(np.sum(r * z))
        d = z + (size / last) * d
    return e, bent


def _face(model: _Model, v: Floats, solved: Callable[[Floats, Mask], tuple[Floats, Floats]]) -> bool:
    """Minimise over non-zero weights and those whose gradient leads away from zero; return whether the model fell."""
    bound = model.used & (model.l1 > 0.0) & (model.w == 0.0)
    free = (model.used & ~bound) | (v != 0.0)
    for _ in range(_TRIES):
        e, bent = solved(v, free)
        if e.any() and _move(model, v, e, bent):
            return True
        # Weights freed together can push each other through zero, against their gradients: fix those.
        against = bound & free & (e * v > 0.0)
        if not against.any():
            break
        free &= ~against
    # If the non-zero weights are at their minimum, free one more weight alone.
    free = model.used & ~bound
    free.flat[np.argmax(np.where(bound, np.abs(v), -1.0))] = True
    e, bent = solved(v, free)
    return bool(e.any()) and _move(model, v, e, bent)


def _corner(model: _Model, w: Floats, d: Floats, v: Floats) -> float:
    """Step length along d from w at which the first weight reaches zero."""
    toward = (model.l1 > 0.0) & (w * d < 0.0) & (w * np.where(model.w != 0.0, model.w, -v) > 0.0)
    return float(np.min(-w[toward] / d[toward], initial=np.inf))


def _move(model: _Model, v: Floats, e: Floats, bent: Floats) -> bool:
    """Move along e while the model falls, stopping weights at zero; return whether it fell."""
    side = np.where(model.w != 0.0, model.w, -v)
    bound = model.l1 > 0.0
    first = _corner(model, model.w, e, v)
    for t in (1.0, 0.3, 0.1, 0.03, min(1.0, first)):
        there = model.w + t * e
        crosses = bound & (there * side <= 0.0)
        if t == first:
            crosses |= bound & (e != 0.0) & (np.abs(there) <= 1e-14 * np.abs(model.w))
        if not np.any(crosses & (e != 0.0)) or t == first:
            d, product = t * e, t * bent
        else:
            d = np.where(crosses, 0.0, there) - model.w
            product = model.bend(d)
        if model.worth(d, product) < 0.0:
            model.w = np.where(crosses, 0.0, model.w + d)
            model.r = model.r + product
            return True
    return False
