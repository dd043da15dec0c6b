"""The plan of a `FactorizationMachine`'s fit: its words, and its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stretto.data.records.digest import digest_of
from stretto.models.linear.input import matrix_of
from stretto.models.linear.plan import PlanText
from stretto.plan.cost import Cost
from stretto.plan.job import JobPlan

if TYPE_CHECKING:
    from .input import MachineInput

# The estimator, which imports this module: each function says what it reads of it.
MachineModel: TypeAlias = Any

_LINE = 16  # numbers of a row are a multiple of this
_SINGLE = 4
_LAID = 16  # bytes of an entry, laid out by samples and by features


def plan_words(model: MachineModel, fields: int, held: MachineInput | None) -> PlanText:
    """The text of the plan, and the values that can change a number besides parameters and data."""
    what = "v_i(field of j)·v_j(field of i)" if fields > 1 else "v_i·v_j"
    loss = "½(y − z)²" if model.loss == "squared" else "log(1 + exp(−yz))"
    if model.l2_factors is None:
        penalty = "l2_factors chosen on a held-out part"
    else:
        penalty = f"l2_factors={float(model.l2_factors):g}"
    stop = " or no improvement on held-out samples" if model.early_stopping else ""
    more: dict[str, Any] = {}
    if held is not None:
        more["validation"] = digest_of(matrix_of(held.given), held.y, held.given.weight, floats=True)
    return PlanText(
        type(model).__name__,
        f"Σ {loss} + penalties of the features of each sample ({penalty})",
        f"{model.max_iter} epochs{stop}",
        "AdaGrad on mini-batches: samples of a batch in parallel, then its features",
        f"z = b + w·x + Σ ({what}) x_i x_j, {model.n_components} components" if model.fit_intercept else
        f"z = w·x + Σ ({what}) x_i x_j, {model.n_components} components",
        more={"schedule": "mini-batches", **more},
    )  # fmt: skip


def machine_plan(model: MachineModel, plan: JobPlan, fields: int, shape: tuple[int, int]) -> JobPlan:
    """The plan with the cost of this model. shape: samples, features."""
    width = -(-(fields * int(model.n_components) + 1) // _LINE) * _LINE
    entries: Any = plan.cost.entries
    cost = Cost(
        entries,
        entry_bytes=_LAID * entries,
        state_bytes=2 * _SINGLE * width * shape[1] + 16 * shape[0],
        moved_bytes=entries * (_LAID + 3 * _SINGLE * width),
        flops=8 * entries * width,
    )
    return replace(
        plan, cost=cost, each="epoch", undrawn="samples are visited in mini-batches, so there is no block grid"
    )
