"""Text that explains a linear model's fit before it runs: problem, data, solver, guarantees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stretto.data.design.design import Design
from stretto.models import checks
from stretto.solvers.linear.regression import RegressionProblem
from stretto.solvers.softmax.constants import STEPS
from stretto.text import fact_page, show_bytes

from .input import LinearInput, laid_out
from .plan import solver_words

if TYPE_CHECKING:
    from .base import LinearModel


def explain_fit(
    model: LinearModel,
    given: LinearInput,
    problem_of: Callable[[LinearInput], RegressionProblem],
    formula: str,
    strongest: Callable[[float, int], str],
    solver: str = "",
) -> str:
    """Several lines of text.

    strongest : makes a sentence of the smallest l1 that gives all zeros, and the samples
    solver : how it is solved; "" for that of the schedule
    """
    from stretto.solvers.linear.groups.problem import GroupProblem
    from stretto.solvers.linear.groups.solver import GroupSolver  # here, not above: it imports Numba
    from stretto.solvers.linear.working_sets import WorkingSetSolver

    with checks.here(model.runtime, model.n_jobs).open() as crew:
        given = laid_out(given, crew)
        problem = problem_of(given)
        if isinstance(problem, GroupProblem):
            largest = GroupSolver(problem, crew, profile=model.profile).largest_l1()
        else:
            largest = WorkingSetSolver(problem, crew, profile=model.profile).largest_l1()
    design = given.design
    assert isinstance(design, Design)
    samples, features = design.shape
    inside = "z = Xw + b, b free" if problem.intercept else "z = Xw"
    facts = [
        ("problem", f"minimise {formula}, {inside}{', w ≥ 0' if problem.positive else ''}"),
        ("penalty", strongest(largest, samples)),
        ("data", f"{samples:,} samples × {features:,} features, {design.storage}, {show_bytes(design.nbytes)}"),
        ("conversion", design.note or "none: the arrays are used as they came"),
    ]
    if problem.scale is not None:
        facts.append(("scaling", "columns count as if their standard deviation were 1; X itself is not touched"))
    facts += [
        ("solver", solver or solver_words(model, samples, features, design.nnz if design.sparse else None)),
        ("until", until(problem.loss, problem.intercept, model.tol, model.max_iter)),
        ("grade", "identical: same data and parameters, same bits, at any number of workers"),
        ("profile", model.profile),
        ("runs on", model._place()),
    ]
    return fact_page(f"{type(model).__name__} on {samples:,} × {features:,}", facts)


def until(loss: str, intercept: bool, tol: float, rounds: int) -> str:
    """When a fit ends, as text."""
    goal = f"‖y{' − ȳ' if intercept else ''}‖²/n" if loss == "squared" else "the objective"
    return f"the duality gap is at most {float(tol):g} × {goal}, or {rounds} rounds"


def joint_formula(model: Any) -> str:
    """The objective of a joint model of all classes, as text."""
    C, ratio = float(model.C), float(model.l1_ratio)  # parameters may be of any number type, also fractions
    formula = f"{C:.4g} Σ −log softmax(z)_y"
    formula += f" + {ratio:.4g} ‖W‖₁" if ratio else ""
    return formula + (f" + ½ {1 - ratio:.4g} ‖W‖²" if ratio < 1 else "")


def joint_solver(model: Any, metric: str = "") -> str:
    """How a joint model is solved where no other solver suits the data, as text. metric: description, if known."""
    if model.solver == "sgd":
        return f"{model.optimizer}, 16 logical workers with a mini-batch each, up to {model.max_iter} epochs"
    return f"quasi-Newton steps, {STEPS} to a round{metric}; Newton's at the end where needed"


def svrg_words(method: str, batch: int) -> str:
    """How a problem is solved by steps with variance reduction, as text."""
    names = {"svrg": "SVRG", "svrg++": "SVRG++, epochs that grow", "katyusha": "Katyusha, SVRG with momentum"}
    size = "one sample" if batch == 1 else f"{batch:,} samples"
    return f"{names[method]}: a full gradient, then steps of {size} that read only the features they meet"
