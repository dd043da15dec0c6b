"""Text of `LogisticRegression`: its objective, its plan, and what its penalty does."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .explain import joint_formula, joint_solver, svrg_words, until
from .plan import PlanText


class DescribedModel(Protocol):
    """What the text contains of an estimator, `LogisticRegression`, whose classes are known."""

    C: Any
    l1_ratio: Any
    tol: Any
    max_iter: Any
    fit_intercept: bool
    solver: str
    variance_reduction: str
    batch_size: Any
    classes_: Any

    @property
    def _joint(self) -> bool: ...


def plan_text(model: DescribedModel) -> PlanText:
    """The text of the plan of a fit."""
    count = len(model.classes_)
    several = {"classes": count} if count > 2 else {}
    name = type(model).__name__
    if model._joint:
        what = "epochs" if model.solver == "sgd" else "rounds"
        return PlanText(
            name,
            f"{joint_formula(model)}, {count} classes jointly",
            f"the duality gap is at most {float(model.tol):g} × the loss of the model without features, "
            f"or {model.max_iter} {what}",
            joint_solver(model),
            outputs=count,
            more=several,
        )
    rounds = until("logistic", model.fit_intercept, model.tol, model.max_iter)
    if model.solver == "svrg":
        how = svrg_words(model.variance_reduction, model.batch_size)
        epochs = rounds.replace("rounds", "epochs")
        return PlanText(name, formula(model), epochs, how, more={"schedule": how, **several})
    return PlanText(name, formula(model), rounds, outputs=max(1, count * (count > 2)), more=several)


def formula(model: DescribedModel) -> str:
    """The objective for two classes, or for each class against the rest, as text."""
    C, ratio = float(model.C), float(model.l1_ratio)
    text = f"{C:.4g} Σ log(1 + exp(−y z))"
    text += f" + {ratio:.4g} ‖w‖₁" if ratio else ""
    text += f" + ½ {1 - ratio:.4g} ‖w‖²" if ratio < 1 else ""
    several = len(model.classes_) > 2
    return f"for each of {len(model.classes_)} classes against the rest {text}" if several else text


def strongest(model: DescribedModel, largest: float, samples: int) -> str:
    """A sentence about the C up to which all coefficients are zero. largest: the smallest l1 with that effect."""
    if model.l1_ratio == 0:
        return "no coefficient is set to zero: l1_ratio is 0"
    least = model.C * model.l1_ratio / largest if largest else np.inf
    return f"all coefficients are zero up to C {least:.4g}; this C is {float(model.C) / least:.3g} times that"
