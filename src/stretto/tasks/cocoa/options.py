"""The options of `st.cocoa`: checked, with their defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.checks import choice, number, shown, whole
from stretto.errors import DataError, PlanError
from stretto.solvers.linear.cocoa import CocoaProblem, entries_of

LOSSES = ("squared", "logistic", "hinge", "squared_hinge")
PARTS = 16  # by default
ENTRIES = 1 << 20  # numbers that a part works through in a round with local_passes="auto": about a millisecond
PASSES = 10  # at most, with local_passes="auto"


def problem_of(X: Any, loss: str, alpha: Any, C: Any, l1_ratio: Any) -> CocoaProblem:
    """The objective."""
    choice("loss", loss, LOSSES, owner="cocoa")
    squared = loss == "squared"
    name, strength, other = ("alpha", alpha, C) if squared else ("C", C, alpha)
    if other is not None:
        unused = "C" if squared else "alpha"
        raise PlanError(f"cocoa: {unused}={shown(other)} is not used with loss={loss!r}; give {name}=")
    strength = 1.0 if strength is None else strength
    number(name, strength, above=0, owner="cocoa")
    share = (1.0 if squared else 0.0) if l1_ratio is None else l1_ratio
    number("l1_ratio", share, least=0.0, most=1.0, owner="cocoa")
    if loss in ("hinge", "squared_hinge") and share:
        raise PlanError(
            f"cocoa: l1_ratio={share:g} with loss={loss!r}, which has an L2 penalty only; take l1_ratio=0, or "
            "loss='logistic'"
        )
    shape = getattr(X, "shape", None) or np.shape(X)
    scale = float(strength) if squared else 1.0
    weight = 1.0 / max(1, shape[0]) if squared else float(strength)
    return CocoaProblem(loss, weight, scale * float(share), scale * (1.0 - float(share)))


def parts_of(problem: CocoaProblem, parts: Any, m: int) -> int:
    """Parts that m variables are cut into."""
    what = "features" if problem.by_columns else "samples"
    if m == 0:
        raise DataError(f"cocoa: X has no {what}; give at least one")
    if parts is None:
        return min(PARTS, m)
    found = whole("parts", parts, 1, "cocoa")
    if found > m:
        raise PlanError(f"cocoa: parts={found}, and X has {m} {what}; give at most as many parts")
    return found


def passes_of(passes: Any, matrix: Any, parts: int) -> int:
    """Passes of a part in a round."""
    if passes == "auto":
        return max(1, min(PASSES, ENTRIES * parts // max(1, entries_of(matrix))))
    return whole("local_passes", passes, 1, "cocoa", "or 'auto'")


def sigma_of(sigma: Any, gamma: float, parts: int, safe: float) -> float:
    """σ′. safe: γ times the overlap of the parts."""
    if sigma is None:
        return gamma * parts
    if isinstance(sigma, str):
        choice("sigma", sigma, ("data", "measured"), owner="cocoa")
        return safe
    number("sigma", sigma, least=gamma, owner="cocoa", why="below gamma the changes of one part alone are too large")
    return float(sigma)
