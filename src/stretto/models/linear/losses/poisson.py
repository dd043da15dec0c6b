"""`PoissonRegressor`: Poisson regression with an elastic-net penalty, for counts and rates.

model = st.PoissonRegressor(alpha=0.01, l1_ratio=1.0).fit(X, counts)
model.predict(X)                                # expected counts
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.models import checks
from stretto.runtime.runtimes import Runtime
from stretto.solvers.linear.regression import PenaltySolver, RegressionProblem

from ..input import LinearInput, curved, curved_gap, numbers, read, taken, weights
from ..plan import WORKING_SETS
from ..regressor import UNPENALISED_LOSS, PenalisedRegressor, penalty_text

Floats = NDArray[np.float64]


class PoissonRegressor(PenalisedRegressor):
    """Poisson regression: (1/2n) Σ deviance(y, exp(Xw + b)) + α·l1_ratio·‖w‖₁ + ½·α·(1 − l1_ratio)·‖w‖².

    The deviance of a sample is 2·(y·log(y/μ) − y + μ) with μ = exp(xw + b). With `l1_ratio=0`, the default, this is the
    objective of scikit-learn's `PoissonRegressor`; `tol` means another thing here.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    l1_ratio : float, default 0.0
        Share of the penalty that is ‖w‖₁, from 0 to 1; above 0 coefficients become exactly zero.
    fit_intercept : bool, default True
        Learn b, which is not penalised. The data need not be centred, and sparse data stay sparse.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol times the
        objective.
    max_iter : int, default 100
        The most rounds; a round works on one set of features.
    warm_start : bool, default False
        Start from the coefficients of the last fit.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X reads, at most every core.
        Never changes the answer.
    runtime : runtime or None, default None
        `st.Serial()`, `st.Threads(n)`, `st.Cluster(…)` or `st.Simulated(…)`; overrides n_jobs. Never changes
        the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    verbose : int, default 0
        0 quiet, 1 a line for each round.

    Attributes
    ----------
    coef_ : ndarray of float64 [p]
        Coefficients.
    intercept_ : float
        Intercept.
    sparse_coef_ : sparse matrix [1, p]
        Coefficients as CSR.
    dual_gap_ : float
        The duality gap reached, in the units of the objective.
    objective_ : float
        The value of the objective.
    n_iter_ : int
        Rounds made.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : ndarray of str [p]
        Names of the features, where X has names.
    plan_ : JobPlan
        The plan that was run.
    fingerprint_ : str
        Its hash.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 20))
    >>> model = st.PoissonRegressor(alpha=0.4, l1_ratio=1.0).fit(X, rng.poisson(np.exp(X[:, 4])))
    >>> np.flatnonzero(model.coef_)
    array([4])
    """

    _loss = "poisson"
    _unpenalised = UNPENALISED_LOSS

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 100,
        warm_start: bool = False,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.verbose = verbose

    def predict(self, X: Any) -> NDArray[Any]:
        """Expected counts exp(Xw + b) [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._expected(self._linear(X))

    def _expected(self, z: NDArray[Any]) -> NDArray[Any]:
        """exp(z) [n]; DataError where it overflows."""
        with np.errstate(over="ignore"):
            found = np.asarray(np.exp(z))
        if not np.all(np.isfinite(found)):
            at = int(np.argmax(z))
            raise DataError(
                f"{type(self).__name__}: the expected count of sample {at} is exp({z[at]:.6g}), too large for a "
                "number; its features are far outside of those of fit, or not scaled like them"
            )
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D²: the share of the deviance that the model explains, at most 1; 0 for the mean of y.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        y : array [n]
            Counts.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        """
        owner, z = type(self).__name__, self._linear(X)
        found = self._expected(z)
        target = _counts(numbers(checks.plain(y, owner=owner, name="y"), owner=owner), owner)
        if len(target) != len(z):
            raise DataError(
                f"{owner}.score: X has {len(z):,} samples and y has {len(target):,}; give one count for each sample"
            )
        weight = weights(sample_weight, found, owner=owner)
        mean = float(np.average(target, weights=weight))
        left = _deviance(target, found, z, weight)
        counted = target[weight > 0.0]
        if counted.min() == counted.max():  # nothing to explain: 1 for a perfect model, else 0, as in scikit-learn
            return float(left <= 0.0)
        base = np.full(len(target), mean)
        return 1.0 - left / _deviance(target, base, np.log(base), weight)

    def _taken(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        return self._checked(taken(self, X, y, sample_weight, numeric=True))

    def _read(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        return self._checked(read(self, X, y, sample_weight, numeric=True, by_solver=True))

    def _checked(self, given: LinearInput) -> LinearInput:
        owner = type(self).__name__
        _counts(given.y, owner)
        if not np.any((given.y > 0.0) & (given.weight > 0.0)):
            raise DataError(f"{owner}: all counts in y are 0, so the best intercept is −∞; give some above 0")
        return given

    def _problem(self, given: LinearInput) -> RegressionProblem:
        return curved("poisson", given, intercept=self.fit_intercept)

    def _goal(self, works: PenaltySolver) -> tuple[float, float]:
        return curved_gap(works, self.tol), float(self.tol)

    def _formula(self) -> str:
        return "(1/n) Σ (e^z − y z + y log y − y)" + penalty_text(self.alpha, self.l1_ratio)

    def _solver_text(self) -> str:
        return f"{WORKING_SETS}; a set is solved by Newton steps"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _counts(y: Floats, owner: str) -> Floats:
    """y; DataError where it is negative."""
    if y.min(initial=0.0) < 0.0:
        at = int(np.argmin(y))
        raise DataError(f"{owner}: y holds {y[at]:g} at sample {at}; counts and rates are 0 or more")
    return y


def _deviance(y: Floats, mean: Floats, z: Floats, weight: Floats) -> float:
    """Half of the deviance, summed. z: the logarithm of mean, finite where mean underflows"""
    each = mean - y + y * (np.log(np.where(y > 0.0, y, 1.0)) - z)
    return float(np.sum(weight * each))
