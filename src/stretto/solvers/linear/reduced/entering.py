"""Which columns to solve for next, found by sweeps over those that violate their constraints.

The columns with the largest gradients are often alike: the nearest hundred may stand for a few of the columns that a
solution has, so that sets chosen by distance alone grow over many rounds. A sweep of coordinate descent chooses from
the residual that earlier columns left. Where sweeps converge, they also solve the set; else they give a start for it
(docs/decisions/2026-11-19-lasso-sets-by-sweeps.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import descent
from stretto.kernels.numeric.extrapolation import MOST
from stretto.solvers.linear.point import LinearPoint, PreparedProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ENTRIES = 1 << 24  # of the columns that sweeps visit: no more are read by one worker, or fetched from nodes
_SWEEPS = 20  # over all columns, as a limit for the entries read
# Of sparse columns also as many as take the time of their inner products, half the entries of a row each.
_AS_PRODUCTS = 0.6
# Entries that take less time than a round of Newton steps: read at least, and without progress at least.
_MOST, _PATIENCE = 1 << 20, 1 << 18
# Sweeps without progress for each coefficient, before Newton steps: in the first round of a fit, and in later ones,
# where most of the Gram matrix is known.
_FIRST, _LATER = 1 / 16, 1 / 64
_NEAR = 0.95  # of the gradient at which a column moves: a set has columns with a larger one, as far as _LARGEST admits
_LARGEST = 2  # columns of a set, as a multiple of its coefficients or, if there are more of these, of the samples


@dataclass(frozen=True, eq=False)
class Entered:
    """The result of sweeps."""

    which: Ints  # columns to solve for: those with a coefficient, and those close to having one
    sweeps: int
    solved: bool  # whether the violations of all columns that were visited are within the tolerance


def candidates(urge: Floats, pool: NDArray[np.bool_], coef: Floats, l1: float, entries: Ints) -> Ints:
    """The support and the columns beyond their constraints, of these the furthest ones if they have many entries.

    None at all if the support alone has too many entries. Arrays [p]; urge : absolute gradients, in units of l1
    """
    held = coef != 0.0
    beyond = np.flatnonzero(pool & (urge > l1) & ~held)
    room = _ENTRIES - int(entries[held].sum())
    if room < 0:
        return np.empty(0, np.int64)
    if int(entries[beyond].sum()) > room:
        beyond = beyond[np.argsort(-urge[beyond], kind="stable")]
        beyond = beyond[np.cumsum(entries[beyond]) <= room]
    held[beyond] = True
    return np.flatnonzero(held).astype(np.int64)


def enter(
    setting: PreparedProblem,
    point: LinearPoint,
    which: Ints,
    l1: float,
    l2: float,
    tolerance: float,
    first: int,
    *,
    later: bool = False,
) -> Entered | None:
    """Sweep over the columns `which`, the support among them, and move the point; None if it did not get better.

    Gradients of `which` are current afterwards if the set is not solved. first : columns of a set, at least, if so
    many are close to entering; later : whether columns of an earlier set are among these
    """
    columns, problem = setting.columns, setting.problem
    columns.need(which)
    scale, b = setting.scale[which], point.coef[which]
    ridge = l2 * scale * scale
    u, lag, said, on = point.at.v.copy(), np.zeros(1), np.zeros(descent.RESULTS), np.empty(len(which), np.int64)
    mass = float(np.sum(problem.weight)) if problem.intercept else 0.0
    entries = int(columns.entries[which].sum())
    sweeps = max(_SWEEPS, int(_AS_PRODUCTS * entries / columns.n)) if columns.sparse else _SWEEPS
    most = max(_MOST, sweeps * entries)
    weight = np.empty(0) if setting.ones else problem.weight
    sweep = descent.enter_dense[columns.profile]
    more: tuple[Floats, ...] = ()
    if columns.sparse:
        # Extrapolation compares objectives as they are where all samples weigh 1.
        rows = MOST + 2 if setting.ones else 0
        more = np.empty((rows, columns.n)), np.empty((rows, len(which))), np.empty((MOST, MOST)), np.empty(MOST)
        sweep = descent.enter_sparse[columns.profile]

    def objective() -> float:
        away = scale * point.coef[which]  # all other coefficients are zero
        return point.at.value + float(l1 * np.sum(np.abs(away)) + 0.5 * l2 * np.sum(away * away))

    before = objective()
    sweep(
        which, *columns.parts, b, l1 * scale, ridge, scale, setting.mean[which], setting.norm[which] ** 2 + ridge, u,
        weight, mass, lag, tolerance, _PATIENCE, _LATER if later else _FIRST, most, problem.positive, on, said, *more,
    )  # fmt: skip
    kept = point.coef[which]
    point.coef[which] = b
    setting.predict(point, point.at.b)
    if not objective() < before:
        point.coef[which] = kept
        setting.predict(point, point.at.b)
        return None
    swept = int(said[descent.SWEPT])
    if said[descent.SOLVED]:
        return Entered(which, swept, True)
    setting.pull(point, which)
    slack = point.pulls[which] - ridge * b
    near = _near(slack if problem.positive else np.abs(slack), b, l1 * scale, first, columns.n)
    return Entered(which[near], swept, False)


def _near(slack: Floats, b: Floats, l1: Floats, first: int, samples: int) -> Ints:
    """The non-zero coordinates and those whose gradient is closest to its limit, as many as a set may have."""
    held = int(np.count_nonzero(b))
    free = max(first, held, min(_LARGEST * held, _LARGEST * samples)) - held
    share = np.where(b != 0.0, 0.0, slack / l1)
    near = np.flatnonzero(share >= _NEAR)
    if len(near) > free:
        near = near[np.argsort(-share[near], kind="stable")[:free]]
    chosen = b != 0.0
    chosen[near] = True
    return np.flatnonzero(chosen)
