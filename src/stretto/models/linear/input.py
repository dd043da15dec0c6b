"""Input of linear models: validate and convert X, y and weights, and define the problem that is solved.

The solvers minimise Σ weight·loss + penalty, so the constants of scikit-learn's objectives go into the weights. For
squared loss the weights add up to the number of samples n, and α·n is the penalty. For logistic loss each weight is C
times the sample's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.sparse_structure import is_sparse
from stretto.data.design.design import LARGEST, Design, for_kernels, refuse_unbounded
from stretto.data.design.design_files import DesignFiles, names_files
from stretto.data.design.row_design import RowDesign
from stretto.errors import DataError
from stretto.models import checks
from stretto.models.sklearn_base import check_sample_weight, compute_class_weight
from stretto.models.validation import validated
from stretto.solvers.linear.few_features.choice import suits_rows
from stretto.solvers.linear.regression import AnyDesign, Fit, PenaltySolver, RegressionProblem, uniform

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.solvers.linear.working_sets import WorkingSetSolver

Floats = NDArray[np.float64]

_ROUNDING = 2.0**-46  # of the objective: smaller gaps are rounding, so the solver aims at no less


@dataclass(frozen=True, eq=False)
class LinearInput:
    """Validated input of a fit."""

    X: Any  # array, sparse matrix or DesignFiles, as given
    y: NDArray[Any]
    design: AnyDesign  # design of X; without rows until X is laid out
    weight: Floats  # sample weights as given, or ones

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.X.shape[0]), int(self.X.shape[1])


def read(estimator: Any, X: Any, y: Any, sample_weight: Any, *, numeric: bool, by_solver: bool = False) -> LinearInput:
    """Validate the arguments of fit by scikit-learn's rules, and convert those in memory.

    numeric : y holds numbers, not class names
    by_solver : the first pass of the solver over a dense X, `Moments.of` or a survey, finds NaN and infinity
    """
    return converted(taken(estimator, X, y, sample_weight, numeric=numeric), by_solver=by_solver)


def converted(
    given: LinearInput,
    *,
    by_solver: bool = False,
    by_newton: bool = False,
    by_rows: bool = False,
    smooth: bool = False,
) -> LinearInput:
    """The input with a design, if X is in memory; `laid_out` handles files. by_solver: see `read`.

    by_newton : X is read by a solver of `solver_of` for classes alone, which finds NaN and infinity in dense X
    by_rows : sparse X that suits Newton steps is stored by rows
    smooth : there is no L1 penalty
    """
    if isinstance(given.X, DesignFiles):
        return given
    # Sums with weights do not contain values of samples that weigh nothing.
    later = by_solver and uniform(given.weight)
    if is_sparse(given.X):
        by_rows = by_rows and suits_rows(*given.shape, given.X.nnz, smooth=smooth)
        return replace(given, design=RowDesign.of(given.X) if by_rows else Design.of(given.X, checked=True))
    later = later or by_newton
    return replace(given, design=Design.of(given.X, checked=True, bounded=later))


def laid_out(given: LinearInput, crew: Crew) -> LinearInput:
    """The input with the design in the form that solvers take.

    The design is in local memory, or in parts on the nodes of the crew, which read files themselves.
    """
    parts = crew.parts()
    if parts is None:
        return replace(given, design=given.X.design()) if isinstance(given.X, DesignFiles) else given
    from stretto.solvers.linear.node_columns import NodeDesign  # here, not above: it imports Numba

    if isinstance(given.X, DesignFiles):
        return replace(given, design=NodeDesign.read(given.X, parts))
    design = given.design.columns if isinstance(given.design, RowDesign) else given.design
    assert isinstance(design, Design)
    design.refuse_unbounded_values()
    return replace(given, design=NodeDesign.sent(design, parts))


def taken(estimator: Any, X: Any, y: Any, sample_weight: Any, *, numeric: bool = False) -> LinearInput:
    """`read` for callers that lay X out themselves: the design is empty."""
    owner = type(estimator).__name__
    if names_files(X):
        files, y = labelled(X, y, owner=owner)
        estimator.n_features_in_ = files.shape[1]
        vars(estimator).pop("feature_names_in_", None)
        weight = weights(sample_weight, shape_of(files), owner=owner, shared=numeric)
        return LinearInput(files, numbers(y, owner=owner) if numeric else y, Design((0, 0)), weight)
    if not isinstance(X, np.ndarray):
        X = checks.plain(X, owner=owner)
    if _plain_arrays(X, y):
        estimator.n_features_in_ = int(X.shape[1])
        vars(estimator).pop("feature_names_in_", None)
    else:
        X, y = validated(
            estimator,
            checks.plain(X, owner=owner) if isinstance(X, np.ndarray) else X,
            checks.plain(y, owner=owner, name="y"),
            accept_sparse=True,
            dtype="numeric",
            ensure_all_finite=False,
            y_numeric=numeric,
        )  # the caller that lays the data out checks for NaN and infinity, and reports their position
    weight = weights(sample_weight, X, owner=owner, shared=numeric)
    if numeric:
        y = numbers(y, owner=owner)
    return LinearInput(X, np.asarray(y), Design((0, 0)), weight)


def taken_outputs(estimator: Any, X: Any, y: Any, sample_weight: Any) -> LinearInput:
    """`taken` for y [n, k], several numbers for each sample."""
    owner = type(estimator).__name__
    if names_files(X):
        raise DataError(f"{owner}: files hold one label for each sample; give X and y [n, k] as arrays")
    if is_sparse(y):
        raise DataError(f"{owner}: y is sparse; give its numbers as an array: y.toarray()")
    X, y = validated(
        estimator,
        checks.plain(X, owner=owner),
        checks.plain(y, owner=owner, name="y"),
        accept_sparse=True,
        dtype="numeric",
        ensure_all_finite=False,
        multi_output=True,
    )
    if y.ndim != 2:
        raise DataError(
            f"{owner}: y has shape {y.shape}, not [samples, targets]; for one target use Lasso or ElasticNet, or "
            "y.reshape(-1, 1)"
        )
    target = np.stack([numbers(y[:, t], owner=owner) for t in range(y.shape[1])], axis=1)
    return LinearInput(X, target, Design((0, 0)), weights(sample_weight, X, owner=owner, shared=True))


def _plain_arrays(X: Any, y: Any) -> bool:
    """Whether scikit-learn's validation, which takes as long as a small fit, would find nothing to change or refuse.

    X: an array, or a sparse matrix whose structure was verified
    """
    known = type(X) is np.ndarray or (is_sparse(X) and X.format in ("csr", "csc"))
    if not known or type(y) is not np.ndarray or X.ndim != 2 or y.ndim != 1:
        return False
    kinds = X.dtype in (np.float64, np.float32) and y.dtype in (np.float64, np.float32, np.int64, np.bool_)
    if not kinds or not min(X.shape) or X.shape[0] != len(y) or not y.flags.c_contiguous:
        return False
    return y.dtype.kind != "f" or bool(np.isfinite(np.einsum("i,i->", y, y, dtype=np.float64)))


def matrix_of(given: LinearInput) -> Any:
    """X in memory."""
    return given.X.design().matrix if isinstance(given.X, DesignFiles) else given.X


def labelled(path: Any, y: Any, *, owner: str) -> tuple[DesignFiles, Floats]:
    """Files and the labels in them."""
    if y is not None:
        raise DataError(f"{owner}: X names files, whose labels are y; leave y out, or give X as an array as well")
    files = DesignFiles.of(path, owner)
    return files, files.labels


def shape_of(X: Any) -> Any:
    """X itself; for files, an array of their shape that takes no memory."""
    return np.broadcast_to(np.float32(0.0), X.shape) if isinstance(X, DesignFiles) else X


def numbers(y: Any, *, owner: str) -> Floats:
    """[n] one number for each sample, in the type that kernels take."""
    try:
        target = for_kernels(np.asarray(y, np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{owner}: y must hold a number for each sample ({error}); for labels, use LogisticRegression"
        ) from error
    if target.ndim != 1:
        raise DataError(f"{owner}: y has shape {target.shape}; give one number for each sample")
    if not np.einsum("i,i->", target, target) <= LARGEST and not np.abs(target).max(initial=0.0) <= LARGEST:
        at = int(np.argmin(np.abs(target) <= LARGEST))
        raise DataError(
            f"{owner}: y holds {target[at]} at sample {at}: squares of such numbers overflow; scale y so that none is "
            f"above {LARGEST:g} in size"
        )
    return target


def weights(sample_weight: Any, X: Any, *, owner: str, shared: bool = False) -> Floats:
    """[n] sample weights, ones if None; some must be above 0, and their sum must be finite.

    shared : ones need no memory: they are one number, as `uniform` detects
    """
    if sample_weight is None and shared:
        return np.broadcast_to(np.float64(1.0), (X.shape[0],))
    if sample_weight is None:
        return np.ones(X.shape[0])
    given = checks.plain(sample_weight, owner=owner, name="sample_weight")
    weight: Floats = check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if not 1.0 / LARGEST <= total <= LARGEST:
        what = "are all 0" if total == 0 else f"add up to {total:g}, out of the range of what can be computed with"
        raise DataError(f"{owner}: the sample weights {what}; give weights around 1")
    return for_kernels(weight)


def features(estimator: Any, X: Any) -> Any:
    """X of predict with the columns of fit: floats, dense or sorted by row, so that any layout gives the same sums."""
    X = checks.plain(X, owner=type(estimator).__name__)
    kinds = [np.float64, np.float32]
    # NaN and infinity are checked below, where the message can give their position.
    rules = {"accept_sparse": ("csr", "csc", "coo"), "dtype": kinds, "ensure_all_finite": False}
    X = validated(estimator, X, reset=False, **rules)
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X)
        refuse_unbounded(X.ravel(), lambda at: divmod(at, X.shape[1]))
        return X
    if X.format == "coo" or not X.has_canonical_format:
        X = X.tocsr(copy=True)
        X.sum_duplicates()

    def place(at: int) -> tuple[int, int]:
        found = int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
        return found if X.format == "csr" else found[::-1]

    refuse_unbounded(X.data, place)
    return X


def class_weights(asked: Any, classes: NDArray[Any], y: NDArray[Any], weight: Floats) -> Floats:
    """[k] the weight of each class: numbers from 0 up."""
    try:
        found = np.asarray(compute_class_weight(asked, classes=classes, y=y, sample_weight=weight), np.float64)
    except TypeError as error:
        raise DataError(f"class_weight={checks.shown(asked)} holds what is no number ({error})") from error
    if not np.all((found >= 0) & (found <= LARGEST)):
        raise DataError(f"class_weight={checks.shown(asked)}: weights are numbers from 0 to {LARGEST:g}")
    return found


def squared(
    design: AnyDesign, y: NDArray[Any], weight: Floats, *, intercept: bool, positive: bool, standardize: bool
) -> RegressionProblem:
    """Least squares, with weights scaled to add up to the number of samples."""
    weight, target = balanced(weight), np.asarray(y, np.float64)
    scale = design.spread(weight) if standardize else None
    return RegressionProblem(design, target, weight, "squared", bool(intercept), bool(positive), scale)


def balanced(weight: Floats) -> Floats:
    """Sample weights scaled to add up to their number."""
    return weight if uniform(weight) else weight * (len(weight) / weight.sum())


def curved(loss: str, given: LinearInput, *, intercept: bool, epsilon: float = 0.0) -> RegressionProblem:
    """A loss of numbers that is not a parabola, with weights scaled to add up to the number of samples."""
    target = np.asarray(given.y, np.float64)
    return RegressionProblem(given.design, target, balanced(given.weight), loss, bool(intercept), epsilon=epsilon)


def curved_gap(works: PenaltySolver, tol: float) -> float:
    """tol times the loss of the model without features."""
    setting = cast("WorkingSetSolver", works).setting
    return max(float(tol) * setting.zero.at.value, setting.loss.rounding)


def squared_gap(works: PenaltySolver, tol: float) -> float:
    """tol times the weighted sum of squares of y, centred if there is an intercept: scikit-learn's meaning."""
    mean, square, size = works.target_spread()
    # Rounding of ȳ limits the accuracy of y − ȳ.
    return max(float(tol) * square, _ROUNDING * square + 4.0 * np.finfo(np.float64).eps * abs(mean) * size)


def logistic(
    design: AnyDesign, signs: Floats, weight: Floats, *, intercept: bool, scale: Floats | None
) -> RegressionProblem:
    """Log loss of y = −1 or +1."""
    return RegressionProblem(design, signs, weight, "logistic", bool(intercept), False, scale)


def logistic_gap(problem: RegressionProblem, tol: float) -> float:
    """tol times the loss of the model without features."""
    total, up = float(problem.weight.sum()), float((problem.weight * (problem.y > 0)).sum())
    empty = total * math.log(2.0)
    loss = -sum(part * math.log(part / total) for part in (up, total - up) if part > 0) if problem.intercept else empty
    return max(float(tol) * loss, _ROUNDING * empty)


def beginning(coef: Floats, intercept: float, problem: RegressionProblem) -> Fit:
    """Coefficients [p] to start from, limited to what the problem allows."""
    allowed = np.maximum(coef, 0.0) if problem.positive else np.array(coef, np.float64)
    return Fit(
        coef=allowed, intercept=float(intercept), gap=math.inf, objective=math.inf, rounds=0, epochs=0, converged=False
    )
