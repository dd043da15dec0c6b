"""`LassoCV`: the Lasso with its penalty chosen by cross-validation."""

from __future__ import annotations

from typing import Any, Literal

from stretto.runtime.runtimes import Runtime

from .regression import CrossValidatedRegression


class LassoCV(CrossValidatedRegression):
    """The Lasso, (1/2n)‖y − Xw − b‖² + α·‖w‖₁, with the α of least squared error on held-out data.

    Parameters
    ----------
    eps : float, default 0.001
        The smallest α of the grid, as a share of the largest.
    n_alphas : int, default 100
        Values of α in the grid, evenly spaced in the logarithm.
    alphas : array, int or None, default None
        The values of α themselves, or how many; overrides eps and n_alphas.
    fit_intercept : bool, default True
        Learn b, which is not penalised.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1. X itself is not changed.
    positive : bool, default False
        Coefficients may not be negative.
    tol : float, default 0.0001
        Stop when the duality gap is at most tol·‖y − ȳ‖²/n.
    max_iter : int, default 100
        The most rounds for each α.
    cv : int, splitter, iterable or None, default None
        Folds: a number (None is 5), a splitter of scikit-learn, or pairs of train and test indices.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X
        reads, at most every core. Never changes the answer.
    runtime : runtime or None, default None
        Where to run, as in `st.Lasso`; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed; None is 0.
    verbose : int, default 0
        0 quiet, 1 a line for each fold, 2 a line for each α as well.

    Attributes
    ----------
    alpha_ : float
        The α chosen.
    alphas_ : ndarray of float64 [k]
        The values of α tried, falling.
    mse_path_ : ndarray of float64 [k, folds]
        Squared errors on held-out data.
    coef_ : ndarray of float64 [p]
        Coefficients of the fit to all data at `alpha_`.
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
    >>> X = rng.normal(size=(100, 20))
    >>> model = st.LassoCV(n_alphas=20).fit(X, 3 * X[:, 4] + rng.normal(size=100))
    >>> int(np.argmax(np.abs(model.coef_))), model.mse_path_.shape
    (4, (20, 5))
    """

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        n_alphas: int = 100,
        alphas: Any = None,
        fit_intercept: bool = True,
        standardize: bool = False,
        positive: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        cv: Any = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.eps = eps
        self.n_alphas = n_alphas
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.positive = positive
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose
