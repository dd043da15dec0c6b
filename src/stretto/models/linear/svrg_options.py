"""Parameters of `solver="svrg"`, which `LogisticRegression` and `LinearSVC` share."""

from __future__ import annotations

from typing import Any

from stretto.models import checks
from stretto.models.options import refuse_unused

METHODS = ("svrg", "svrg++", "katyusha")
_NAMES = ("variance_reduction", "batch_size")


def check_svrg(model: Any) -> None:
    """Check the parameters; refuse them with another solver, which does not use them."""
    check = checks.of(model)
    check.choice("variance_reduction", model.variance_reduction, METHODS)
    check.number("batch_size", model.batch_size, least=1, most=2**31 - 1, whole=True)
    if model.solver != "svrg":
        refuse_unused(model, dict.fromkeys(_NAMES, "it belongs to solver='svrg'"), chosen=f"solver={model.solver!r}")


def without_unused(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters for a plan: those of this solver only if it runs, so that other fingerprints do not have them."""
    unused = _NAMES if parameters["solver"] != "svrg" else ()
    return {name: value for name, value in parameters.items() if name not in unused}
