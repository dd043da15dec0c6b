"""`HuberElasticNet`: regression with the Huber loss and an elastic-net penalty, for targets with outliers.

model = st.HuberElasticNet(alpha=0.1, epsilon=2.0).fit(X, y)
"""

from __future__ import annotations

from typing import Literal

from stretto.data.design.design import LARGEST
from stretto.models import checks
from stretto.runtime.runtimes import Runtime
from stretto.solvers.linear.regression import PenaltySolver, RegressionProblem

from ..input import LinearInput, curved, curved_gap
from ..plan import WORKING_SETS
from ..regressor import UNPENALISED_LOSS, PenalisedRegressor, penalty_text


class HuberElasticNet(PenalisedRegressor):
    """Elastic net with the Huber loss: (1/n) Σ H(y − xw − b) + α·l1_ratio·‖w‖₁ + ½·α·(1 − l1_ratio)·‖w‖².

    H(r) is ½r² for `|r| ≤ ε` and `ε|r| − ½ε²` beyond, so that a sample far from its prediction pulls no more than ε
    does. With a large ε this is `ElasticNet`, with the same alpha. ε is in the units of y: scikit-learn's
    `HuberRegressor` estimates a scale of the residuals together with the coefficients and multiplies ε by it, and its
    penalty is α‖w‖² beside a sum over the samples. Here, scale y, or choose ε by cross-validation.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    l1_ratio : float, default 0.5
        Share of the penalty that is ‖w‖₁, from 0 (ridge) to 1 (Lasso).
    epsilon : float, default 1.35
        `|y − xw − b|` from which on the loss is linear, more than 0, in the units of y.
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
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> y = 3 * X[:, 4]
    >>> y[:10] += 1000
    >>> model = st.HuberElasticNet(alpha=0.1, l1_ratio=1.0).fit(X, y)
    >>> np.flatnonzero(model.coef_), bool(abs(model.coef_[4] - 3) < 0.5)
    (array([4]), True)
    """

    _loss = "huber"
    _unpenalised = UNPENALISED_LOSS

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        epsilon: float = 1.35,
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
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        check.number("epsilon", self.epsilon, above=0, why="it is the residual from which on the loss is linear")
        check.number("epsilon", self.epsilon, least=1.0 / LARGEST, most=LARGEST)

    def _problem(self, given: LinearInput) -> RegressionProblem:
        return curved("huber", given, intercept=self.fit_intercept, epsilon=float(self.epsilon))

    def _goal(self, works: PenaltySolver) -> tuple[float, float]:
        return curved_gap(works, self.tol), float(self.tol)

    def _formula(self) -> str:
        return f"(1/n) Σ H(y − z), ε = {float(self.epsilon):.4g}" + penalty_text(self.alpha, self.l1_ratio)

    def _solver_text(self) -> str:
        return f"{WORKING_SETS}; a set is solved by Newton steps"
