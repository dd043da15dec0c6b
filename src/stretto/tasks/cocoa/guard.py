"""The units of `st.cocoa` at the driver: the duality gap, the guard of heuristic runs, and the check at the end.

They use numbers alone, of which the parts have reported a few each. So they warn and raise where the user is.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from stretto.errors import RunError
from stretto.solvers.linear.cocoa_gap import certificate
from stretto.tasks.unit_worker import UnitWorker

from .settings import CocoaSettings

OBJECTIVE, GAP, DRIFT = range(3)  # slots of the state `proof`
PROOF = 3
LEAST, BEST, SINCE, FALLEN = range(4)  # slots of `guard`: σ′ at least, smallest gap, evaluations since, safe values
GUARD = 4

GROWTH = 2.0  # a gap this many times the smallest one counts as divergence
ROUGH = 10.0  # the same where σ′ is measured, so that it corrects itself
STALLED = 25  # evaluations without a smaller gap, after which a measured σ′ is made larger
# Rounding errors of the shared vector, as a share of Σ |a_j|·‖x_j‖, which bounds its numbers.
ALLOWED = 1e-11


def gap(worker: UnitWorker, sums: Any, proof: Any, guard: Any, settings: CocoaSettings) -> float:
    """The duality gap as a share of the objective, before the rounds that have just been made."""
    objective, found = certificate(settings.problem, _taken(sums))
    _taken(proof)
    proof.add(np.arange(2), [objective, found])
    if settings.guarded:
        _watch(guard, found, settings)
    return share_of(found, objective)


def fallen(worker: UnitWorker, guard: Any) -> bool:
    """Whether safe values are used from now on."""
    return bool(np.ravel(guard.read())[FALLEN])


def verify(worker: UnitWorker, sums: Any, check: Any, proof: Any, guard: Any, settings: CocoaSettings) -> float:
    """The duality gap at the end, as a share of the objective; the shared vector must be that of the variables.

    check: what the variables of the last round gave, minus the shared vector (its first half).
    """
    collected = _taken(sums)
    objective, found = certificate(settings.problem, collected)
    if not math.isfinite(objective):
        raise RunError(
            f"cocoa: the objective is {objective} after the last rounds; they have diverged: take sigma=None and "
            "sync=None, or evaluate the gap more often (gap_every=), so that this is noticed in time"
        )
    differences = np.abs(_taken(check))
    half = len(differences) // 2
    apart = float(differences[:half].max())
    scale = float(collected[:, -1].sum() + differences[half:].max())  # also where all variables are 0 again
    drift = apart / scale if scale > 0.0 else (0.0 if apart == 0.0 else math.inf)
    _taken(proof)
    proof.add(np.arange(PROOF), [objective, found, drift])
    if not drift <= ALLOWED:
        words = (
            f"cocoa: the shared vector differs from what the variables give by {apart:.3g}, {drift:.2g} of its scale "
            f"(rounding explains {ALLOWED:g})"
        )
        if not settings.guarded:
            raise RunError(f"{words}; please report this")
        warnings.warn(f"{words}; the coefficients are not to be trusted: run it with sync=None", stacklevel=2)
    share = share_of(found, objective)
    if settings.tol > 0.0 and not share <= settings.tol:  # tol=0 asks for all rounds
        warnings.warn(
            f"cocoa: the rounds ended with a duality gap of {share:.2g} of the objective, and tol asks for "
            f"{settings.tol:g}; raise max_rounds or local_passes, take sigma='measured', or scale the features",
            stacklevel=2,
        )
    return share


def share_of(gap: float, objective: float) -> float:
    """The gap as a share of the objective."""
    return gap / objective if objective > 0.0 else gap


def _taken(numbers: Any) -> Any:
    """The values of a state, which is 0 afterwards: what is added to it next is exact."""
    found = np.array(numbers.read())
    numbers.add(np.arange(len(found)), -found)
    return found


def _watch(guard: Any, found: float, settings: CocoaSettings) -> None:
    """Go over to proven values if the gap has grown; a measured σ′ is made larger first, step by step."""
    values = np.array(guard.read(), np.float64)
    least, best, since, safe_values = values.tolist()
    growth = ROUGH if settings.measured else GROWTH
    worse = best > 0.0 and not found <= growth * best
    stalled = settings.measured and since >= STALLED
    new = values.copy()
    new[SINCE] = since + 1
    if best == 0.0 or found < best:
        new[BEST], new[SINCE] = found, 0.0
    if (worse or stalled) and not safe_values:
        doubled = 2.0 * max(least, settings.gamma)
        if settings.measured and doubled < settings.safe and math.isfinite(found):
            new[LEAST], new[SINCE] = doubled, 0.0
        else:
            new[LEAST], new[FALLEN] = max(settings.safe, settings.sigma), 1.0
            _warn(best, found, settings, float(new[LEAST]), worse)
    guard.add(np.arange(GUARD), new - values)


def _warn(best: float, found: float, settings: CocoaSettings, now: float, worse: bool) -> None:
    what = f"rose from {best:.3g} to {found:.3g}" if worse else f"did not fall below {best:.3g}"
    why = "measured sigma" if settings.measured else f"sigma={settings.sigma:g}"
    if not settings.measured and settings.sigma >= settings.safe:
        why = "exchange that is stale or filtered"
        then = f"every round exchanges everything now, under BSP, and sigma is {now:g}"
    else:
        then = f"it is too small and is now {now:g}, with exchanges under BSP"
    warnings.warn(f"cocoa: the duality gap {what} with {why}; {then}", stacklevel=2)
