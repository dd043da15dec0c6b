"""Many steps of one coordinate at once: what a sparse stochastic step leaves undone for the features it does not meet.

Such a step moves w by the same rule every time: w ← a·S(w − d, l), where d is the drift (step size times the
coordinate of a full gradient), S(·, l) the soft threshold of an L1 penalty, and a = 1 / (1 + step size·l2). On one side
of zero the rule is linear, and it crosses zero at most once, so t steps have a closed form with tables of powers.

A second sequence may follow w: v ← rest·v + share·w + pull, with w after the step. It is a sum of the iterates (rest =
share = 1, pull = 0), or the coupled sequence of Katyusha. It has a closed form too.

    powers[t, 0] = aᵗ                        w after t steps is aᵗ w − c·powers[t, 1], c = a (d ± l)
    powers[t, 1] = Σ_{s < t} aˢ
    powers[t, 2] = restᵗ                     v is restᵗ v + share (w powers[t, 3] − c powers[t, 4]) + pull powers[t, 5]
    powers[t, 3] = Σ_{s ≤ t} restᵗ⁻ˢ aˢ, powers[t, 4] and powers[t, 5] the same with powers[s, 1] and 1 for aˢ; s ≥ 1
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner, kernel, merged
from stretto.kernels.numeric.vector import get

POWERS = 6  # columns of the tables


@kernel
def fill_powers(a, rest, powers):
    """Fill the tables [t + 1, 6]."""
    powers[0, :] = 0.0
    powers[0, 0] = powers[0, 2] = 1.0
    for t in range(1, powers.shape[0]):
        powers[t, 0] = a * powers[t - 1, 0]
        powers[t, 1] = powers[t - 1, 1] + powers[t - 1, 0]
        powers[t, 2] = rest * powers[t - 1, 2]
        powers[t, 3] = rest * powers[t - 1, 3] + powers[t, 0]
        powers[t, 4] = rest * powers[t - 1, 4] + powers[t, 1]
        powers[t, 5] = rest * powers[t - 1, 5] + 1.0


@inner
def _follow(w, v, c, t, share, pull, powers):
    """v after t steps on one side of zero."""
    if share == 0.0:
        return v
    return powers[t, 2] * v + share * (w * powers[t, 3] - c * powers[t, 4]) + pull * powers[t, 5]


@inner
def _same_side(there, w):
    """Whether both are positive or both negative; their product might underflow."""
    return there > 0.0 if w > 0.0 else there < 0.0


@inner
def _last_before_zero(w, c, t, powers):
    """The last step before |w| reaches zero; it does so by step t."""
    low, high = 0, t
    while high - low > 1:
        middle = (low + high) // 2
        if _same_side(powers[middle, 0] * w - c * powers[middle, 1], w):
            low = middle
        else:
            high = middle
    return low


@inner(apart=True)
def lazy_steps(w, v, t, a, drift, l1, share, pull, powers):
    """(w, v) after t steps. drift, l1: times the step size. share = 0 where no sequence follows."""
    if l1 > 0.0 and w != 0.0:
        side = l1 if w > 0.0 else -l1
        c = a * (drift + side)
        there = powers[t, 0] * w - c * powers[t, 1]
        if _same_side(there, w):
            return there, _follow(w, v, c, t, share, pull, powers)
        before = _last_before_zero(w, c, t, powers)
        v = _follow(w, v, c, before, share, pull, powers)
        u = powers[before, 0] * w - c * powers[before, 1] - drift
        w = a * (u - l1) if u > l1 else (a * (u + l1) if u < -l1 else 0.0)
        v = v if share == 0.0 else powers[1, 2] * v + share * w + pull
        t -= before + 1
    # At zero, or past it: w is on the side that the drift leads to, and stays there.
    c = a * drift
    if l1 > 0.0:
        c = a * (drift - l1) if drift > l1 else (a * (drift + l1) if drift < -l1 else 0.0)
    return powers[t, 0] * w - c * powers[t, 1], _follow(w, v, c, t, share, pull, powers)


@merged
def smooth_steps(w, v, t, a, drift, share, pull, powers):
    """`lazy_steps` without an L1 penalty, the same numbers: short enough to be part of its callers."""
    row, c = POWERS * t, a * drift
    if share != 0.0:
        moved = w * get(powers, row + 3) - c * get(powers, row + 4)
        v = get(powers, row + 2) * v + share * moved + pull * get(powers, row + 5)
    return get(powers, row) * w - c * get(powers, row + 1), v
