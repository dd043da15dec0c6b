"""Linear models of numbers: `Regressor`, and `PenalisedRegressor` with its fit, plan and explanation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.models import checks
from stretto.models.sklearn_base import RegressorMixin, clone, with_callbacks
from stretto.plan.job import JobPlan
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session
from stretto.solvers.linear.regression import Fit, PenaltySolver, RegressionProblem

from .base import FitSession, LinearModel
from .explain import explain_fit, until
from .input import LinearInput, beginning, read, squared_gap, taken
from .plan import PlanText

Floats = NDArray[np.float64]

UNPENALISED = "without a penalty this is plain least squares: use sklearn.linear_model.LinearRegression"
UNPENALISED_LOSS = "for a model nearly without a penalty take a small alpha, such as 1e-6"


class Regressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Base class of linear models whose targets are numbers."""

    coef_: Floats
    intercept_: Any  # float; array [k] with several outputs
    dual_gap_: float
    objective_: float
    n_iter_: int

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions [n].

        Parameters
        ----------
        X : array or sparse matrix [n, p] or DataFrame
            Samples × features.
        """
        return self._linear(X)

    def _linear(self, X: Any) -> NDArray[Any]:
        """Xw + b."""
        X = self._features(X)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def _attributes(self, coef: Floats, intercept: Any) -> dict[str, Any]:
        """The attributes that a solver's coefficients and intercept become."""
        return {"coef_": coef, "intercept_": intercept}

    def _keep(self, fit: Fit, samples: int) -> None:
        for name, value in self._attributes(fit.coef, fit.intercept).items():
            setattr(self, name, value)
        self.dual_gap_, self.objective_ = fit.gap / samples, fit.objective / samples
        self.n_iter_ = max(1, fit.rounds)  # evaluating the start is a round too, even if nothing is left to do


class PenalisedRegressor(Regressor):
    """A linear model that minimises the mean loss and a penalty of strength alpha. Subclasses define both."""

    # Parameters that subclasses' constructors store.
    alpha: float
    l1_ratio: float
    random_state: Any = None

    _loss = "squared"
    _unpenalised = UNPENALISED

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check = checks.of(self)
        none = isinstance(self.alpha, int | float) and self.alpha == 0
        check.number("alpha", self.alpha, above=0, why=self._unpenalised if none else "")
        check.number("alpha", self.alpha, most=LARGEST)
        check.number("l1_ratio", self.l1_ratio, least=0, most=1)

    # --- what subclasses define -------------------------------------------------------------------------------------

    def _taken(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        """The validated arguments of fit; X is not converted."""
        return taken(self, X, y, sample_weight, numeric=True)

    def _read(self, X: Any, y: Any, sample_weight: Any) -> LinearInput:
        """The validated arguments of fit, and X converted if it is in memory."""
        return read(self, X, y, sample_weight, numeric=True, by_solver=True)

    def _problem(self, given: LinearInput) -> RegressionProblem:
        raise NotImplementedError

    def _works(self, sitting: FitSession, problem: RegressionProblem) -> PenaltySolver:
        """The solver of the problem."""
        return sitting.solver(problem)

    def _strengths(self, samples: int) -> tuple[float, float]:
        """L1 and L2 strength of a penalty of the sum of losses."""
        strength, share = float(self.alpha) * samples, float(self.l1_ratio)
        return strength * share, strength * (1.0 - share)

    def _goal(self, works: PenaltySolver) -> tuple[float, float]:
        """The duality gap that is wanted, and its largest share of the objective."""
        return squared_gap(works, self.tol), np.inf

    def _formula(self) -> str:
        """The objective as text."""
        raise NotImplementedError

    def _solver_text(self) -> str:
        """How it is solved, as text; "" for that of the schedule."""
        return ""

    def _start(self, last: tuple[Any, ...], problem: RegressionProblem) -> Fit:
        """The fit that a warm start continues from."""
        return beginning(last[0], last[1], problem)

    # --- learning ---------------------------------------------------------------------------------------------------

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, session: Session | None = None) -> Self:
        """Learn from X and y, or from svmlight files.

        Parameters
        ----------
        X : array or sparse matrix [n, p], DataFrame, path, folder, glob or list of paths
            Samples × features. CSC, or dense in Fortran order, is best; anything else is converted once. Paths name
            svmlight files, whose labels are y: on a cluster the nodes read them, and no process holds all of X.
        y : array [n] or None, default None
            Targets, [n, k] for models of several outputs; None with files.
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
        given = clone(self)._taken(X, y, sample_weight)
        made = self._planned(given, self._words(given), self._last(given))
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
        runtime: Runtime | None = None,
        session: Session | None = None,
    ) -> Self:
        self._check_parameters()
        where = self._runtime(runtime)
        given = self._read(X, y, sample_weight)
        last = self._last(given)
        words = self._words(given)
        plan = self._planned(given, words, last, made, where)
        samples = given.shape[0]
        with self._sitting(given, plan, where, session, outputs=words.outputs) as sitting:
            problem = self._problem(sitting.lay_out())
            works = self._works(sitting, problem)
            gap, share = self._goal(works)
            fit = sitting.solve(
                problem,
                *self._strengths(samples),
                gap=gap,
                share=share,
                units=samples,
                works=works,
                start=None if last is None else self._start(last, problem),
                attributes=self._attributes,
            )
            self._keep(fit, samples)
        return self

    def _last(self, given: LinearInput) -> tuple[Any, ...] | None:
        """The coefficients that a warm start continues from."""
        shape = (*given.y.shape[1:], given.shape[1])
        known = self.warm_start and hasattr(self, "coef_") and self.coef_.shape == shape
        return (self.coef_, self.intercept_) if known else None

    def _words(self, given: LinearInput) -> PlanText:
        outputs = given.y.shape[1] if given.y.ndim > 1 else 1
        score = "" if outputs == 1 else "z = Wx + b, b free" if self.fit_intercept else "z = Wx"
        until_ = until(self._loss, self.fit_intercept, self.tol, self.max_iter)
        return PlanText(type(self).__name__, self._formula(), until_, self._solver_text(), score, outputs)

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
        given = clone(self)._read(X, y, sample_weight)
        return explain_fit(self, given, self._problem, self._formula(), self._strongest, self._solver_text())

    def _strongest(self, largest: float, samples: int) -> str:
        if self.l1_ratio == 0:
            return "no coefficient is set to zero: l1_ratio is 0"
        top = largest / (samples * self.l1_ratio)
        share = self.alpha / top if top else np.inf
        return f"all coefficients are zero from alpha {top:.4g} on; this alpha is {share:.3g} times that"


def penalty_text(alpha: float, l1_ratio: float, norm: str = "‖w‖₁", square: str = "‖w‖²") -> str:
    """An elastic-net penalty as text that follows a loss."""
    first, second = alpha * l1_ratio, alpha * (1 - l1_ratio)
    text = f" + {float(first):.4g} {norm}" if first else ""
    return text + (f" + ½ {float(second):.4g} {square}" if second else "")
