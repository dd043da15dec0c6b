"""`ElasticNetCV`: the elastic net with its penalty and the share of the L1 penalty chosen by cross-validation."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from stretto.models import checks
from stretto.runtime.runtimes import Runtime

from .regression import CrossValidatedRegression


class ElasticNetCV(CrossValidatedRegression):
    """The elastic net of `st.ElasticNet`, with the α and the l1_ratio of least squared error on held-out data.

    Parameters
    ----------
    l1_ratio : float or list of float, default 0.5
        Share of the penalty that is ‖w‖₁, from 0 to 1; of several, each is tried with a grid of its own. With 0, which
        gives no zeros, alphas must be given.
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
        Where to run, as in `st.ElasticNet`; overrides n_jobs. Never changes the answer.
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
    l1_ratio_ : float
        The l1_ratio chosen.
    alphas_ : ndarray of float64 [k] or [ratios, k]
        The values of α tried, falling; a row for each l1_ratio if there are several and the grid was not given.
    mse_path_ : ndarray of float64 [k, folds] or [ratios, k, folds]
        Squared errors on held-out data.
    coef_ : ndarray of float64 [p]
        Coefficients of the fit to all data at `alpha_` and `l1_ratio_`.
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
    >>> model = st.ElasticNetCV(l1_ratio=[0.5, 0.9], n_alphas=20).fit(X, 3 * X[:, 4] + rng.normal(size=100))
    >>> model.l1_ratio_, model.alphas_.shape, model.mse_path_.shape
    (0.9, (2, 20), (2, 20, 5))
    """

    l1_ratio_: float

    def __init__(
        self,
        *,
        l1_ratio: Any = 0.5,
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
        self.l1_ratio = l1_ratio
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

    def _shares(self) -> list[float]:
        given = np.atleast_1d(np.asarray(self.l1_ratio, object))
        if given.ndim != 1 or not len(given):
            raise checks.wrong(
                type(self).__name__, "l1_ratio", "a number from 0 to 1, or a list of such", self.l1_ratio
            )
        check = checks.of(self)
        for share in given.tolist():
            check.number("l1_ratio", share, least=0, most=1)
        return [float(share) for share in given.tolist()]

    def _chosen(self, share: float) -> None:
        self.l1_ratio_ = share
