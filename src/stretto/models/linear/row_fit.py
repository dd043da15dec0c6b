"""Fits by rows, of `LinearSVC` and `LogisticRegression(solver="svrg")`: build the problem, solve it, report rounds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stretto.models.sklearn_base import ConvergenceWarning
from stretto.solvers.linear.dual_descent import RowFit, solve_dual
from stretto.solvers.linear.growing_batches import solve_growing
from stretto.solvers.linear.row_problem import RowProblem
from stretto.solvers.linear.svrg import SvrgOptions, solve_svrg
from stretto.solvers.softmax.rows import DesignRows
from stretto.text import duration, fact_page, show_bytes

from .base import FitSession, say

# `LinearSVC` or `LogisticRegression`, which import this module: each function says what it reads of the estimator.
RowClassifier: TypeAlias = Any

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def row_problem(model: RowClassifier, X: Any, which: Ints, weight: Floats) -> RowProblem:
    """The problem of a support vector machine. which [n]: class indices; weight [n]: sample weights."""
    return RowProblem(
        rows=DesignRows.of(X, checked=True),
        y=which,
        positive=_positive(model),
        weight=np.asarray(float(model.C) * weight, np.float64),
        loss=model.loss,
        bias=float(model.intercept_scaling) if model.fit_intercept else 0.0,
        profile=model.profile,
    )


def logistic_rows(model: RowClassifier, X: Any, which: Ints, weight: Floats) -> tuple[RowProblem, Floats]:
    """The problem of a logistic regression, and the units [p] of its coefficients: ones unless standardize."""
    rows = DesignRows.of(X, checked=True)
    units = np.ones(rows.shape[1])
    if model.standardize:
        units = 1.0 / rows.spread(weight)
        rows = rows.scaled(units)
    problem = RowProblem(
        rows=rows,
        y=which,
        positive=_positive(model),
        weight=np.asarray(float(model.C) * weight, np.float64),
        loss="logistic",
        bias=float(bool(model.fit_intercept)),
        l1=float(model.l1_ratio),
        l2=1.0 - float(model.l1_ratio),
        free=bool(model.fit_intercept),
        profile=model.profile,
    )
    return problem, units


def _positive(model: RowClassifier) -> Ints:
    """[k] the class that counts as +1 in each problem: the second of two, else each in turn."""
    count = len(model.classes_)
    return np.arange(count, dtype=np.int64) if count > 2 else np.ones(1, np.int64)


def fit_rows(
    model: RowClassifier,
    sitting: FitSession,
    problem: RowProblem,
    units: Floats | float = 1.0,
    last: tuple[Floats, Floats] | None = None,
) -> None:
    """Solve the problem, report each round, warn if max_iter was too small, and store the coefficients.

    units : [p] of the coefficients
    last : coef, intercept to start from
    """

    def attributes(w: Floats) -> dict[str, Any]:
        return {"coef_": w[:, :-1] * units, "intercept_": problem.bias * w[:, -1], "classes_": model.classes_}

    watching = model.verbose > 0 or bool(getattr(model, "_skl_callbacks", ())) or sitting.saved.watching
    given: dict[str, Any] = {
        "tol": float(model.tol),
        "seed": sitting.seed,
        "look": _looking(model, sitting, attributes) if watching else None,
        "saved": sitting.saved,
    }
    if model.solver == "svrg":
        start = None if last is None else np.column_stack([last[0] / units, last[1]])
        options = SvrgOptions(model.variance_reduction, int(model.batch_size))
        fit = solve_svrg(problem, sitting.crew, epochs=model.max_iter, options=options, start=start, **given)
    elif model.solver == "sgd":
        fit = solve_growing(problem, sitting.crew, epochs=model.max_iter, **given)
    else:
        fit = solve_dual(problem, sitting.crew, max_sweeps=model.max_iter, **given)
    if not fit.converged and not sitting.stopped:
        _warn(model, fit)
    for name, value in attributes(fit.w).items():
        setattr(model, name, value)
    model.dual_gap_, model.objective_, model.n_iter_ = fit.gap, fit.objective, np.maximum(fit.rounds, 1)


def _looking(
    model: RowClassifier, sitting: FitSession, attributes: Callable[[Floats], dict[str, Any]]
) -> Callable[[dict[str, Any]], bool]:
    """A function that reports a round and says whether a callback requests a stop."""
    began = time.perf_counter()

    def look(state: dict[str, Any]) -> bool:
        seen = {name: state[name] for name in ("round", "objective", "gap")}
        at = f"round {state['round']}"
        if model.verbose > 0:
            sweeps = f"sweep {state['sweeps']}  " if "sweeps" in state else ""
            numbers = f"{sweeps}objective {seen['objective']:.6g}  gap {seen['gap']:.2e}"
            say(f"{at}  {numbers}  {duration(time.perf_counter() - began)}")
        sitting.saved.round(seen["objective"], {"gap": seen["gap"]})
        return sitting.told(at, seen, lambda: attributes(np.array(state["w"])))

    return look


def _warn(model: RowClassifier, fit: RowFit) -> None:
    worst = int(np.argmax(fit.gap / np.maximum(fit.objective, 1e-300)))
    what = "sweeps" if model.solver == "dual" else "epochs"
    warnings.warn(
        f"{type(model).__name__} stopped after max_iter={model.max_iter} {what} at a duality gap of "
        f"{fit.gap[worst]:.3g}, above the {model.tol * fit.objective[worst]:.3g} that tol asks for; raise max_iter or "
        "tol, use a smaller C, or scale the features",
        ConvergenceWarning,
        stacklevel=6,  # the line that called fit
    )


def explain_rows(model: RowClassifier, problem: RowProblem) -> str:
    """Several lines: the problem, how X is stored, how and where it would be solved."""
    rows = problem.rows
    samples, features = rows.shape
    words = model._words()
    facts = [
        ("problem", f"minimise {words.formula}, {words.score}"),
        ("data", f"{samples:,} samples × {features:,} features, {rows.storage}, {show_bytes(rows.nbytes)}"),
        ("conversion", rows.note or "none: the arrays are used as they came"),
        ("solver", words.solver),
        ("until", words.until),
        ("grade", "identical: same data, parameters and seed, same bits, at any number of workers"),
        ("profile", model.profile),
        ("runs on", model._place()),
    ]
    if model.standardize:
        facts.insert(3, ("scaling", "a copy with columns of standard deviation 1"))
    return fact_page(f"{type(model).__name__} on {samples:,} × {features:,}", facts)
