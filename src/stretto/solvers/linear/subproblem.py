"""Minimise the quadratic problem of one working set with the compiled solver.

b = minimise(crew, profile, H, q, l1, unit, b, tolerance)       ½ bᵀH b − qᵀb + Σ l1_j|b_j|
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import quadratic
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step
from stretto.schedule.orders.rotation import independent

Floats = NDArray[np.float64]

_SWEEPS, _NEWTONS = 20, 60
# The proximal term starts at a thousandth of a typical curvature and falls tenfold; others were within a quarter of it
# (docs/decisions/2026-11-15-newton-on-working-sets.md).
_SIGMA, _GROWTH = 1000.0, 10.0
# The proximal term is the same for all coefficients. Where curvatures differ by more than this, coefficients are
# scaled to units of equal curvature.
_SPREAD = 2.0**20


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of a quadratic problem, and the work it took."""

    b: Floats  # [k] the minimum
    worst: float  # the largest violation left, in units
    sweeps: int  # sweeps made
    newtons: int  # Newton steps made


def minimise(
    crew: Crew,
    profile: str,
    H: Floats,
    q: Floats,
    l1: Floats,
    unit: Floats,
    b: Floats,
    tolerance: float,
    *,
    positive: bool = False,
) -> Minimum:
    """Minimise to violations of `tolerance` units. H [k, step] as from `Gram.of`, may be changed; vectors [k]."""
    k, step = H.shape
    size = -(-step // 64) * 64

    curvature = H[np.arange(k), np.arange(k)]
    alive = curvature[curvature > 0.0]
    scale = np.ones(k)
    if len(alive) and alive.max() > _SPREAD * alive.min():
        # Powers of two, so that scaling rounds nothing.
        scale[curvature > 0.0] = np.ldexp(1.0, np.frexp(np.sqrt(alive))[1])
        H[:, :k] /= scale
        H /= scale[:, None]
        q, l1, unit, b = q / scale, l1 / scale, unit / scale, b * scale
        alive = H[np.arange(k), np.arange(k)][curvature > 0.0]
    typical = _median(alive) if len(alive) else 1.0
    numbers = np.zeros(quadratic.NUMBERS)
    numbers[: quadratic.WORST] = tolerance, _SIGMA / typical, _GROWTH, _SWEEPS, _NEWTONS, float(positive)
    vectors = np.zeros((quadratic.VECTORS, size))
    for row, values in ((quadratic.Q, q), (quadratic.B, b), (quadratic.L1, l1), (quadratic.UNIT, unit)):
        vectors[row, :k] = values
    words = np.zeros(quadratic.J + step, np.int64)
    room = quadratic.QuadraticWorkspace(words, H, vectors, np.empty((size, size)), numbers)
    step_ = make_step("minimise", quadratic.minimise_worker, independent(1), np.ones(1, np.int64), room)
    crew.run_pass(step_, profile, k**3 // 24)  # as much as a Newton step, which multiplies eight numbers at a time
    worst, swept, stepped = numbers[[quadratic.WORST, quadratic.SWEPT, quadratic.STEPPED]]
    return Minimum(vectors[quadratic.B, :k] / scale, float(worst), int(swept), int(stepped))


def _median(values: Floats) -> float:
    """`np.median` of a few finite numbers, without its overhead of thirty microseconds."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2.0)
