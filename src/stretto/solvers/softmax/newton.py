"""Newton's steps for the end of a fit: few weights are still to be moved, and they should go where they belong at once.

The loss is replaced by its quadratic model, and the penalised model is minimised over the features that are in use or
pulled hard enough to come into use. On a face, where no weight changes its sign, that is a linear system, solved by
conjugate gradients; a weight that would change its sign stops at zero, and the next face goes on from there.
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

_NEAR = 0.9  # of the pull at which a feature comes into use
_FIXED = 1e6  # times the largest curvature: a weight that stays where it is
_FLAT = 1e-11  # of the features' own curvatures, where there is none
_FACES = 12
_TRIES = 5  # to find out which weights may leave zero together
_TURNS = 60  # of conjugate gradients on a face


@dataclass
class _Model:
    """The quadratic model over some features: w [m + 1, K] with the smooth part's gradient r there."""

    passes: Passes
    w: Floats
    r: Floats
    l1: Floats  # [m + 1, 1]
    ridge: Floats
    curved: Floats  # [m + 1, K] about the diagonal of the Hessian
    used: Mask  # [m + 1, K] not padding
    dtype: np.dtype[Any]  # of the last look

    def even(self, r: Floats) -> Floats:
        """A gradient in even units."""
        return r / self.curved

    def bend(self, v: Floats) -> Floats:
        return np.where(self.used, self.passes.curve(v.astype(self.dtype)) + self.ridge * v, 0.0)

    def slope(self) -> Floats:
        """The steepest descent's, with the corner of |w|."""
        at_zero = np.sign(self.r) * np.maximum(np.abs(self.r) - self.l1, 0.0)
        return np.where(self.used, np.where(self.w != 0.0, self.r + self.l1 * np.sign(self.w), at_zero), 0.0)

    def worth(self, d: Floats, bent: Floats) -> float:
        """By how much the model changes along d."""
        smooth = np.sum(self.r * d) + 0.5 * np.sum(d * bent)
        return float(smooth + np.sum(self.l1 * (np.abs(self.w + d) - np.abs(self.w))))


def newton_step(point: SoftmaxPoint, metric: DiagonalMetric | SampledGram, closeness: float) -> Floats:
    """[p + 1, K] the way to the minimum of the model, found to `closeness` times the slope that is there."""
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
    """[p + 1, K] Newton's way where the corner of |w| is rounded: one linear system, and the metric knows it well."""
    # The pull of the loss says where a weight will end (Chan, Golub and Mulet's primal-dual step): one that it holds
    # keeps the corner's own curvature, which is small; one on its way to zero gets that of a parabola above it.
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
        # Where the model is a slope without a bottom, a column that another one replaces, it ends at the next corner.
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
    """Go to the minimum over the weights in use and those that are pulled away from zero; whether the model fell."""
    bound = model.used & (model.l1 > 0.0) & (model.w == 0.0)
    free = (model.used & ~bound) | (v != 0.0)
    for _ in range(_TRIES):
        e, bent = solved(v, free)
        if e.any() and _move(model, v, e, bent):
            return True
        # Weights set free together can send one another through zero, against the pull: those stay where they are.
        against = bound & free & (e * v > 0.0)
        if not against.any():
            break
        free &= ~against
    # Where those in use are at rest, one more alone follows its pull.
    free = model.used & ~bound
    free.flat[np.argmax(np.where(bound, np.abs(v), -1.0))] = True
    e, bent = solved(v, free)
    return bool(e.any()) and _move(model, v, e, bent)


def _corner(model: _Model, w: Floats, d: Floats, v: Floats) -> float:
    """How far along d from w the first weight comes to its corner."""
    toward = (model.l1 > 0.0) & (w * d < 0.0) & (w * np.where(model.w != 0.0, model.w, -v) > 0.0)
    return float(np.min(-w[toward] / d[toward], initial=np.inf))


def _move(model: _Model, v: Floats, e: Floats, bent: Floats) -> bool:
    """Go along e as far as the model falls, weights stopping at zero; whether it fell."""
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
