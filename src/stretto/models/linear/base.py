"""Base class of linear model estimators: runtime, callbacks, progress messages and convergence warnings of a fit."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.errors import PlanError
from stretto.kernels.core.profiles import PROFILES
from stretto.models import checks
from stretto.models.sklearn_base import BaseEstimator, CallbackSupportMixin, ConvergenceWarning, check_is_fitted
from stretto.observe.events import WidthChosen
from stretto.plan.job import JobPlan
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import runtime_words
from stretto.runtime.runtimes import Runtime
from stretto.schedule.checks import uncalled
from stretto.schedule.spec import Schedule
from stretto.schedule.working_sets import WorkingSets
from stretto.solvers.linear.fit_saving import FitSaving, saving_fit
from stretto.solvers.linear.regression import Fit, PenaltySolver, RegressionProblem
from stretto.text import duration

from . import persistence
from .input import LinearInput, features, laid_out
from .plan import PlanText, plan_linear

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.session import Session

Floats = NDArray[np.float64]


class LinearModel(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model whose coefficients solve a convex problem. Subclasses define the problem."""

    n_features_in_: int
    coef_: Floats
    plan_: JobPlan
    fingerprint_: str

    # Parameters that subclasses' constructors store.
    fit_intercept: bool
    standardize: bool = False
    tol: float
    max_iter: int
    profile: str
    random_state: Any
    n_jobs: int | Literal["auto"] | None
    runtime: Runtime | None
    verbose: int
    schedule: Schedule | WorkingSets | None = None
    warm_start: bool = False
    _squared = False  # whether the loss is that of least squares

    def _check_parameters(self) -> None:
        """Raise an error for wrong parameters before anything is read."""
        check = checks.of(self)
        check.number("tol", self.tol, least=0)
        check.number("tol", self.tol, most=LARGEST)
        check.number("max_iter", self.max_iter, least=1, whole=True)
        check.flags(fit_intercept=self.fit_intercept, standardize=self.standardize, warm_start=self.warm_start)
        check.choice("profile", self.profile, PROFILES)
        check.level(self.verbose)
        if instead := uncalled(self.schedule):
            raise PlanError(f"schedule is a function that makes one; write schedule={instead}")
        given: Any = self.schedule
        if given is not None and not isinstance(given, Schedule | WorkingSets):
            must = "a spec of st.schedule, such as st.schedule.prioritised(), or None for working sets"
            raise check.wrong("schedule", must, given)
        self._runtime()

    def _runtime(self, other: Any = None) -> Runtime:
        """The runtime: `other` if given, else from the parameters."""
        return checks.place(self.runtime if other is None else other, self.n_jobs, owner=type(self).__name__)

    @property
    def _by_rounds(self) -> bool:
        """Whether the rounds of a schedule solve the problem, not working sets."""
        return self.schedule is not None and not isinstance(self.schedule, WorkingSets)

    @property
    def _smooth(self) -> bool:
        """Whether there is a logistic loss without an L1 penalty."""
        return False

    def _plan_parameters(self) -> dict[str, Any]:
        """Parameters in the form that the plan and its fingerprint contain."""
        kind: Any = type(self)
        return {name: getattr(self, name) for name in _parameter_names(kind)}

    def _seed(self) -> int:
        # Working sets use no random numbers, so two fits agree unless the caller sets a seed.
        if self.random_state is None:
            return 0
        return checks.seed(self.random_state, owner=type(self).__name__)

    def _planned(
        self,
        given: LinearInput,
        words: PlanText,
        start: tuple[Any, ...] | None,
        made: JobPlan | None = None,
        runtime: Runtime | None = None,
    ) -> JobPlan:
        """The plan of a fit. made: the plan to run; PlanError if the plan of this fit would now differ."""
        seed = self._seed() if made is None else int(made.values["seed"])
        plan = plan_linear(self, given, words, seed=seed, runtime=runtime or self._runtime(), start=start)
        if made is not None:
            refuse_changed(made, plan, f"{type(self).__name__}.plan(X, y)")
        return plan

    @contextmanager
    def _sitting(
        self,
        given: LinearInput,
        plan: JobPlan,
        runtime: Runtime,
        session: Session | None = None,
        *,
        outputs: int = 1,
        epochs: bool = False,
    ) -> Iterator[FitSession]:
        """Open the session of one fit of a plan: threads, callbacks, checkpoints and run record.

        outputs : computed together from each value of X
        epochs : the solver measures its epochs, and finds the number of threads of n_jobs="auto" by itself
        """
        reason = ""
        if not epochs:
            runtime, reason = checks.by_work(runtime, plan.cost.entries * outputs)
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=given.X, y=given.y)
        self.plan_, self.fingerprint_ = plan, plan.fingerprint
        # With rounds of a schedule the driver holds the design: it cuts it for the nodes, and measures the gap itself.
        crews = checks.here(runtime, self.n_jobs) if self._by_rounds else runtime
        with crews.open() as crew, saving_fit(session, plan) as saved:
            saved.goal = self.max_iter
            if reason:
                saved.tell(WidthChosen(time.time(), 1, crew.workers, reason, settled=True))
            yield FitSession(self, crew, root, given, int(plan.values["seed"]), runtime, saved)
        root.call_on_fit_task_end(estimator=self, X=given.X, y=given.y)

    def _features(self, X: Any) -> Any:
        """X of predict, checked against the columns of fit."""
        check_is_fitted(self)
        return features(self, X)

    def _place(self) -> str:
        return runtime_words(self._runtime())

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors, no pickle), without its runtime and schedule.

        Parameters
        ----------
        path : str or path
            The file.
        """
        check_is_fitted(self)
        persistence.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : str or path
            The file.
        """
        return cast("Self", persistence.load(cls, path))

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients as a sparse matrix (CSR), one row for each output."""
        import scipy.sparse

        return scipy.sparse.csr_array(np.atleast_2d(self.coef_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass
class FitSession:
    """State of a running fit: its threads, callbacks and progress messages."""

    model: LinearModel
    crew: Crew
    root: Any  # scikit-learn's callback context
    given: LinearInput
    seed: int
    runtime: Runtime
    saved: FitSaving  # checkpoints and run record
    stopped: bool = False  # whether a callback requested a stop

    def lay_out(self) -> LinearInput:
        """The input with the design in the form that solvers take."""
        self.given = laid_out(self.given, self.crew)
        return self.given

    def solver(self, problem: RegressionProblem) -> PenaltySolver:
        """A solver for problems that differ in the penalty alone."""
        from stretto.solvers.linear.moments.solver import solver_of  # here, not above: it imports Numba

        model = self.model
        return solver_of(problem, self.crew, profile=model.profile, schedule=model.schedule, smooth=model._smooth)

    def solve(
        self,
        problem: RegressionProblem,
        l1: float,
        l2: float,
        *,
        gap: float,
        share: float = np.inf,
        units: float,
        start: Fit | None = None,
        works: PenaltySolver | None = None,
        label: str = "",
        attributes: Callable[[Floats, Any], dict[str, Any]],
    ) -> Fit:
        """Solve one problem to this gap and this share of the objective; warn if it was not reached.

        units : gap and objective are divided by this in messages
        works : an existing solver of this problem
        label : name of the problem, if there are several
        attributes : function from coefficients and intercept to the attributes of a fitted model, for callbacks
        """
        model = self.model
        watching = model.verbose > 0 or bool(getattr(model, "_skl_callbacks", ())) or self.saved.watching
        began = time.perf_counter()

        def look(state: dict[str, Any]) -> bool:
            at = f"{label}round {state['round']}"
            seen = {"objective": state["objective"] / units, "gap": state["gap"] / units}
            if model.verbose > 0:
                working = f"  {state['working']:,} features at work" if "working" in state else ""
                numbers = f"objective {seen['objective']:.6g}  gap {seen['gap']:.2e} of {state['goal'] / units:.2e}"
                say(f"{at}  {numbers}{working}  {duration(time.perf_counter() - began)}")
            self.saved.round(seen["objective"], {"gap": seen["gap"]})
            return self.told(
                at,
                {"round": state["round"], **seen},
                lambda: attributes(np.array(state["coef"]), _copied(state["intercept"])),
            )

        watch = look if watching else None
        works = self.solver(problem) if works is None else works
        if not model._by_rounds:
            works.restore(self.saved.take("solver") or {})
            with self.saved.level("solver", works.state):
                fit = works.fit(
                    l1, l2, gap=gap, share=share, max_rounds=model.max_iter, start=start, look=watch,
                    ended=self.saved.ended,
                )  # fmt: skip
        else:
            from .schedule import fit_by_schedule

            assert model.schedule is not None
            fit = fit_by_schedule(
                problem, works, l1, l2, schedule=model.schedule, gap=gap, share=share, max_rounds=model.max_iter,
                start=start, look=watch, runtime=self.runtime, seed=self.seed, saved=self.saved,
            )  # fmt: skip
        if not fit.converged and not self.stopped:
            warn_unfinished(f"{type(model).__name__} {label}".rstrip(", "), fit, units, model.max_iter)
        return fit

    def told(
        self, task_name: str, metadata: dict[str, Any], attributes: Callable[[], dict[str, Any]] | None = None
    ) -> bool:
        """Notify scikit-learn's callbacks of a completed task; return whether one of them requests a stop."""
        about = {"estimator": self.model, "X": self.given.X, "y": self.given.y}
        task = self.root.subcontext(task_name=task_name)
        task.call_on_fit_task_begin(**about)
        end = task.call_on_fit_task_end(**about, metadata=metadata, reconstruction_attributes=attributes)
        self.stopped |= bool(end)
        return self.stopped


def _copied(intercept: Any) -> Any:
    """An intercept, or a copy of those of several outputs."""
    return np.array(intercept) if np.ndim(intercept) else float(intercept)


@cache
def _parameter_names(estimator: Any) -> tuple[str, ...]:
    """Names of an estimator's parameters; inspecting its signature takes as long as a small fit."""
    return tuple(estimator._get_param_names())


def warn_unfinished(what: str, fit: Fit, units: float, max_iter: int) -> None:
    """Warn that a fit ended before it reached its tolerance."""
    stopped = f"stopped after max_iter={max_iter} rounds" if fit.rounds >= max_iter else "found no better point"
    advice = "raise max_iter or tol" if fit.rounds >= max_iter else "raise tol"
    warnings.warn(
        f"{what} {stopped} at a duality gap of {fit.gap / units:.3g}, above the {fit.goal / units:.3g} that tol asks "
        f"for; {advice}, use a stronger penalty, or scale the features",
        ConvergenceWarning,
        stacklevel=6,  # the line that called fit
    )


def say(text: str) -> None:
    """Print a line of progress to standard error, so that results can be piped."""
    print(text, file=sys.stderr)
