"""Memory and least time of a factorisation; refuses a fit that needs too much before anything is allocated."""

from __future__ import annotations

from stretto.errors import PlanError
from stretto.kernels.factorization.als import PACKED
from stretto.kernels.numeric.lanes import padded
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Plan
from stretto.runtime.cpus import available_memory

from .problem import FactorizationProblem

_FLOAT = 4
# No matrix has a rank above its smaller side. Below this rank the excess costs little and is allowed.
_HARMLESS_RANK = 1024
# Operations per second and worker that no solver has reached: the times below are lower bounds.
_FASTEST = 1e11
_DAYS = 30
_DAY = 86_400


def peak_memory(problem: FactorizationProblem, plan: Plan, *, beside: bool = False) -> int:
    """Peak memory in bytes of a fit in memory: the plan, the solver's additional arrays, and the result.

    beside : return only the solver's additional arrays
    """
    rows = len(plan.logical.rows) + len(plan.logical.cols)
    result = _FLOAT * rows * (problem.rank + problem.biases)
    more = 0
    width = padded(problem.rank + problem.biases)
    if problem.solver == "als":
        more = _FLOAT * plan.physical.workers * (width + 2 + PACKED) * width
        more += _FLOAT * (plan.order.rows + 2) * width * width if problem.implicit else 0
    if problem.solver == "ccd":
        more = _FLOAT * rows * width  # factors by latent column, in addition to those by row
    return more if beside else plan.cost.memory + more + result


def least_seconds(problem: FactorizationProblem, plan: Plan) -> float:
    """Least number of seconds that all epochs take."""
    return plan.cost.flops * problem.epochs / (_FASTEST * plan.physical.workers)


def refuse_cost(problem: FactorizationProblem, plan: Plan, remedy: str) -> None:
    """PlanError for a rank above that of the matrix, for too much memory, or for a fit of more than 30 days."""
    refuse_rank(problem, (len(plan.logical.rows), len(plan.logical.cols)))
    budget = plan.physical.memory
    if budget is None:
        refuse_if_over(peak_memory(problem, plan), available_memory(), remedy)
    else:
        refuse_if_over(plan.cost.memory, budget, remedy)
    refuse_time(problem, plan)


def refuse_rank(problem: FactorizationProblem, shape: tuple[int, int]) -> None:
    """PlanError for a rank that a matrix of this shape cannot have."""
    if problem.rank > max(_HARMLESS_RANK, min(shape)):
        raise PlanError(
            f"n_components={problem.rank} for a matrix of {shape[0]} × {shape[1]}: no rank above the smaller side, "
            f"{min(shape)}, can fit it better; lower n_components (10 to 200 is usual)"
        )


def refuse_time(problem: FactorizationProblem, plan: Plan) -> None:
    """PlanError for a fit that cannot end within 30 days."""
    days = least_seconds(problem, plan) / _DAY
    if days > _DAYS:
        raise PlanError(
            f"n_components={problem.rank} and max_iter={problem.epochs} on {plan.cost.entries} ratings take {days:.0f} "
            f"days or more with {plan.physical.workers} workers; lower one of the two, or use more workers"
        )
