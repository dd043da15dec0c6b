"""CoCoA (Jaggi et al. 2014, Ma et al. 2015, Smith et al. 2018): what one part computes in a round, and the duality gap.

The problem is s·Σ loss(y_i, x_i·w) + l1·‖w‖₁ + ½·l2·‖w‖². With l1 > 0 the columns of X are cut into parts, and the
shared vector is v = Xw (ProxCoCoA+). With l1 = 0 the samples are, and the shared vector is w = Σ a_i x_i / l2, where a
are the dual variables. Either way a part has a matrix A_k whose rows are what it owns, and one variable for each:

    variables, change = improve(problem, A, y, norm, variables, shared, sigma, order)     # of one part, in one round
    sums = part_sums(problem, A, y, variables, shared)                                    # of one part
    objective, gap = certificate(problem, y, shared, sums_of_all_parts)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design, for_kernels
from stretto.errors import DataError
from stretto.kernels.linear import cocoa_columns, dual_losses
from stretto.kernels.samples import cocoa_rows
from stretto.solvers.softmax.rows import DesignRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SUMS = max(cocoa_columns.SUMS, cocoa_rows.SUMS)  # numbers that a part contributes to the gap
SMOOTHNESS = {"squared": 1.0, "logistic": 0.25}  # bounds of the second derivative of a loss


@dataclass(frozen=True)
class CocoaProblem:
    """The objective, without the data."""

    loss: str  # "squared", "logistic" or "hinge"
    weight: float  # s
    l1: float
    l2: float

    @property
    def by_columns(self) -> bool:
        """Whether columns are cut into parts; otherwise samples."""
        return self.l1 > 0.0

    @property
    def code(self) -> int:
        """Number of the loss in kernels."""
        return dual_losses.CODES[self.loss]


@dataclass(frozen=True, eq=False)
class CocoaInput:
    """The data in the form in which parts use them."""

    matrix: Any  # [m, length] what parts own, by rows: the columns of X, or its samples
    y: Floats  # [n] numbers, or −1 and +1
    norm: Floats  # [m] squared norms of the rows of the matrix
    classes: NDArray[Any] | None  # [2] the labels of −1 and +1


def lay_out(problem: CocoaProblem, X: Any, y: Any) -> CocoaInput:
    """Check the data, and store them by columns or by samples."""
    if problem.by_columns:
        matrix = Design.of(X).matrix.T
        samples = matrix.shape[1]
    else:
        rows = DesignRows.of(X)
        samples = rows.shape[0]
        if rows.sparse:
            import scipy.sparse

            indptr, indices, values = rows.parts
            matrix = scipy.sparse.csr_array((values, indices, indptr), shape=rows.shape, copy=False)
        else:
            matrix = rows.parts[0]
    labels, classes = _labels(problem.loss, y, samples)
    norm = np.empty(matrix.shape[0])
    values, _, indptr, length = arrays_of(matrix)
    cocoa_rows.row_norms(values, indptr, length, norm)
    return CocoaInput(matrix, labels, norm, classes)


def _labels(loss: str, y: Any, samples: int) -> tuple[Floats, NDArray[Any] | None]:
    given = np.asarray(y)
    if given.shape != (samples,):
        raise DataError(f"cocoa: y has shape {given.shape} and X {samples} samples; give one label for each sample")
    if loss != "squared":
        classes = np.unique(given)
        if len(classes) != 2:
            raise DataError(
                f"cocoa: loss={loss!r} needs two classes, and y has {len(classes)}; give one against the rest"
            )
        return np.where(given == classes[1], 1.0, -1.0), classes
    try:
        numbers = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"cocoa: loss='squared' needs numbers, and y does not hold them: {error}") from None
    if not np.isfinite(numbers).all():
        raise DataError("cocoa: y holds NaN or infinity; drop these samples first")
    return numbers, None


def arrays_of(matrix: Any) -> tuple[NDArray[Any], NDArray[Any], Ints, int]:
    """(values, indices, indptr, length of a row) as `kernels/samples/sample_rows.py` takes them."""
    length = int(matrix.shape[1])
    if hasattr(matrix, "indptr"):
        indptr = for_kernels(matrix.indptr.astype(np.int64, copy=False))
        return for_kernels(matrix.data), for_kernels(matrix.indices), indptr, length
    return for_kernels(np.ascontiguousarray(matrix).reshape(-1)), np.empty(0, np.int32), np.empty(0, np.int64), length


def entries_of(matrix: Any) -> int:
    """Stored numbers of a part."""
    return int(matrix.nnz) if hasattr(matrix, "indptr") else int(matrix.size)


def overlap(matrix: Any, parts: int) -> int:
    """The most parts that have a non-zero at one position of the shared vector: σ′ = γ times this is safe.

    It is at most the number of parts. Squares of sums of this many numbers are at most as many times the sums of their
    squares, position by position.
    """
    if not hasattr(matrix, "indptr"):
        return parts
    m = matrix.shape[0]
    cuts = matrix.indptr[[part * m // parts for part in range(parts + 1)]]
    met = np.zeros(matrix.shape[1], np.int64)
    for first, last in pairwise(cuts):
        met[np.unique(matrix.indices[first:last])] += 1
    return max(1, int(met.max(initial=1)))


def improve(
    problem: CocoaProblem,
    matrix: Any,
    y: Floats,
    norm: Floats,
    variables: Floats,
    shared: Floats,
    sigma: float,
    order: Ints,
) -> tuple[Floats, Floats]:
    """Improve the subproblem of a part by coordinate descent in this order.

    Returns
    -------
    change of the variables, and what it changes of the shared vector
    """
    values, indices, indptr, length = arrays_of(matrix)
    new, change, code, y, norm = variables.copy(), np.zeros(length), problem.code, for_kernels(y), for_kernels(norm)
    if problem.by_columns:
        slope = np.empty(length)
        cocoa_columns.gradient(code, y, for_kernels(shared), problem.weight, slope)
        curve = sigma * problem.weight * SMOOTHNESS[problem.loss]
        cocoa_columns.descend_columns(
            values, indices, indptr, length, order, new, slope, change, norm, problem.l1, problem.l2, curve
        )
    else:
        cocoa_rows.descend_rows(
            code, values, indices, indptr, length, order, y, new, shared.copy(), change, norm, problem.weight,
            problem.l2, sigma,
        )  # fmt: skip
    return new - variables, change


def part_sums(problem: CocoaProblem, matrix: Any, y: Floats, variables: Floats, shared: Floats) -> Floats:
    """[4] what a part contributes to the duality gap: see the slots of the kernels."""
    values, indices, indptr, length = arrays_of(matrix)
    sums, y, mine, shared = np.zeros(SUMS), for_kernels(y), for_kernels(variables), for_kernels(shared)
    if problem.by_columns:
        slope = np.empty(length)
        cocoa_columns.gradient(problem.code, y, shared, problem.weight, slope)
        cocoa_columns.column_sums(values, indices, indptr, length, mine, slope, problem.l1, sums)
    else:
        cocoa_rows.row_sums(
            problem.code, values, indices, indptr, length, y, mine, shared, problem.weight, sums
        )  # fmt: skip
    return sums


def certificate(problem: CocoaProblem, y: Floats, shared: Floats, sums: Floats) -> tuple[float, float]:
    """(objective, duality gap) from the shared vector and the sums [K, 4] of all parts, added in their order."""
    shared = for_kernels(shared)
    if not problem.by_columns:
        loss, gap = (float(_total(sums[:, slot])) for slot in (cocoa_rows.LOSS, cocoa_rows.GAP))
        return loss + 0.5 * problem.l2 * float(_total(shared * shared)), gap
    code, y, s = problem.code, for_kernels(y), problem.weight
    norm_1, norm_2 = float(_total(sums[:, cocoa_columns.NORM_1])), float(_total(sums[:, cocoa_columns.NORM_2]))
    objective = float(cocoa_columns.smooth_value(code, y, shared, s)) + problem.l1 * norm_1 + 0.5 * problem.l2 * norm_2
    return objective, objective - _dual(problem, y, shared, sums)


def _dual(problem: CocoaProblem, y: Floats, v: Floats, sums: Floats) -> float:
    """The better of two dual values: at a multiple of ∇f(v) that meets all bounds, and at ∇f(v) itself if l2 > 0."""
    code, s = problem.code, problem.weight
    largest = float(sums[:, cocoa_columns.LARGEST].max())
    share = problem.l1 / largest if largest > 0.0 else np.inf
    most = cocoa_columns.best_share(y, v) if problem.loss == "squared" else 1.0
    share = max(0.0, min(share, most))
    best = 0.0 if not np.isfinite(share) else -float(cocoa_columns.smooth_conjugate(code, y, v, s, share))
    if problem.l2 > 0.0:
        over = float(_total(sums[:, cocoa_columns.EXCESS])) / (2.0 * problem.l2)
        best = max(best, -float(cocoa_columns.smooth_conjugate(code, y, v, s, 1.0)) - over)
    return best


def _total(numbers: Floats) -> float:
    """The sum in order: NumPy's own order depends on the processor."""
    return float(np.add.accumulate(numbers)[-1])
