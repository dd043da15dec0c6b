"""Fits of `LogisticRegression` with one problem for two classes, or one for each class against the rest."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.solvers.linear.regression import RegressionProblem

from .base import FitSession
from .input import LinearInput, beginning, logistic, logistic_gap

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class SeparateFits(Protocol):
    """What the fits read from an estimator, `LogisticRegression`, and store in it."""

    C: Any
    l1_ratio: Any
    tol: Any
    max_iter: Any
    fit_intercept: bool
    standardize: bool
    classes_: Any
    coef_: Any
    intercept_: Any
    dual_gap_: Any
    objective_: Any
    n_iter_: Any


def separate_problems(model: SeparateFits, given: LinearInput, which: Ints, weight: Floats) -> list[RegressionProblem]:
    """One problem for two classes, else one for each class against the rest. which [n]: class indices."""
    count = len(model.classes_)
    scale = given.design.spread(weight) if model.standardize else None
    positives = [1] if count == 2 else range(count)
    return [
        logistic(
            given.design,
            np.where(which == k, 1.0, -1.0),
            float(model.C) * weight,
            intercept=model.fit_intercept,
            scale=scale,
        )
        for k in positives
    ]


def fit_separate(
    model: SeparateFits,
    sitting: FitSession,
    which: Ints,
    weight: Floats,
    last: tuple[Floats, Floats] | None,
) -> None:
    """Solve the problems one after another and store the coefficients. last: coef, intercept to start from."""
    count = 1 if len(model.classes_) == 2 else len(model.classes_)
    # Classes that are not solved yet have zeros, or the coefficients of the last fit.
    coefs, intercepts = np.zeros((count, sitting.given.shape[1])), np.zeros(count)
    if last is not None:
        coefs, intercepts = np.array(last[0]), np.array(last[1])
    ends: list[tuple[float, float, int]] = []  # gap, objective and rounds of the solved classes
    sitting.saved.goal = count * model.max_iter
    if (found := sitting.saved.take("classes")) is not None:
        coefs, intercepts = np.array(found["coefs"]), np.array(found["intercepts"])
        ends = [(gap, objective, int(rounds)) for gap, objective, rounds in found["ends"].tolist()]

    def done() -> dict[str, NDArray[Any]]:
        return {"coefs": coefs, "intercepts": intercepts, "ends": np.array(ends).reshape(-1, 3)}

    with sitting.saved.level("classes", done):
        for k, problem in enumerate(separate_problems(model, sitting.lay_out(), which, weight)):
            if k < len(ends):
                continue

            def so_far(coef: Floats, intercept: float, k: int = k) -> dict[str, Any]:
                seen, bias = coefs.copy(), intercepts.copy()
                seen[k], bias[k] = coef, intercept
                return {"coef_": seen, "intercept_": bias, "classes_": model.classes_}

            fit = sitting.solve(
                problem,
                float(model.l1_ratio),
                1.0 - float(model.l1_ratio),
                gap=logistic_gap(problem, model.tol),
                share=model.tol,
                units=1.0,
                start=None if last is None else beginning(coefs[k], intercepts[k], problem),
                label=f"class {model.classes_[k]!s}, " if count > 1 else "",
                attributes=so_far,
            )
            coefs[k], intercepts[k] = fit.coef, fit.intercept
            ends.append((fit.gap, fit.objective, max(1, fit.rounds)))
    model.coef_, model.intercept_ = coefs, intercepts
    model.dual_gap_ = np.array([gap for gap, _, _ in ends])
    model.objective_ = np.array([objective for _, objective, _ in ends])
    model.n_iter_ = np.array([rounds for _, _, rounds in ends])
