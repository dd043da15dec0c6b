"""`LassoCV`: the Lasso with its penalty chosen by cross-validation.

Folds run one after another. All threads work on the path of the current fold. That needs the memory of one fold, and
the choice does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.digest import digest_of
from stretto.errors import DataError
from stretto.models import checks
from stretto.models.options import refuse_unused
from stretto.models.sklearn_base import clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session

from .base import FitSession, say
from .explain import until
from .input import LinearInput, read, shape_of, squared_gap, taken
from .lasso import LeastSquares
from .path import LinearPath, alphas_for, check_grid, follow
from .plan import PlanText

Floats = NDArray[np.float64]
Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


class LassoCV(LeastSquares):
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
        Coefficients of the fit to all data at alpha_.
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

    alpha_: float
    alphas_: Floats
    mse_path_: Floats

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        check_grid(check, self.n_alphas, self.eps)
        if self.alphas is not None:
            counted = isinstance(self.alphas, Integral)
            unused = {"n_alphas": "alphas says how many penalties there are"}
            unused |= {} if counted else {"eps": "alphas says which penalties there are"}
            refuse_unused(self, unused, chosen=f"alphas={checks.shown(self.alphas)}")

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        session: Session | None = None,
    ) -> Self:
        """Choose α by cross-validation, then fit all data with it.

        A callback that asks to stop after a fold leaves the choice to the folds made so far.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, or svmlight files.
        y : array [n] or None, default None
            Targets; None with files.
        sample_weight : array [n] or None, default None
            Weights of the samples, used in fitting and in the errors on held-out data.
        groups : array [n] or None, default None
            Groups, for splitters that ask for them.
        session : Session or None, default None
            Where to record the run, when to save checkpoints, and whether to resume from one.
        """
        return self._fit(X, y, sample_weight, groups, session=session)

    def plan(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> JobPlan:
        """The plan that `fit` with these arguments runs, made without converting X. Nothing is learned.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, as for `fit`.
        y : array [n] or None, default None
            Targets.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        groups : array [n] or None, default None
            Groups, for splitters that ask for them.

        Returns
        -------
        JobPlan
            With `explain()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
        """
        self._check_parameters()
        given = taken(clone(self), X, y, sample_weight, numeric=True)
        folds = _folds(self.cv, given, groups)
        made = self._planned(given, self._words(folds), None)
        return replace(made, runner=partial(self._run_plan, made, X, y, sample_weight, folds))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self,
        made: JobPlan,
        X: Any,
        y: Any,
        sample_weight: Any,
        folds: Folds,
        runtime: Any = None,
        session: Session | None = None,
    ) -> Self:
        """Fit by an existing plan, with its folds; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, sample_weight, None, folds, made, runtime, session)

    def _words(self, folds: Folds) -> PlanText:
        until_ = until("squared", self.fit_intercept, self.tol, self.max_iter)
        indices = [samples for fold in folds for samples in fold]
        return PlanText(
            type(self).__name__,
            f"(1/2n) Σ (y − z)² + α ‖w‖₁ for a path of α in {len(folds)} folds, then for the best α",
            f"for each α {until_}",
            more={"folds": len(folds), "digest of the folds": digest_of(*indices)},
        )

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        folds: Folds | None = None,
        made: JobPlan | None = None,
        runtime: Any = None,
        session: Session | None = None,
    ) -> Self:
        self._check_parameters()
        where = self._runtime(runtime)
        given = read(self, X, y, sample_weight, numeric=True)
        samples = given.shape[0]
        folds = _folds(self.cv, given, groups) if folds is None else folds
        plan = self._planned(given, self._words(folds), None, made, where)
        with self._sitting(given, plan, where, session) as sitting:
            problem = self._problem(sitting.lay_out())
            works = sitting.solver(problem)
            self.alphas_ = alphas_for(
                works, samples, self.alphas, self.n_alphas, eps=self.eps, l1_ratio=1.0, check=checks.of(self)
            )
            found = sitting.saved.take("folds")
            errors: list[Floats] = [] if found is None else list(np.array(found["errors"]))
            with sitting.saved.level("folds", lambda: {"errors": np.reshape(errors, (-1, len(self.alphas_)))}):
                self._hold_out(sitting, folds, errors)
                self.mse_path_ = np.stack(errors, axis=1)
                self.alpha_ = float(self.alphas_[np.argmin(self.mse_path_.mean(axis=1))])
                sitting.stopped = False
                fit = sitting.solve(
                    problem,
                    self.alpha_ * samples,
                    0.0,
                    gap=squared_gap(works, self.tol),
                    units=samples,
                    works=works,
                    label="all data, ",
                    attributes=lambda coef, intercept: {"coef_": coef, "intercept_": intercept},
                )
            self._keep(fit, samples)
        return self

    def _hold_out(self, sitting: FitSession, folds: Folds, errors: list[Floats]) -> None:
        """Add the errors [k] on held-out samples to `errors`, for each fold that it does not contain."""
        sitting.saved.goal = len(folds) * len(self.alphas_) + self.max_iter
        for number, (train, test) in enumerate(folds, 1):
            if number <= len(errors):
                continue
            errors.append(self._fold(sitting, train, test))
            at = int(np.argmin(errors[-1]))
            if self.verbose > 0:
                best = f"least error {errors[-1][at]:.5g} at alpha {self.alphas_[at]:.4g}"
                say(f"fold {number}/{len(folds)}  {best}")
            if sitting.told(f"fold {number}", {"fold": number, "error": float(errors[-1][at])}):
                break

    def _fold(self, sitting: FitSession, train: NDArray[np.int64], test: NDArray[np.int64]) -> Floats:
        """[k] weighted mean squared errors on the samples `test` of the path learned from `train`."""
        part = _part(sitting.given, train)
        problem = self._problem(part)
        works = sitting.solver(problem)
        path = follow(
            works,
            part.design.shape,
            self.alphas_,
            l1_ratio=1.0,
            gap=squared_gap(works, self.tol),
            max_rounds=self.max_iter,
            verbose=self.verbose > 1,
            saved=sitting.saved,
        )
        return _errors(path, sitting.given, test)


def _folds(cv: Any, given: LinearInput, groups: Any) -> Folds:
    """Pairs of training and test samples; at least one pair, all indices integers below the number of samples."""
    splits = hasattr(cv, "split") and hasattr(cv, "get_n_splits")
    if isinstance(cv, str | bytes | bool) or not (splits or isinstance(cv, Integral | Iterable | None)):
        must = "a number of folds (at least 2), a splitter of scikit-learn, or pairs of train and test indices"
        raise checks.wrong("LassoCV", "cv", must, cv)
    from sklearn.model_selection import check_cv  # imports all of scikit-learn's metrics

    folds = [
        (np.asarray(train), np.asarray(test)) for train, test in check_cv(cv).split(shape_of(given.X), given.y, groups)
    ]
    if not folds:
        raise DataError(f"LassoCV: cv={checks.shown(cv)} gives no folds; give one pair of indices at least")
    for number, samples in enumerate(part for fold in folds for part in fold):
        inside = samples.ndim == 1 and len(samples) and samples.dtype.kind in "iu"
        if not inside or samples.min() < 0 or samples.max() >= len(given.y):
            part = "training" if number % 2 == 0 else "test"
            raise DataError(
                f"LassoCV: the {part} samples of fold {number // 2 + 1} must be whole numbers from 0 to "
                f"{len(given.y) - 1}, at least one; got {checks.shown(samples)}"
            )
    return folds


def _part(given: LinearInput, samples: NDArray[np.int64]) -> LinearInput:
    """Only these samples; one that is named twice has twice the weight."""
    rows, weight = _weighed(given, samples)
    return LinearInput(given.X, given.y[rows], given.design.take(rows), weight)


def _weighed(given: LinearInput, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """The samples in ascending order, unique, and their weights."""
    times = np.bincount(samples, minlength=len(given.y))
    rows = np.flatnonzero(times)
    weight = given.weight[rows] * times[rows]
    if not weight.sum() > 0:
        raise DataError("the samples of a fold all weigh 0; use fewer folds or shuffle them, or leave such samples out")
    return rows, weight


def _errors(path: LinearPath, given: LinearInput, samples: NDArray[np.int64]) -> Floats:
    """[k] weighted mean squared errors on some samples."""
    rows, weight = _weighed(given, samples)
    used = np.unique(path.coefs.indices)  # few of many features are ever used
    predicted = given.design.pick(used).take(rows).matrix @ path.coefs[used].toarray() + path.intercepts
    away = (predicted - given.y[rows][:, None]) ** 2
    return np.asarray(np.average(away, axis=0, weights=weight))
