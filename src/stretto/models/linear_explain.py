"""A fit of a linear model in words, before it is made: the problem, the data, the solver, what is promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stretto.plan.cost import show_bytes
from stretto.plan.explain import show
from stretto.programs.regression import Problem

if TYPE_CHECKING:
    from .linear_base import LinearModel
    from .linear_input import Given

_WIDTH = 118
_WORKING_SETS = (
    "working sets: the features nearest to entering, solved by coordinate descent, then the duality gap over all; "
    "features proven zero are looked at no more"
)


def explain_fit(
    model: LinearModel, given: Given, problem: Problem, formula: str, strongest: Callable[[float, int], str]
) -> str:
    """Several lines. strongest: from the smallest l1 that gives all zeros, and the samples, to a sentence about it."""
    from stretto.programs.working import Solver  # here, not above: it imports Numba

    design = given.design
    samples, features = design.shape
    with model._runtime().open() as crew:
        largest = Solver(problem, crew, profile=model.profile).largest_l1()
    inside = "z = Xw + b, b free" if problem.intercept else "z = Xw"
    facts = [
        ("problem", f"minimise {formula}, {inside}{', w ≥ 0' if problem.positive else ''}"),
        ("penalty", strongest(largest, samples)),
        ("data", f"{samples:,} samples × {features:,} features, {design.storage}, {show_bytes(design.nbytes)}"),
        ("conversion", design.note or "none: the arrays are used as they came"),
    ]
    if problem.scale is not None:
        facts.append(("scaling", "columns count as if their standard deviation were 1; X itself is not touched"))
    solver = _WORKING_SETS if model.schedule is None else model.schedule.explain()
    facts += [
        ("solver", solver),
        ("until", f"{_until(problem, model.tol)}, or {model.max_iter} rounds"),
        ("grade", "identical: same data and parameters, same bits, at any number of workers"),
        ("profile", model.profile),
        ("runs on", model._place()),
    ]
    return "\n".join([f"{type(model).__name__} on {samples:,} × {features:,}", *show(facts, _WIDTH)])


def _until(problem: Problem, tol: float) -> str:
    if problem.loss == "squared":
        return f"the duality gap is at most {tol:g} × ‖y{' − ȳ' if problem.intercept else ''}‖²/n"
    return f"the duality gap is at most {tol:g} × the objective"
