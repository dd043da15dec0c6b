"""`Lasso` and `ElasticNet`: least squares with a penalty that sets coefficients to zero.

    model = st.Lasso(alpha=0.1).fit(X, y)           # X: dense, CSC or CSR
    model.coef_, model.intercept_, model.dual_gap_

Objectives, weights and `tol` mean what they mean in scikit-learn; the same bits come out whatever `n_jobs` is.
"""

from __future__ import annotations

from typing import Any, Literal

from stretto.models import checks
from stretto.runtime.runtimes import Runtime
from stretto.schedule.spec import Schedule
from stretto.schedule.working_sets import WorkingSets
from stretto.solvers.linear.regression import RegressionProblem

from .input import LinearInput, read, squared
from .regressor import PenalisedRegressor, Regressor, penalty_text


class LeastSquares(Regressor):
    """Base class of regressors with the squared loss."""

    positive: bool
    _squared = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        checks.of(self).flags(positive=self.positive)

    def _problem(self, given: LinearInput) -> RegressionProblem:
        return squared(
            given.design,
            given.y,
            given.weight,
            intercept=self.fit_intercept,
            positive=self.positive,
            standardize=self.standardize,
        )


class ElasticNet(LeastSquares, PenalisedRegressor):
    """Least squares with an elastic-net penalty: (1/2n)‖y − Xw − b‖² + α·l1_ratio·‖w‖₁ + ½·α·(1 − l1_ratio)·‖w‖².

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    l1_ratio : float, default 0.5
        Share of the penalty that is ‖w‖₁, from 0 (ridge) to 1 (Lasso).
    fit_intercept : bool, default True
        Learn b, which is not penalised. The data need not be centred, and sparse data stay sparse.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1. X itself is not changed, so sparsity is kept; coefficients
        are in the units of X.
    positive : bool, default False
        Coefficients may not be negative.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol·‖y − ȳ‖²/n.
    max_iter : int, default 100
        The most rounds; a round works on one set of features. With a schedule: sweeps, each as many updates as there
        are features.
    warm_start : bool, default False
        Start from the coefficients of the last fit.
    schedule : Schedule, WorkingSets or None, default None
        A schedule of `st.schedule`, to run the same problem by parallel coordinate descent; None takes working sets.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X
        reads, at most every core. Never changes the answer.
    runtime : runtime or None, default None
        `st.Serial()`, `st.Threads(n)`, `st.Cluster(…)` or `st.Simulated(…)`; overrides n_jobs. Each node of a cluster
        holds some of the features. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of a schedule that draws; None is 0. Working sets draw nothing.
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
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> model = st.ElasticNet(alpha=0.1, l1_ratio=0.9).fit(X, 3 * X[:, 4])
    >>> np.flatnonzero(model.coef_)
    array([4])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        standardize: bool = False,
        positive: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        warm_start: bool = False,
        schedule: Schedule | WorkingSets | None = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.positive = positive
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.schedule = schedule
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose

    def _read(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        by_solver = self.schedule is None and not self.standardize  # standard deviations read X before
        return read(self, X, y, sample_weight, numeric=True, by_solver=by_solver)

    def _formula(self) -> str:
        return "(1/2n) Σ (y − z)²" + penalty_text(self.alpha, self.l1_ratio)


class Lasso(ElasticNet):
    """Least squares with the Lasso's penalty: (1/2n)‖y − Xw − b‖² + α·‖w‖₁.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    fit_intercept : bool, default True
        Learn b, which is not penalised. The data need not be centred, and sparse data stay sparse.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1. X itself is not changed, so sparsity is kept; coefficients
        are in the units of X.
    positive : bool, default False
        Coefficients may not be negative.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol·‖y − ȳ‖²/n.
    max_iter : int, default 100
        The most rounds; a round works on one set of features. With a schedule: sweeps, each as many updates as there
        are features.
    warm_start : bool, default False
        Start from the coefficients of the last fit.
    schedule : Schedule, WorkingSets or None, default None
        A schedule of `st.schedule`, to run the same problem by parallel coordinate descent; None takes working sets.
    n_jobs : int, "auto" or None, default None
        Threads; None uses every core that this process may use. "auto" uses a thread for every 65,536 values that a
        pass over X reads, at most every core. Never changes the answer.
    runtime : runtime or None, default None
        `st.Serial()`, `st.Threads(n)`, `st.Cluster(…)` or `st.Simulated(…)`; overrides n_jobs. Each node of a cluster
        holds some of the features. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of a schedule that draws; None is 0. Working sets draw nothing.
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
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> model = st.Lasso(alpha=0.1).fit(X, 3 * X[:, 4])
    >>> np.flatnonzero(model.coef_)
    array([4])
    >>> bool(model.dual_gap_ <= 1e-4 * np.var(3 * X[:, 4]))
    True
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        standardize: bool = False,
        positive: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        warm_start: bool = False,
        schedule: Schedule | WorkingSets | None = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            standardize=standardize,
            positive=positive,
            tol=tol,
            max_iter=max_iter,
            warm_start=warm_start,
            schedule=schedule,
            n_jobs=n_jobs,
            runtime=runtime,
            profile=profile,
            random_state=random_state,
            verbose=verbose,
        )
