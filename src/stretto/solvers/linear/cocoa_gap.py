"""The duality gap of CoCoA from numbers that parts add up, so that no vector is exchanged for it.

    sums = part_sums(problem, A, y, norm, variables, shared, part, parts)      # of one part, [slots_of(problem)]
    objective, gap = certificate(problem, sums_of_all_parts)

A part contributes the sums over its own rows. What depends on the shared vector alone is cut into even ranges, one for
each part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.data.design.design import for_kernels
from stretto.kernels.linear import cocoa_columns
from stretto.kernels.samples import cocoa_rows

from .cocoa import CocoaProblem, Floats, arrays_of

# Multiples of the gradient at which the conjugate of the logistic loss is evaluated. The right one is known only when
# all parts have reported. It is convex, so a chord between two of them is never below it, and the gap stays a bound.
SHARES = np.concatenate([1.0 - 0.5 ** np.arange(1, 25), [1.0]])

_OWN = cocoa_columns.SUMS  # slots before those of the shared vector


def slots_of(problem: CocoaProblem) -> int:
    """Numbers that a part reports. The last one is Σ |a_j|·‖x_j‖, the scale of rounding errors of the shared vector."""
    if not problem.by_columns:
        return cocoa_rows.SUMS + 1
    return _OWN + (2 if problem.loss == "squared" else 1 + len(SHARES)) + 1


def part_sums(
    problem: CocoaProblem,
    matrix: Any,
    y: Floats,
    norm: Floats,
    variables: Floats,
    shared: Floats,
    part: int = 0,
    parts: int = 1,
) -> Floats:
    """What a part contributes to the duality gap: see the slots of the kernels."""
    values, indices, indptr, length = arrays_of(matrix)
    first, last = part * length // parts, (part + 1) * length // parts
    sums, y, mine, shared = np.zeros(slots_of(problem)), for_kernels(y), for_kernels(variables), for_kernels(shared)
    sums[-1] = _total(np.abs(mine) * np.sqrt(norm))
    if not problem.by_columns:
        cocoa_rows.row_sums(
            problem.code, values, indices, indptr, length, y, mine, shared, problem.weight, first, last, sums
        )
        sums[-1] /= problem.l2
        return sums
    slope = np.empty(length)
    cocoa_columns.gradient(problem.code, y, shared, problem.weight, slope)
    cocoa_columns.column_sums(values, indices, indptr, length, mine, slope, problem.l1, sums)
    rest = sums[_OWN:-1]
    if problem.loss == "squared":
        cocoa_columns.residual_sums(y, shared, first, last, rest)
    else:
        cocoa_columns.logistic_sums(y, shared, problem.weight, first, last, SHARES, rest)
    return sums


def certificate(problem: CocoaProblem, sums: Floats) -> tuple[float, float]:
    """(objective, duality gap) from the sums [K, slots] of all parts, added in their order."""
    added = np.array([_total(sums[:, slot]) for slot in range(sums.shape[1])])
    if not problem.by_columns:
        loss, gap, norm = (float(added[slot]) for slot in (cocoa_rows.LOSS, cocoa_rows.GAP, cocoa_rows.NORM))
        return loss + 0.5 * problem.l2 * norm, gap
    rest = added[_OWN:-1]
    value = 0.5 * problem.weight * float(rest[0]) if problem.loss == "squared" else float(rest[0])
    objective = value + problem.l1 * float(added[cocoa_columns.NORM_1])
    objective += 0.5 * problem.l2 * float(added[cocoa_columns.NORM_2])
    return objective, objective - _dual(problem, float(sums[:, cocoa_columns.LARGEST].max()), added, rest)


def _dual(problem: CocoaProblem, largest: float, added: Floats, rest: Floats) -> float:
    """The better of two dual values: at a multiple of ∇f(v) that meets all bounds, and at ∇f(v) itself if l2 > 0."""
    most = 1.0
    if problem.loss == "squared":  # without bounds the best multiple is y·r/‖r‖²
        most = float(rest[1] / rest[0]) if rest[0] > 0.0 else 0.0
    share = most if largest <= 0.0 else min(problem.l1 / largest, most)
    best = -_conjugate(problem, rest, max(0.0, share))
    if problem.l2 > 0.0:
        over = float(added[cocoa_columns.EXCESS]) / (2.0 * problem.l2)
        best = max(best, -_conjugate(problem, rest, 1.0) - over)
    return best


def _conjugate(problem: CocoaProblem, rest: Floats, share: float) -> float:
    """f*(share·∇f(v)), or a number above it."""
    if problem.loss == "squared":
        return problem.weight * (0.5 * share * share * float(rest[0]) - share * float(rest[1]))
    return float(np.interp(share, np.concatenate([[0.0], SHARES]), np.concatenate([[0.0], rest[1:]])))


def _total(numbers: Floats) -> float:
    """The sum in order: NumPy's own order depends on the processor."""
    return float(np.add.accumulate(numbers)[-1]) if len(numbers) else 0.0
