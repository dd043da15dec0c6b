"""σ′ measured in every round: how much the changes of the parts overlap.

A round with changes u_k of the shared vector is as good as the theory promises if σ′ ≥ γ·‖Σ u_k‖² / Σ ‖u_k‖². The bound
is 1·γ for changes without overlap and parts·γ for equal ones. It is needed for the changes that are made, not for all
that could be. So σ′ follows the last round: it rises at once to a little above the measured bound, and falls slowly.

No vector is exchanged or kept for it: with γ·Σ u_k = v₁ − v₀, ‖v₁ − v₀‖² = ‖v₁‖² − ‖v₀‖² − 2·Σ v₀·γu_k. Every part adds
two numbers in a round, and all compute the same σ′ in the next one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SQUARES, PRODUCTS, BEFORE, SIGMA = range(4)  # slots of `steps`: Σ ‖u_k‖², Σ v₀·γu_k, ‖v₀‖², σ′ of the last round
STEPS = 4

MARGIN = 1.3  # σ′ is this many times the bound of the last round
FALL = 0.5  # σ′ of the next round, at least, as a share of that of the last one
NOISE = 1e-12  # a squared change below this share of ‖v‖² is not known well enough: σ′ stays


def squared(v: Floats) -> float:
    """‖v‖², summed in order: NumPy's own order depends on the processor."""
    return float(np.add.accumulate(v * v)[-1]) if len(v) else 0.0


def measured_sigma(steps: Floats, v: Floats, gamma: float, least: float, safe: float) -> float:
    """σ′ of this round, from least to safe.

    >>> v = np.array([2.0, 0.0])  # two equal changes [1, 0] of the vector 0
    >>> measured_sigma(np.array([2.0, 0.0, 0.0, 2.0]), v, 1.0, 1.0, 8.0)
    2.6
    >>> v = np.array([1.0, 1.0])  # two changes without overlap
    >>> measured_sigma(np.array([2.0, 0.0, 0.0, 2.0]), v, 1.0, 1.0, 8.0)
    1.3
    """
    sigma = float(steps[SIGMA])
    after = squared(v)
    moved = after - steps[BEFORE] - 2.0 * steps[PRODUCTS]
    if steps[SQUARES] > 0.0 and moved > NOISE * after:
        wanted = MARGIN * float(moved) / (gamma * float(steps[SQUARES]))
        sigma = max(wanted, FALL * sigma)
    return float(min(max(sigma, least, gamma), safe))
