"""Joint fit of all classes for `LogisticRegression`: build the softmax problem, solve it, unpack the coefficients."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.kernels.linear.softmax_tiles import strips
from stretto.models import checks
from stretto.models.sklearn_base import ConvergenceWarning
from stretto.runtime.blocks.epoch_widths import EpochWidths
from stretto.solvers.softmax.few_features import suits_newton
from stretto.solvers.softmax.metric import fits_table, room_for_table
from stretto.solvers.softmax.point import SoftmaxProblem
from stretto.solvers.softmax.ridge import suits_ridge
from stretto.solvers.softmax.rows import DesignRows
from stretto.solvers.softmax.sgd import solve_sgd
from stretto.solvers.softmax.solver import SoftmaxFit, solve
from stretto.solvers.softmax.working_sets import by_columns
from stretto.text import duration, fact_page, show_bytes

from .base import FitSession, say
from .explain import joint_formula, joint_solver

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 2.0**-46  # of the objective: smaller gaps are rounding, so the solver aims at no less


class JointPenalty(Protocol):
    """What a joint problem reads of a `LogisticRegression`."""

    @property
    def C(self) -> float: ...
    @property
    def l1_ratio(self) -> float: ...
    @property
    def fit_intercept(self) -> bool: ...
    @property
    def standardize(self) -> bool: ...


class JointModel(Protocol):
    """What a joint fit reads of a `LogisticRegression`."""

    C: float
    l1_ratio: float
    fit_intercept: bool
    standardize: bool
    schedule: Any
    solver: str
    optimizer: Any
    learning_rate: Any
    max_iter: int
    tol: float
    profile: str
    verbose: int
    classes_: Any

    def _place(self) -> str: ...


def joint_problem(model: JointPenalty, X: Any, which: Ints, classes: int, weight: Floats) -> SoftmaxProblem:
    """The softmax problem. which [n]: class indices; weight [n]: sample weights."""
    rows = DesignRows.of(X, checked=True)
    scale = rows.spread(weight) if model.standardize else np.ones(rows.shape[1])
    l1, l2 = float(model.l1_ratio), 1.0 - float(model.l1_ratio)
    return SoftmaxProblem(
        rows=rows,
        y=which.astype(np.int64),
        classes=classes,
        weight=np.asarray(float(model.C) * weight, np.float64),
        intercept=bool(model.fit_intercept),
        l1=np.append(l1 * scale, 0.0),
        ridge=np.append(l2 * scale * scale, 0.0),
    )


def joint_gap(problem: SoftmaxProblem, tol: float) -> float:
    """tol times the loss of the model without features."""
    return max(float(tol) * problem.empty, _ROUNDING * float(problem.weight.sum()) * math.log(problem.classes))


def fit_joint(
    model: JointModel, sitting: FitSession, problem: SoftmaxProblem, last: tuple[Floats, Floats] | None
) -> SoftmaxFit:
    """Solve the problem, report each round, and warn if max_iter was too small. last: coef, intercept to start from."""
    if model.schedule is not None:
        raise PlanError(
            "schedule= chooses among the features of one problem with two classes; leave it out, or learn each class "
            "against the rest with sklearn.multiclass.OneVsRestClassifier"
        )
    gap, began = joint_gap(problem, model.tol), time.perf_counter()

    def look(state: dict[str, Any]) -> bool:
        if model.verbose > 0:
            numbers = f"objective {state['objective']:.6g}  gap {state['gap']:.2e} of {gap:.2e}"
            say(f"round {state['round']}  {numbers}  {duration(time.perf_counter() - began)}")

        def attributes() -> dict[str, Any]:
            coef, intercept = unpack(state["W"], problem)
            return {"coef_": coef, "intercept_": intercept, "classes_": model.classes_}

        seen = {"round": state["round"], "objective": state["objective"], "gap": state["gap"]}
        sitting.saved.round(state["objective"], {"gap": state["gap"]})
        return sitting.told(f"round {state['round']}", seen, attributes)

    watching = model.verbose > 0 or bool(getattr(model, "_skl_callbacks", ())) or sitting.saved.watching
    given: dict[str, Any] = {
        "gap": gap,
        "profile": model.profile,
        "seed": sitting.seed,
        "start": None if last is None else pack(*last, problem),
        "look": look if watching else None,
        "saved": sitting.saved,
    }
    if model.solver == "sgd":
        rule = checks.width_search(sitting.runtime)
        given["widths"] = None if rule is None else EpochWidths(rule(model.max_iter), sitting.crew, sitting.saved.tell)
        fit = solve_sgd(
            problem, sitting.crew, optimizer=model.optimizer, learning_rate=model.learning_rate,
            epochs=model.max_iter, **given,
        )  # fmt: skip
    else:
        fit = solve(problem, sitting.crew, max_rounds=model.max_iter, **given)
    if not fit.converged and not sitting.stopped:
        what = "epochs" if model.solver == "sgd" else "rounds"
        advice = "solver='auto', or raise max_iter or tol" if model.solver == "sgd" else "raise max_iter or tol"
        warnings.warn(
            f"{type(model).__name__} stopped after {fit.rounds} {what} (max_iter={model.max_iter}) at a duality gap of "
            f"{fit.gap:.3g}, above the {gap:.3g} that tol asks for; {advice}, use a smaller C, or scale the features",
            ConvergenceWarning,
            stacklevel=6,  # the line that called fit
        )
    return fit


def pack(coef: Floats, intercept: Floats, problem: SoftmaxProblem) -> Floats:
    """[p + 1, K] weights from coef [k, p] and intercept [k]."""
    k, p = coef.shape
    W = np.zeros((p + 1, strips(k)[0]))
    W[:p, :k] = coef.T
    if problem.intercept:
        W[p, :k] = intercept
    return W


def unpack(W: Floats, problem: SoftmaxProblem) -> tuple[Floats, Floats]:
    """(coef [k, p], intercept [k]); intercepts add up to zero, which changes no probability."""
    k = problem.classes
    bias = W[-1, :k] - W[-1, :k].mean() if problem.intercept else np.zeros(k)
    return np.ascontiguousarray(W[:-1, :k].T), bias


def explain_joint(model: JointModel, problem: SoftmaxProblem) -> str:
    """Several lines: the problem, how X is stored, how and where it would be solved."""
    rows = problem.rows
    samples, features = rows.shape
    metric, how = "", ""
    if model.solver != "sgd":
        if not rows.sparse and suits_newton(samples, features, problem.classes, bool(model.l1_ratio > 0)):
            how = "Newton steps of all features, in one thread"
        elif by_columns(problem):
            how = "Newton steps on working sets of features, by coordinate descent"
        elif suits_ridge(problem):
            how = (
                "Newton steps by conjugate gradients on centred features; quasi-Newton steps where these take too many"
            )
        table = fits_table(problem) and room_for_table(problem)
        metric = f", in the metric of {'products of all features' if table else 'the curvature of every feature'}"
    inside = "z = xW + b, b free" if problem.intercept else "z = xW"
    facts = [
        ("problem", f"minimise {joint_formula(model)}, {inside}, {problem.classes} classes jointly"),
        ("data", f"{samples:,} samples × {features:,} features, {rows.storage}, {show_bytes(rows.nbytes)}"),
        ("conversion", rows.note or "none: the arrays are used as they came"),
    ]
    if rows.sparse:
        facts.append(("copy", "gradients need the columns too: a CSC copy is made once"))
    if model.standardize:
        facts.append(("scaling", "columns count as if their standard deviation were 1; X itself is not touched"))
    facts += [
        ("solver", how or joint_solver(model, metric)),
        ("until", f"the duality gap is at most {model.tol:g} × the loss of the model without features, "
                  f"or {model.max_iter} {'epochs' if model.solver == 'sgd' else 'rounds'}"),
        ("grade", "identical: same data, parameters and seed, same bits, at any number of workers"),
        ("profile", model.profile),
        ("runs on", model._place()),
    ]  # fmt: skip
    return fact_page(f"{type(model).__name__} on {samples:,} × {features:,}", facts)
