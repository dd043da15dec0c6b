"""`LinearSVC`: linear support vector machine for two or more classes.

model = st.LinearSVC(C=0.5).fit(X, y)
model.predict(X), model.decision_function(X), model.dual_gap_
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.errors import PlanError
from stretto.models import checks
from stretto.models.sklearn_base import clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.chosen import refuse_elsewhere
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session

from .classifier import LinearClassifier
from .explain import svrg_words
from .input import matrix_of, taken
from .plan import PlanText
from .svrg_options import check_svrg, without_unused

Floats = NDArray[np.float64]

_LOSSES = {"hinge": "max(0, 1 − y z)", "squared_hinge": "max(0, 1 − y z)²"}
_GROWING = "subgradient steps on mini-batches of 0.1, 1 and 10 % of the samples, in three phases"
_DUAL = "dual coordinate descent with shrinking, one class against the rest"


class LinearSVC(LinearClassifier):
    """Linear support vector machine: C·Σ s·max(0, 1 − yz)² + ½‖w‖² + ½v², or without the square.

    Here z = xw + b, b = intercept_scaling·v, y is −1 or +1 and s are the sample weights: scikit-learn's objective. With
    k > 2 classes there is a problem for each class against the rest.

    Parameters
    ----------
    C : float, default 1.0
        Weight of the data against the penalty, more than 0; a smaller C gives smaller coefficients.
    loss : {"squared_hinge", "hinge"}, default "squared_hinge"
        Of a sample.
    fit_intercept : bool, default True
        Learn b.
    intercept_scaling : float, default 1.0
        The intercept is the coefficient of a feature with this value, so it is penalised too; a larger value penalises
        it less.
    tol : float, default 0.0001
        Stop when the duality gap, which bounds how far the objective is from its minimum, is at most tol times the
        objective, for every class.
    max_iter : int, default 1000
        The most sweeps over the samples, for each class; with the other solvers, epochs.
    class_weight : dict, "balanced" or None, default None
        {class: weight}, or "balanced" for weights that make the classes count alike.
    solver : {"dual", "svrg", "sgd"}, default "dual"
        Dual coordinate descent; stochastic steps with variance reduction, for loss="squared_hinge" only; or
        subgradient steps on mini-batches that grow in three phases, which end without a proof: when shorter steps
        change the objective by less than tol.
    variance_reduction : {"svrg", "svrg++", "katyusha"}, default "svrg"
        Of solver="svrg": plain, with epochs that grow, or with momentum.
    batch_size : int, default 1
        Of solver="svrg": samples of a step.
    n_jobs : int or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. Classes are solved in parallel. Never changes the answer.
    runtime : runtime or None, default None
        Where to run, on this machine; overrides n_jobs. Never changes the answer.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of the order in which samples are visited; None is 0.
    verbose : int, default 0
        0 quiet, 1 a line for each round of up to ten sweeps, or for each epoch.

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
    dual_gap_ : ndarray of float64 [1] or [k]
        The duality gap of each problem.
    objective_ : ndarray of float64 [1] or [k]
        The objective of each problem.
    n_iter_ : ndarray of int [1] or [k]
        Sweeps or epochs of each problem.
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
    >>> model = st.LinearSVC(C=0.1).fit(X, X[:, 4] > 0)
    >>> int(np.abs(model.coef_).argmax()), model.decision_function(X).shape
    (4, (100,))
    >>> st.LinearSVC(C=0.1, loss="hinge").fit(X, np.digitize(X[:, 4], [-1, 1])).coef_.shape
    (3, 20)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 1000,
        class_weight: Any = None,
        solver: str = "dual",
        variance_reduction: str = "svrg",
        batch_size: int = 1,
        n_jobs: int | None = None,
        runtime: Runtime | None = None,
        profile: str = "exact",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.solver = solver
        self.variance_reduction = variance_reduction
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        check.choice("loss", self.loss, tuple(_LOSSES))
        check.number("intercept_scaling", self.intercept_scaling, above=0, why="without one use fit_intercept=False")
        check.number("intercept_scaling", self.intercept_scaling, least=1.0 / LARGEST, most=LARGEST)
        check.choice("solver", self.solver, ("dual", "svrg", "sgd"))
        check_svrg(self)
        if self.solver == "svrg" and self.loss == "hinge":
            raise PlanError(
                "solver='svrg' needs a loss with a gradient, and loss='hinge' has none at 1; take "
                "loss='squared_hinge', or leave solver='dual'"
            )

    def _runtime(self, other: Any = None) -> Runtime:
        found = super()._runtime(other)
        refuse_elsewhere(
            found,
            owner=type(self).__name__,
            why="samples are visited in random order in one memory",
            give="use st.Threads(n) or st.Serial()",
        )
        return found

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
        made = self._planned(replace(given, weight=weight), model._words(), None)
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
        from .row_fit import fit_rows, row_problem  # here, not above: it imports Numba

        self._check_parameters()
        where = self._runtime(runtime)
        given = taken(self, X, y, sample_weight)
        self.classes_, which, weight = self._classes(given)
        plan = self._planned(replace(given, weight=weight), self._words(), None, made, where)
        problem = row_problem(self, matrix_of(given), which, weight)
        with self._sitting(given, plan, where, session) as sitting:
            fit_rows(self, sitting, problem)
        return self

    def _words(self) -> PlanText:
        """The text of the plan; the classes must be known."""
        count = len(self.classes_)
        several = {"classes": count} if count > 2 else {}
        return PlanText(
            type(self).__name__,
            self._formula(),
            self._until(),
            self._how(),
            "z = Xw + b" if self.fit_intercept else "z = Xw",
            max(1, count * (count > 2)),
            {"schedule": self._how(), **several},
        )

    def _formula(self) -> str:
        """The objective as text."""
        formula = f"{float(self.C):.4g} Σ {_LOSSES[self.loss]} + ½ ‖w‖²"
        formula += f" + ½ (b / {float(self.intercept_scaling):.4g})²" if self.fit_intercept else ""
        several = len(self.classes_) > 2
        return f"for each of {len(self.classes_)} classes against the rest {formula}" if several else formula

    def _how(self) -> str:
        fixed = {"dual": _DUAL, "sgd": _GROWING}
        return fixed.get(self.solver) or svrg_words(self.variance_reduction, self.batch_size)

    def _until(self) -> str:
        what = "sweeps" if self.solver == "dual" else "epochs"
        if self.solver == "sgd":
            return (
                f"shorter steps change the objective by less than {float(self.tol):g} of it, or {self.max_iter} {what}"
            )
        return f"the duality gap is at most {float(self.tol):g} × the objective, or {self.max_iter} {what}"

    def _plan_parameters(self) -> dict[str, Any]:
        return without_unused(super()._plan_parameters())

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
        from .row_fit import explain_rows, row_problem

        self._check_parameters()
        model = clone(self)  # explaining must not change the estimator
        given = taken(model, X, y, sample_weight)
        model.classes_, which, weight = model._classes(given)
        return explain_rows(model, row_problem(model, matrix_of(given), which, weight))

    # --- using it ---------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Floats:
        """Scores of the second class [n], or of all classes [n, k]: positive on the class's side of the boundary.

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score, for each sample [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._best(self._scores(X))
