"""`LogisticRegression`: linear classification of two or more classes.

    model = st.LogisticRegression(C=0.5).fit(X, y)                    # an L2 penalty
    model = st.LogisticRegression(C=0.5, l1_ratio=1.0).fit(X, y)      # the Lasso's penalty: most coefficients are zero
    model.predict_proba(X), model.dual_gap_

More than two classes are learned jointly (softmax), as scikit-learn does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.data.design.design_files import DesignFiles
from stretto.deprecation import warn_deprecated
from stretto.errors import PlanError
from stretto.models import checks
from stretto.models.options import refuse_unused
from stretto.models.sklearn_base import clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.chosen import refuse_elsewhere
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session
from stretto.schedule.spec import Schedule
from stretto.solvers.linear.regression import RegressionProblem

from .explain import explain_fit
from .input import LinearInput, converted, matrix_of, taken
from .logistic_fit import fit_separate, separate_problems
from .logistic_text import formula, plan_text, strongest
from .plan import PlanText
from .probabilities import ProbabilisticClassifier
from .svrg_options import check_svrg, without_unused

Floats = NDArray[np.float64]
_PLAIN = "LogisticRegression(…)"


class LogisticRegression(ProbabilisticClassifier):
    """Logistic regression with an elastic-net penalty: C·Σ s·log(1 + exp(−yz)) + l1_ratio·‖w‖₁ + ½(1 − l1_ratio)‖w‖².

    Here z = Xw + b, y is −1 or +1 and s are the sample weights. With k > 2 classes W and b have a row for each, and the
    loss is that of all classes jointly, log Σ_c exp(z_c) − z_y: scikit-learn's objective.

    Parameters
    ----------
    C : float, default 1.0
        Weight of the data against the penalty, more than 0; a smaller C gives smaller coefficients.
    l1_ratio : float, default 0.0
        Share of the penalty that is ‖w‖₁: 0 is plain L2, 1 gives the sparsest models.
    fit_intercept : bool, default True
        Learn b, which is not penalised.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1. X itself is not changed, so sparsity is kept.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol times the
        objective; for a joint model of several classes, tol times the loss of the model without features.
    max_iter : int, default 100
        The most rounds; with solver="sgd" and solver="svrg", epochs.
    class_weight : dict, "balanced" or None, default None
        {class: weight}, or "balanced" for weights that make the classes count alike.
    multi_class : str, deprecated
        Several classes are learned jointly. For each class against the rest, use
        `sklearn.multiclass.OneVsRestClassifier(st.LogisticRegression(…))`.
    solver : {"auto", "sgd", "svrg"}, default "auto"
        "auto" takes Newton steps with few samples and features, else working sets for two classes or with an L1
        penalty, and quasi-Newton steps for other joint models of several classes. "sgd" learns these by stochastic
        steps. "svrg", for two classes, takes stochastic steps with variance reduction.
    optimizer : {"adagrad", "adarevision", "sgd"}, default "adagrad"
        Of solver="sgd". "adarevision" is AdaGrad that corrects for gradients that are out of date. Refused with
        solver="auto", which does not use it.
    learning_rate : float or None, default None
        Of solver="sgd"; None chooses one. Refused with solver="auto".
    variance_reduction : {"svrg", "svrg++", "katyusha"}, default "svrg"
        Of solver="svrg": plain, with epochs that grow, or with momentum.
    batch_size : int, default 1
        Of solver="svrg": samples of a step.
    warm_start : bool, default False
        Start from the coefficients of the last fit.
    schedule : Schedule or None, default None
        A schedule of `st.schedule`, for two classes; None leaves the choice to `solver`.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" uses a thread for every 65,536 values that a pass over X
        reads, times the classes of a joint model; solver="sgd" measures its epochs instead, on every core, then on half
        of them, and so on while that is not slower. Never changes the answer.
    runtime : runtime or None, default None
        Where to run, as in `st.Lasso`; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of what is drawn; None is 0.
    verbose : int, default 0
        0 quiet, 1 a line for each round.

    Attributes
    ----------
    classes_ : ndarray [k]
        The classes.
    coef_ : ndarray of float64 [1, p] or [k, p]
        Coefficients; one row for two classes.
    intercept_ : ndarray of float64 [1] or [k]
        Intercepts.
    sparse_coef_ : sparse matrix
        Coefficients as CSR.
    dual_gap_ : ndarray of float64
        The duality gap of each problem: [1], or [k] for "ovr".
    objective_ : ndarray of float64
        The objective of each problem.
    n_iter_ : ndarray of int
        Rounds of each problem.
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
    >>> model = st.LogisticRegression(C=0.2, l1_ratio=1.0).fit(X, X[:, 4] > 0)
    >>> np.flatnonzero(model.coef_)
    array([4])
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    >>> st.LogisticRegression(C=0.2, l1_ratio=1.0).fit(X, np.digitize(X[:, 4], [-1, 1])).coef_.shape
    (3, 20)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        standardize: bool = False,
        tol: float = 1e-4,
        max_iter: int = 100,
        class_weight: Any = None,
        multi_class: str = "deprecated",
        solver: str = "auto",
        optimizer: str = "adagrad",
        learning_rate: float | None = None,
        variance_reduction: str = "svrg",
        batch_size: int = 1,
        warm_start: bool = False,
        schedule: Schedule | None = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.multi_class = multi_class
        self.solver = solver
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.variance_reduction = variance_reduction
        self.batch_size = batch_size
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
        check.number("l1_ratio", self.l1_ratio, least=0, most=1)
        check.choice("multi_class", self.multi_class, ("deprecated", "multinomial", "ovr"))
        if self.multi_class != "deprecated":
            rest = self.multi_class == "ovr"
            warn_deprecated(
                f"LogisticRegression(multi_class={self.multi_class!r})",
                f"sklearn.multiclass.OneVsRestClassifier({_PLAIN})"
                if rest
                else f"{_PLAIN}, which learns classes jointly,",
                removed_in="0.3",
            )
        check.choice("solver", self.solver, ("auto", "sgd", "svrg"))
        check_svrg(self)
        check.choice("optimizer", self.optimizer, ("sgd", "adagrad", "adarevision"))
        check.optional("learning_rate", self.learning_rate, above=0)
        check.optional("learning_rate", self.learning_rate, least=1.0 / LARGEST, most=LARGEST)
        if self.solver != "sgd":
            unused = dict.fromkeys(("optimizer", "learning_rate"), "it belongs to solver='sgd'")
            refuse_unused(self, unused, chosen=f"solver={self.solver!r}")

    # --- learning ---------------------------------------------------------------------------------------------------

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, session: Session | None = None) -> Self:
        """Learn from X and the classes y, or from svmlight files.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, or svmlight files, as for `st.Lasso`.
        y : array [n] or None, default None
            Classes; None with files.
        sample_weight : array [n] or None, default None
            Weights of the samples.
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
            Classes.
        sample_weight : array [n] or None, default None
            Weights of the samples.

        Returns
        -------
        JobPlan
            With `explain()`, `cost` and `fingerprint`; `run(runtime=…, session=…)` fits this estimator by it.
        """
        self._check_parameters()
        model = clone(self)  # planning must not change the estimator
        given = taken(model, X, y, sample_weight)
        model.classes_, _, weight = model._classes(given)
        model._refuse_joint(given, self._runtime())
        made = self._planned(replace(given, weight=weight), model._words(), self._last(given, model.classes_))
        return replace(made, runner=partial(self._run_plan, made, X, y, sample_weight))

    @with_callbacks  # type: ignore[untyped-decorator]
    def _run_plan(
        self, made: JobPlan, X: Any, y: Any, sample_weight: Any, runtime: Any = None, session: Session | None = None
    ) -> Self:
        """Fit by an existing plan; PlanError if the plan of this fit would now differ."""
        return self._fit(X, y, sample_weight, made, runtime, session)

    def _words(self) -> PlanText:
        """The text of the plan; the classes must be known."""
        return plan_text(self)

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
        given = taken(self, X, y, sample_weight)
        classes, which, weight = self._classes(given)
        last = self._last(given, classes)
        self.classes_ = classes
        self._refuse_joint(given, where)
        plan = self._planned(replace(given, weight=weight), self._words(), last, made, where)
        if self._joint:
            return self._fit_joint(given, which, weight, last, plan, where, session)
        if self.solver == "svrg":
            from .row_fit import fit_rows, logistic_rows  # here, not above: it imports Numba

            problem, units = logistic_rows(self, matrix_of(given), which, weight)
            with self._sitting(given, plan, where, session) as sitting:
                fit_rows(self, sitting, problem, units, last)
            return self
        few = self.schedule is None and not self.standardize
        with self._sitting(
            converted(given, by_newton=few, by_rows=self.schedule is None, smooth=self._smooth), plan, where, session
        ) as sitting:
            fit_separate(self, sitting, which, weight, last)
        return self

    def _fit_joint(
        self,
        given: LinearInput,
        which: NDArray[np.int64],
        weight: Floats,
        last: tuple[Floats, Floats] | None,
        plan: JobPlan,
        runtime: Runtime,
        session: Session | None,
    ) -> Self:
        """Fit one model of all classes."""
        from .softmax_fit import fit_joint, joint_problem, unpack  # here, not above: it imports Numba

        problem = joint_problem(self, matrix_of(given), which, len(self.classes_), weight)
        outputs, epochs = len(self.classes_), self.solver == "sgd"
        with self._sitting(given, plan, runtime, session, outputs=outputs, epochs=epochs) as sitting:
            fit = fit_joint(self, sitting, problem, last)
            self.coef_, self.intercept_ = unpack(fit.W, problem)
            self.dual_gap_, self.objective_ = np.array([fit.gap]), np.array([fit.objective])
            self.n_iter_ = np.array([max(1, fit.rounds)])
        return self

    def _refuse_joint(self, given: LinearInput, runtime: Runtime) -> None:
        """PlanError if a fit of these classes cannot run by this solver, or not there."""
        files = isinstance(given.X, DesignFiles)
        stochastic = self.solver != "auto"
        if stochastic and self.schedule is not None and not self._joint:
            raise PlanError(f"schedule= has no effect with solver={self.solver!r}; leave it out")
        if (self._joint and files) or stochastic:
            what = f"mini-batches of solver={self.solver!r} are drawn from all samples in one memory"
            refuse_elsewhere(
                runtime,
                owner=type(self).__name__,
                why=what if stochastic else "a joint model of several classes takes X in memory",
                give="use st.Threads(n), or sklearn.multiclass.OneVsRestClassifier, whose fits run on a cluster",
            )

    @property
    def _smooth(self) -> bool:
        return float(self.l1_ratio) == 0.0

    @property
    def _joint(self) -> bool:
        """Whether one model is fitted for all classes."""
        joint = len(self.classes_) > 2 and self.multi_class != "ovr"
        if self.solver == "sgd" and not joint:
            raise PlanError("solver='sgd' learns three classes or more jointly; for two classes leave solver='auto'")
        if self.solver == "svrg" and joint:
            raise PlanError(
                "solver='svrg' learns two classes; for several leave solver='auto', or learn each against the rest "
                "with sklearn.multiclass.OneVsRestClassifier(st.LogisticRegression(solver='svrg'))"
            )
        return joint

    def _plan_parameters(self) -> dict[str, Any]:
        # Fingerprints have always contained how several classes are learned.
        several = {"multi_class": "ovr" if self.multi_class == "ovr" else "multinomial"}
        return without_unused(super()._plan_parameters() | several)

    def explain(self, X: Any, y: Any = None, sample_weight: Any = None) -> str:
        """What `fit` would do with these data, in words: the problem, how X is stored, how and where it is solved.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame or paths
            Samples × features, as for `fit`.
        y : array [n] or None, default None
            Classes.
        sample_weight : array [n] or None, default None
            Weights of the samples.
        """
        self._check_parameters()
        model = clone(self)  # explaining must not change the estimator
        given = taken(model, X, y, sample_weight)
        model.classes_, which, weight = model._classes(given)
        if model._joint:
            from .softmax_fit import explain_joint, joint_problem

            return explain_joint(model, joint_problem(model, matrix_of(given), which, len(model.classes_), weight))
        if model.solver == "svrg":
            from .row_fit import explain_rows, logistic_rows

            return explain_rows(model, logistic_rows(model, matrix_of(given), which, weight)[0])

        def first(given: LinearInput) -> RegressionProblem:
            return separate_problems(model, given, which, weight)[0]

        return explain_fit(model, converted(given), first, formula(model), partial(strongest, model))
