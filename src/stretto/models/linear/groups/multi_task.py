"""`MultiTaskLasso` and `MultiTaskElasticNet`: least squares for several targets that share their features.

model = st.MultiTaskLasso(alpha=0.1).fit(X, Y)      # Y [n, k]
model.coef_                                         # [k, p]: a feature's coefficients are all zero or all not
"""

from __future__ import annotations

from typing import Any, Literal

from stretto.models.sklearn_base import check_is_fitted
from stretto.runtime.runtimes import Runtime

from ..input import LinearInput, converted, taken_outputs
from ..regressor import penalty_text
from .regressor import GroupedRegressor


class MultiTaskElasticNet(GroupedRegressor):
    """Least squares for k targets: (1/2n)‖Y − XWᵀ − b‖² + α·l1_ratio·Σ_j ‖W_j‖ + ½·α·(1 − l1_ratio)·‖W‖².

    W_j are the k coefficients of feature j, and norms without an index are Frobenius norms: scikit-learn's objective.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    l1_ratio : float, default 0.5
        Share of the penalty that is Σ_j ‖W_j‖, from 0 (ridge) to 1 (`MultiTaskLasso`).
    fit_intercept : bool, default True
        Learn b, which is not penalised. The data need not be centred, and sparse data stay sparse.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol·‖Y − Ȳ‖²/n.
    max_iter : int, default 100
        The most rounds; a round works on one set of features.
    warm_start : bool, default False
        Start from the coefficients of the last fit.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X reads, at most every core.
        Never changes the answer.
    runtime : runtime or None, default None
        Where to run, on this machine; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    verbose : int, default 0
        0 quiet, 1 a line for each round.

    Attributes
    ----------
    coef_ : ndarray of float64 [k, p]
        Coefficients.
    intercept_ : ndarray of float64 [k]
        Intercepts.
    sparse_coef_ : sparse matrix [k, p]
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
    >>> model = st.MultiTaskElasticNet(alpha=0.3, l1_ratio=0.9).fit(X, np.c_[X[:, 4], X[:, 4] - X[:, 6]])
    >>> model.coef_.shape, np.flatnonzero(model.coef_.any(axis=0))
    ((2, 20), array([4, 6]))
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
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

    def predict(self, X: Any) -> Any:
        """Predictions [n, k].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        check_is_fitted(self)
        return self._linear(X)

    def _taken(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        return taken_outputs(self, X, y, sample_weight)

    def _read(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        return converted(self._taken(X, y, sample_weight), by_solver=True)

    def _formula(self) -> str:
        return "(1/2n) Σ ‖y − z‖²" + penalty_text(self.alpha, self.l1_ratio, "Σ ‖W_j‖", "‖W‖²")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags


class MultiTaskLasso(MultiTaskElasticNet):
    """Least squares for k targets with features in common: (1/2n)‖Y − XWᵀ − b‖² + α·Σ_j ‖W_j‖.

    W_j are the k coefficients of feature j; they are all zero or, in general, all nonzero. It is scikit-learn's
    objective.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    fit_intercept : bool, default True
        Learn b, which is not penalised. The data need not be centred, and sparse data stay sparse.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol·‖Y − Ȳ‖²/n.
    max_iter : int, default 100
        The most rounds; a round works on one set of features.
    warm_start : bool, default False
        Start from the coefficients of the last fit.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X reads, at most every core.
        Never changes the answer.
    runtime : runtime or None, default None
        Where to run, on this machine; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    verbose : int, default 0
        0 quiet, 1 a line for each round.

    Attributes
    ----------
    coef_ : ndarray of float64 [k, p]
        Coefficients.
    intercept_ : ndarray of float64 [k]
        Intercepts.
    sparse_coef_ : sparse matrix [k, p]
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
    >>> model = st.MultiTaskLasso(alpha=0.3).fit(X, np.c_[X[:, 4], X[:, 4] - X[:, 6]])
    >>> np.flatnonzero(model.coef_.any(axis=0)), model.predict(X).shape
    (array([4, 6]), (100, 2))
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 100,
        warm_start: bool = False,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            tol=tol,
            max_iter=max_iter,
            warm_start=warm_start,
            n_jobs=n_jobs,
            runtime=runtime,
            profile=profile,
            verbose=verbose,
        )
