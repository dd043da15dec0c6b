"""`Lasso` and `ElasticNet`: least squares with a penalty that sets coefficients to zero.

    model = st.Lasso(alpha=0.1).fit(X, y)           # X: dense, CSC or CSR
    model.coef_, model.intercept_, model.dual_gap_

Objectives, weights and `tol` mean what they mean in scikit-learn; the same bits come out whatever `n_jobs` is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.models import checks
from stretto.models.sklearn_base import RegressorMixin, clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session
from stretto.schedule.spec import Schedule
from stretto.schedule.working_sets import WorkingSets
from stretto.solvers.linear.regression import Fit, RegressionProblem

from .base import LinearModel
from .explain import explain_fit, until
from .input import LinearInput, beginning, read, squared, squared_gap, taken
from .plan import PlanText

Floats = NDArray[np.float64]

UNPENALISED = "without a penalty this is plain least squares: use sklearn.linear_model.LinearRegression"


class LeastSquares(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Base class of regressors: a linear model with one output, fitted by penalised least squares."""

    coef_: Floats
    intercept_: float
    dual_gap_: float
    objective_: float
    n_iter_: int

    positive: bool
    _squared = True

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        X = self._features(X)
        return np.asarray(X @ self.coef_ + self.intercept_)

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

    def _keep(self, fit: Fit, samples: int) -> None:
        self.coef_, self.intercept_ = fit.coef, fit.intercept
        self.dual_gap_, self.objective_ = fit.gap / samples, fit.objective / samples
        self.n_iter_ = max(1, fit.rounds)  # evaluating the start is a round too, even if nothing is left to do


class ElasticNet(LeastSquares):
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        check.number("alpha", self.alpha, above=0, why=UNPENALISED)
        check.number("alpha", self.alpha, most=LARGEST)
        check.number("l1_ratio", self.l1_ratio, least=0, most=1)

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, session: Session | None = None) -> Self:
        """Learn from X and y, or from svmlight files.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame, path, folder, glob or list of paths
            Samples × features. CSC, or dense in Fortran order, is best; anything else is converted once. Paths name
            svmlight files, whose labels are y: on a cluster the nodes read them, and no process holds all of X.
        y : array [n] or None, default None
            Targets; None with files.
        sample_weight : array [n] or None, default None
            Weights of the samples; only their proportions count.
        session : Session or None, default None
            Where to record the run, when to save checkpoints, and whether to resume from one.
        """
        return self._fit(X, y, sample_weight, session=session)

    def plan(self, X: Any, y: Any = None, sample_weight: Any = None) -> JobPlan:
        """The plan that `fit` with these arguments runs, made without converting X. Nothing is learned.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, as for `fit`.
        y : array [n] or None, default None
            Targets.
        sample_weight : array [n] or None, default None
            Weights of the samples.

        Returns
        -------
        JobPlan
            With `explain()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
        """
        self._check_parameters()
        given = taken(clone(self), X, y, sample_weight, numeric=True)
        made = self._planned(given, self._words(), self._last(given))
        return replace(made, runner=partial(self._run_plan, made, X, y, sample_weight))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self, made: JobPlan, X: Any, y: Any, sample_weight: Any, runtime: Any = None, session: Session | None = None
    ) -> Self:
        """Fit by an existing plan; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, sample_weight, made, runtime, session)

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        made: JobPlan | None = None,
        runtime: Any = None,
        session: Session | None = None,
    ) -> Self:
        self._check_parameters()
        where = self._runtime(runtime)
        by_solver = self.schedule is None and not self.standardize  # standard deviations read X before
        given = read(self, X, y, sample_weight, numeric=True, by_solver=by_solver)
        last = self._last(given)
        plan = self._planned(given, self._words(), last, made, where)
        samples = given.shape[0]
        strength, share = float(self.alpha) * samples, float(self.l1_ratio)
        with self._sitting(given, plan, where, session) as sitting:
            problem = self._problem(sitting.lay_out())
            works = sitting.solver(problem)
            fit = sitting.solve(
                problem,
                strength * share,
                strength * (1.0 - share),
                gap=squared_gap(works, self.tol),
                units=samples,
                works=works,
                start=None if last is None else beginning(*last, problem),
                attributes=lambda coef, intercept: {"coef_": coef, "intercept_": intercept},
            )
            self._keep(fit, samples)
        return self

    def _last(self, given: LinearInput) -> tuple[Floats, float] | None:
        """The coefficients that a warm start continues from."""
        known = self.warm_start and hasattr(self, "coef_") and len(self.coef_) == given.shape[1]
        return (self.coef_, self.intercept_) if known else None

    def _words(self) -> PlanText:
        until_ = until("squared", self.fit_intercept, self.tol, self.max_iter)
        return PlanText(type(self).__name__, _formula(self.alpha, self.l1_ratio), until_)

    def explain(self, X: Any, y: Any = None, sample_weight: Any = None) -> str:
        """What `fit` would do with these data, in words: the problem, how X is stored, how and where it is solved.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, as for `fit`.
        y : array [n] or None, default None
            Targets.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        """
        self._check_parameters()
        given = read(clone(self), X, y, sample_weight, numeric=True)
        return explain_fit(self, given, self._problem, _formula(self.alpha, self.l1_ratio), self._strongest)

    def _strongest(self, largest: float, samples: int) -> str:
        if self.l1_ratio == 0:
            return "no coefficient is set to zero: l1_ratio is 0"
        top = largest / (samples * self.l1_ratio)
        share = self.alpha / top if top else np.inf
        return f"all coefficients are zero from alpha {top:.4g} on; this alpha is {share:.3g} times that"


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


def _formula(alpha: float, l1_ratio: float) -> str:
    first, second = alpha * l1_ratio, alpha * (1 - l1_ratio)
    parts = ["(1/2n) Σ (y − z)²"]
    parts += [f"{float(first):.4g} ‖w‖₁"] if first else []
    parts += [f"½ {float(second):.4g} ‖w‖²"] if second else []
    return " + ".join(parts)
