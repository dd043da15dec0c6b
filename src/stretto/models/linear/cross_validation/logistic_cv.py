"""`LogisticRegressionCV`: logistic regression with C and the share of the L1 penalty chosen by cross-validation.

    model = st.LogisticRegressionCV(Cs=20, l1_ratios=[0.0, 0.5, 1.0]).fit(X, y)
    model.C_, model.l1_ratio_, model.scores_.shape          # scores [folds, l1_ratios, Cs]

Every fold is a path of rising C for each l1_ratio. Folds run on threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.data.records.digest import digest_of
from stretto.models import checks
from stretto.models.sklearn_base import clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session

from ..base import FitSession, say
from ..explain import until
from ..input import converted, matrix_of, taken
from ..logistic import LogisticRegression
from ..logistic_fit import fit_separate
from ..plan import PlanText
from ..probabilities import ProbabilisticClassifier
from .folds import Folds, each_fold, folds_of
from .logistic_scores import FoldScores, scorer_of

Floats = NDArray[np.float64]


class LogisticRegressionCV(ProbabilisticClassifier):
    """Logistic regression, as `st.LogisticRegression`, with the C and the l1_ratio that score best on held-out data.

    Parameters
    ----------
    Cs : int or array, default 10
        The values of C, or how many, evenly spaced in the logarithm from 1e-4 to 1e4.
    l1_ratios : array, default (0.0,)
        The shares of the penalty that is ‖w‖₁ that are tried, each from 0 to 1.
    fit_intercept : bool, default True
        Learn b, which is not penalised.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1. X itself is not changed.
    tol : float, default 0.0001
        Stop when the duality gap is at most tol times the objective, as in `st.LogisticRegression`.
    max_iter : int, default 100
        The most rounds of each fit.
    cv : int, splitter, iterable or None, default None
        Folds: a number (None is 5), a splitter of scikit-learn, or pairs of train and test indices. Numbered folds keep
        the shares of the classes.
    scoring : str, callable or None, default "neg_log_loss"
        What the best fit has most of, also the result of `score`: a name or a scorer of scikit-learn; None is accuracy.
    refit : bool, default True
        Fit all data with the best C and l1_ratio. False averages, over the folds, the coefficients that score best.
    class_weight : dict, "balanced" or None, default None
        {class: weight}, or "balanced" for weights that make the classes count alike.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X
        reads, at most every core. Never changes the answer.
    runtime : runtime or None, default None
        Where to run, as in `st.LogisticRegression`; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of what is drawn; None is 0.
    verbose : int, default 0
        0 quiet, 1 a line for each fold and each round of the last fit.

    Attributes
    ----------
    C_ : float
        The C chosen; with refit=False the mean over the folds.
    l1_ratio_ : float
        The l1_ratio chosen; with refit=False the mean over the folds.
    Cs_ : ndarray of float64 [k]
        The values of C tried.
    l1_ratios_ : ndarray of float64 [ratios]
        The values of l1_ratio tried.
    scores_ : ndarray of float64 [folds, ratios, k]
        Scores on held-out data.
    coefs_paths_ : ndarray of float64 [folds, ratios, k, 1 or classes, p + 1]
        Coefficients of the folds, and intercepts behind them; without fit_intercept [.., p].
    classes_ : ndarray [c]
        The classes.
    coef_ : ndarray of float64 [1, p] or [c, p]
        Coefficients of the fit to all data at `C_`; one row for two classes.
    intercept_ : ndarray of float64 [1] or [c]
        Intercepts.
    sparse_coef_ : sparse matrix
        Coefficients as CSR.
    dual_gap_ : ndarray of float64 [1]
        The duality gap of the fit to all data; not with refit=False.
    objective_ : ndarray of float64 [1]
        Its objective; not with refit=False.
    n_iter_ : ndarray of int [folds, ratios, k]
        Rounds of the folds' fits.
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
    >>> model = st.LogisticRegressionCV(Cs=8, l1_ratios=[0.0, 1.0]).fit(X, X[:, 4] + rng.normal(size=200) > 0)
    >>> model.l1_ratio_, model.scores_.shape
    (1.0, (5, 2, 8))
    """

    C_: float
    l1_ratio_: float
    Cs_: Floats
    l1_ratios_: Floats
    scores_: Floats
    coefs_paths_: Floats

    def __init__(
        self,
        *,
        Cs: Any = 10,
        l1_ratios: Any = (0.0,),
        fit_intercept: bool = True,
        standardize: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = "neg_log_loss",
        refit: bool = True,
        class_weight: Any = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.Cs = Cs
        self.l1_ratios = l1_ratios
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose

    def _check_strength(self) -> None:
        check = checks.of(self)
        check.flags(refit=self.refit)
        if isinstance(self.Cs, Integral):
            check.number("Cs", self.Cs, least=1, most=100_000, whole=True)
        else:
            limits = f"from {1 / LARGEST:g} to {LARGEST:g}"
            self._numbers("Cs", self.Cs, 1.0 / LARGEST, LARGEST, f"how many values of C, or numbers {limits}")
        self._numbers("l1_ratios", self.l1_ratios, 0.0, 1.0, "numbers from 0 to 1, at least one")
        scorer_of(self)

    def _numbers(self, name: str, given: Any, least: float, most: float, must: str) -> Floats:
        """Several numbers within limits; PlanError for others."""
        try:
            found = np.asarray(given)
            if found.ndim != 1 or found.dtype.kind not in "iufO":
                raise TypeError
            found = found.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        if not len(found) or not np.all((found >= least) & (found <= most)):
            raise checks.wrong(type(self).__name__, name, must, given)
        return np.ascontiguousarray(found)

    def _grid(self) -> tuple[Floats, Floats]:
        """(values of C in rising order, values of l1_ratio)."""
        counted = isinstance(self.Cs, Integral)
        Cs = np.logspace(-4, 4, int(self.Cs)) if counted else np.sort(np.asarray(self.Cs, np.float64))
        return Cs, np.asarray(self.l1_ratios, np.float64)

    @property
    def _smooth(self) -> bool:
        return not np.any(np.asarray(self.l1_ratios, np.float64))

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
        """Choose C and l1_ratio by cross-validation, then fit all data with them.

        A callback that asks to stop after a fold leaves the choice to the folds made so far.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, or svmlight files.
        y : array [n] or None, default None
            Classes; None with files.
        sample_weight : array [n] or None, default None
            Weights of the samples, used in fitting and in the scores on held-out data.
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
            Classes.
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
        model = clone(self)  # planning must not change the estimator
        given = taken(model, X, y, sample_weight)
        model.classes_, _, weight = model._classes(given)
        folds = folds_of(type(self).__name__, self.cv, given, groups, classes=True)
        made = self._planned(replace(given, weight=weight), model._words(folds), None)
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
        """The text of the plan; the classes must be known."""
        Cs, ratios = self._grid()
        count = len(self.classes_)
        loss = "C Σ log(1 + exp(−y z))" if count == 2 else "C Σ (log Σ exp(z) − z_y)"
        grid = f"{len(Cs)} values of C and {len(ratios)} of r in {len(folds)} folds"
        then = "then for the best of them" if self.refit else "then the mean of the best"
        return PlanText(
            type(self).__name__,
            f"{loss} + r ‖w‖₁ + ½ (1 − r) ‖w‖² for {grid}, {then}",
            f"for each of them {until('logistic', self.fit_intercept, self.tol, self.max_iter)}",
            outputs=count if count > 2 else 1,
            more={
                "classes": count,
                "folds": len(folds),
                "digest of the folds": digest_of(*[samples for fold in folds for samples in fold]),
            },
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
        given = taken(self, X, y, sample_weight)
        self.classes_, which, weight = self._classes(given)
        self._single(1.0, 0.0)._refuse_joint(given, where)
        folds = folds_of(type(self).__name__, self.cv, given, groups, classes=True) if folds is None else folds
        plan = self._planned(replace(given, weight=weight), self._words(folds), None, made, where)
        self.Cs_, self.l1_ratios_ = self._grid()
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        with self._sitting(given, plan, where, session, outputs=outputs) as sitting:
            scores = FoldScores.of(self, matrix_of(given), given.y, which, weight, given.weight)
            found = sitting.saved.take("folds")
            scores.restore(found)
            with sitting.saved.level("folds", scores.state):
                self._hold_out(sitting, folds, scores)
            self.scores_, self.coefs_paths_, self.n_iter_ = scores.stacked()
            sitting.stopped = False
            self._choose(sitting, which, weight)
        return self

    def _hold_out(self, sitting: FitSession, folds: Folds, scores: FoldScores) -> None:
        """Make the folds that `scores` does not contain."""
        sitting.saved.goal = len(folds) * len(self.Cs_) * len(self.l1_ratios_) + self.max_iter

        def learn(sitting: FitSession, number: int) -> Any:
            return scores.fold(sitting, *folds[number])

        for number, made in enumerate(each_fold(sitting, range(scores.done, len(folds)), learn), scores.done + 1):
            scores.add(made)
            best = float(scores.last.max())
            if self.verbose > 0:
                r, k = np.unravel_index(np.argmax(scores.last), scores.last.shape)
                share = f" and l1_ratio {self.l1_ratios_[r]:.4g}" if len(self.l1_ratios_) > 1 else ""
                say(f"fold {number}/{len(folds)}  best score {best:.5g} at C {self.Cs_[k]:.4g}{share}")
            if sitting.told(f"fold {number}", {"fold": number, "score": best}):
                break
            if sitting.saved.ended is not None:
                sitting.saved.ended()
        scores.warn(self.max_iter)

    def _choose(self, sitting: FitSession, which: NDArray[np.int64], weight: Floats) -> None:
        """Choose C and l1_ratio, and the coefficients."""
        if not self.refit:
            self._average()
            return
        # Of equal scores the first one wins, as in scikit-learn: the smallest C, then the first l1_ratio.
        k, r = np.unravel_index(np.argmax(self.scores_.sum(axis=0).T), self.scores_.shape[:0:-1])
        self.C_, self.l1_ratio_ = float(self.Cs_[k]), float(self.l1_ratios_[r])
        single = self._single(self.C_, self.l1_ratio_)
        if len(self.classes_) == 2:
            few = not self.standardize
            sitting.given = converted(sitting.given, by_newton=few, by_rows=True, smooth=self._smooth)
            fit_separate(single, sitting, which, weight, None)
            self.coef_, self.intercept_ = single.coef_, single.intercept_
            self.dual_gap_, self.objective_ = single.dual_gap_, single.objective_
            return
        from ..softmax_fit import fit_joint, joint_problem, unpack  # here, not above: it imports Numba

        problem = joint_problem(single, matrix_of(sitting.given), which, len(self.classes_), weight)
        fit = fit_joint(single, sitting, problem, None)
        self.coef_, self.intercept_ = unpack(fit.W, problem)
        self.dual_gap_, self.objective_ = np.array([fit.gap]), np.array([fit.objective])

    def _average(self) -> None:
        """The mean over the folds of what scores best in each."""
        folds, ratios, k = self.scores_.shape
        best = self.scores_.transpose(0, 2, 1).reshape(folds, -1).argmax(axis=1)
        at, share = np.unravel_index(best, (k, ratios))
        coefs = self.coefs_paths_[np.arange(folds), share, at].mean(axis=0)
        self.C_, self.l1_ratio_ = float(self.Cs_[at].mean()), float(self.l1_ratios_[share].mean())
        self.coef_ = np.ascontiguousarray(coefs[:, : self.n_features_in_])
        self.intercept_ = np.ascontiguousarray(coefs[:, -1]) if self.fit_intercept else np.zeros(len(coefs))

    def _single(self, C: float, l1_ratio: float) -> LogisticRegression:
        """The estimator of one fit."""
        model = LogisticRegression(
            C, l1_ratio=l1_ratio, fit_intercept=self.fit_intercept, standardize=self.standardize, tol=self.tol,
            max_iter=self.max_iter, n_jobs=self.n_jobs, runtime=self.runtime, profile=self.profile,
            random_state=self.random_state, verbose=self.verbose,
        )  # fmt: skip
        model.classes_, model.n_features_in_ = self.classes_, self.n_features_in_
        return model

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score of `scoring` on these samples.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        y : array [n]
            Their classes.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(scorer_of(self)(self, X, y, **weights))
