"""Fit of `LinearSVC`: build the problem by rows, solve it, report its rounds."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.models.sklearn_base import ConvergenceWarning
from stretto.observe.progress import duration
from stretto.plan.cost import show_bytes
from stretto.plan.explain import show
from stretto.solvers.linear.dual_descent import RowFit, solve_dual
from stretto.solvers.linear.row_problem import RowProblem
from stretto.solvers.softmax.rows import DesignRows

from .base import FitSession, say

if TYPE_CHECKING:
    from .svc import LinearSVC

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_WIDTH = 118


def row_problem(model: LinearSVC, X: Any, which: Ints, weight: Floats) -> RowProblem:
    """The problem of a fit. which [n]: class indices; weight [n]: sample weights."""
    count = len(model.classes_)
    return RowProblem(
        rows=DesignRows.of(X, checked=True),
        y=which,
        positive=np.arange(count, dtype=np.int64) if count > 2 else np.ones(1, np.int64),
        weight=np.asarray(float(model.C) * weight, np.float64),
        loss=model.loss,
        bias=float(model.intercept_scaling) if model.fit_intercept else 0.0,
        profile=model.profile,
    )


def fit_rows(model: LinearSVC, sitting: FitSession, problem: RowProblem) -> RowFit:
    """Solve the problem, report each round, and warn if max_iter was too small."""
    began = time.perf_counter()

    def look(state: dict[str, Any]) -> bool:
        seen = {name: state[name] for name in ("round", "objective", "gap")}
        at = f"round {state['round']}"
        if model.verbose > 0:
            numbers = f"sweep {state['sweeps']}  objective {seen['objective']:.6g}  gap {seen['gap']:.2e}"
            say(f"{at}  {numbers}  {duration(time.perf_counter() - began)}")
        sitting.saved.round(seen["objective"], {"gap": seen["gap"]})

        def attributes() -> dict[str, Any]:
            w = np.array(state["w"])
            return {"coef_": w[:, :-1], "intercept_": problem.bias * w[:, -1], "classes_": model.classes_}

        return sitting.told(at, seen, attributes)

    watching = model.verbose > 0 or bool(getattr(model, "_skl_callbacks", ())) or sitting.saved.watching
    fit = solve_dual(
        problem, sitting.crew, tol=float(model.tol), max_sweeps=model.max_iter, seed=sitting.seed,
        look=look if watching else None, saved=sitting.saved,
    )  # fmt: skip
    if not fit.converged and not sitting.stopped:
        worst = int(np.argmax(fit.gap / np.maximum(fit.objective, 1e-300)))
        warnings.warn(
            f"{type(model).__name__} stopped after max_iter={model.max_iter} sweeps at a duality gap of "
            f"{fit.gap[worst]:.3g}, above the {model.tol * fit.objective[worst]:.3g} that tol asks for; raise max_iter "
            "or tol, use a smaller C, or scale the features",
            ConvergenceWarning,
            stacklevel=5,  # the line that called fit
        )
    return fit


def explain_rows(model: LinearSVC, problem: RowProblem) -> str:
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
    return "\n".join([f"{type(model).__name__} on {samples:,} × {features:,}", *show(facts, _WIDTH)])
