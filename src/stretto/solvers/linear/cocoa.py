"""CoCoA (Jaggi et al. 2014, Ma et al. 2015, Smith et al. 2018): what one part computes in a round.

The problem is s·Σ loss(y_i, x_i·w) + l1·‖w‖₁ + ½·l2·‖w‖². With l1 > 0 the columns of X are cut into parts, and the
shared vector is v = Xw (ProxCoCoA+). With l1 = 0 the samples are, and the shared vector is w = Σ a_i x_i / l2, where a
are the dual variables. Either way a part has a matrix A_k whose rows are what it owns, and one variable for each:

    variables, change = improve(problem, A, y, norm, variables, shared, sigma, order)     # of one part, in one round

`cocoa_gap` has the duality gap.
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

SMOOTHNESS = {"squared": 1.0, "logistic": 0.25}  # bounds of the second derivative of a loss


@dataclass(frozen=True)
class CocoaProblem:
    """The objective, without the data."""

    loss: str  # "squared", "logistic", "hinge" or "squared_hinge"
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
    if given.shape == (samples, 1):
        raise DataError(f"cocoa: y has shape {given.shape}, a column; give y.ravel(), one label for each sample")
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


def shared_of(problem: CocoaProblem, matrix: Any, y: Floats, variables: Floats) -> Floats:
    """What the variables of a part contribute to the shared vector, computed anew."""
    if problem.by_columns:
        return np.asarray(matrix.T @ variables, np.float64)
    signed = variables if problem.loss == "squared" else y * variables
    return np.asarray(matrix.T @ signed, np.float64) / problem.l2
