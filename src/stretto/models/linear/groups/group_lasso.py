"""`GroupLasso`: least squares whose penalty sets whole groups of coefficients to zero.

model = st.GroupLasso(alpha=0.1, groups=5).fit(X, y)        # features 0–4, 5–9, … enter together
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stretto.models import checks
from stretto.runtime.runtimes import Runtime

from ..input import LinearInput
from .features import groups_of, groups_values
from .regressor import GroupedRegressor


class GroupLasso(GroupedRegressor):
    """Least squares with a penalty of groups: (1/2n)‖y − Xw − b‖² + α·(1 − l1_ratio)·Σ_g c_g‖w_g‖ + α·l1_ratio·‖w‖₁.

    With `l1_ratio=0` the coefficients of a group are all zero or, in general, all nonzero. Above 0 there are zeros
    within groups too (the sparse group Lasso); 1 is the Lasso.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty, more than 0.
    groups : int, array [p] or list of lists of int, default 1
        Size of groups of consecutive features; or a label for each feature; or the features of each group. Every
        feature is in one group.
    weights : array [G] or None, default None
        Factor c_g of each group's penalty, more than 0, in the order of the lists, of the sorted labels, or of the
        features; None is 1 for each. The root of its size is a common choice for groups of different sizes.
    l1_ratio : float, default 0.0
        Share of the penalty that is ‖w‖₁, from 0 to 1.
    fit_intercept : bool, default True
        Learn b, which is not penalised. The data need not be centred, and sparse data stay sparse.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol·‖y − ȳ‖²/n.
    max_iter : int, default 100
        The most rounds; a round works on one set of groups.
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
    >>> model = st.GroupLasso(alpha=0.2, groups=4).fit(X, X[:, 4] - 2 * X[:, 6])
    >>> np.flatnonzero(model.coef_)
    array([4, 5, 6, 7])
    >>> st.GroupLasso(alpha=0.2, groups=4, l1_ratio=0.9).fit(X, X[:, 4] - 2 * X[:, 6]).sparse_coef_.nnz
    2
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        groups: Any = 1,
        weights: Any = None,
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
        self.groups = groups
        self.weights = weights
        self.l1_ratio = l1_ratio
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
        checks.of(self).number("l1_ratio", self.l1_ratio, least=0, most=1)

    def _groups(self, given: LinearInput) -> Any:
        return groups_of(self.groups, self.weights, given.shape[1], owner=type(self).__name__)

    def _within(self) -> float:
        return float(self.l1_ratio)

    def _attributes(self, coef: NDArray[np.float64], intercept: Any) -> dict[str, Any]:
        return {"coef_": coef[0], "intercept_": float(intercept[0])}

    def _plan_parameters(self) -> dict[str, Any]:
        found = super()._plan_parameters()
        return found | {"groups": groups_values(self.groups)}

    def _strengths(self, samples: int) -> tuple[float, float]:
        return float(self.alpha) * samples, 0.0

    def _formula(self) -> str:
        among, within = self.alpha * (1 - self.l1_ratio), self.alpha * self.l1_ratio
        text = "(1/2n) Σ (y − z)²" + (f" + {float(among):.4g} Σ c‖w_g‖" if among else "")
        return text + (f" + {float(within):.4g} ‖w‖₁" if within else "")

    def _strongest(self, largest: float, samples: int) -> str:
        top = largest / samples
        share = self.alpha / top if top else np.inf
        return f"all coefficients are zero from alpha {top:.4g} on; this alpha is {share:.3g} times that"
