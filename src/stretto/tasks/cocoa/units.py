"""The two units of `st.cocoa`: a round of the parts, and the duality gap.

They use the shared vector through `copy_of` and `add_change` alone.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.solvers.linear.cocoa import CocoaProblem, certificate, entries_of, improve, part_sums
from stretto.tasks.unit_worker import UnitWorker

Floats = NDArray[np.float64]

OBJECTIVE, GAP = range(2)  # slots of the state `certificate`
SIGMA, BEST = range(2)  # slots of the state `guard`; BEST is 0 before the first gap
GROWTH = 2.0  # a gap this many times the smallest one counts as divergence


@dataclass(frozen=True)
class CocoaSettings:
    """What the units need besides data and states."""

    problem: CocoaProblem
    gamma: float  # weight of the changes of a part
    safe: float  # the σ′ that is proven to converge under BSP
    passes: int  # of coordinate descent, in a round
    shuffle: bool  # visit the variables of a part in random order
    guarded: bool  # heuristic settings: σ′ is in the state `guard`, and grows if the gap does


def copy_of(shared: Any) -> Floats:
    """The shared vector as this part sees it."""
    return np.asarray(shared.read(), np.float64)


def add_change(shared: Any, change: Floats) -> None:
    """Add the change of this part to the shared vector."""
    shared.add(np.arange(len(change)), change)


def solve(
    worker: UnitWorker, matrix: Any, y: Any, norm: Any, own: Any, shared: Any, variables: Any, guard: Any,
    settings: CocoaSettings,
) -> None:  # fmt: skip
    """A round: improve the subproblem of a part, and add γ times the change to its variables and the shared vector.

    matrix: what the part owns; own: the numbers of these rows among all.
    """
    problem, passes = settings.problem, settings.passes
    sigma = float(guard.read([SIGMA])[0]) if settings.guarded else settings.safe
    random = worker.random()
    count = len(own)
    orders = [random.permutation(count) if settings.shuffle else np.arange(count) for _ in range(passes)]
    labels = _labels(problem, y)
    mine, change = improve(
        problem, matrix, labels, norm, np.asarray(variables.read(own)), copy_of(shared), sigma, np.concatenate(orders)
    )
    worker.work(2 * passes * entries_of(matrix))
    variables.add(own, settings.gamma * mine)
    add_change(shared, settings.gamma * change)


def gap(
    worker: UnitWorker, matrix: Any, y: Any, own: Any, shared: Any, variables: Any, sums: Any, proof: Any, guard: Any,
    settings: CocoaSettings,
) -> float:  # fmt: skip
    """The duality gap as a share of the objective. Iteration 0 collects the sums of parts, iteration 1 adds them.

    Both states are 0 again when they are next written, so that values are exact.
    """
    problem, part = settings.problem, worker.part
    both = np.arange(2)
    if worker.iteration % 2 == 0:
        found = part_sums(problem, matrix, _labels(problem, y), np.asarray(variables.read(own)), copy_of(shared))
        worker.work(entries_of(matrix))
        sums.add([part], found[None])
        if part == 0:
            proof.add(both, -proof.read())
        return 0.0
    # Read first: a part sees its own changes at once, and those of others in the next iteration.
    collected = np.array(sums.read(None if part == 0 else [part]))
    sums.add([part], -collected[:1])
    if part:
        return 0.0
    objective, found_gap = certificate(problem, _labels(problem, y), copy_of(shared), collected)
    proof.add(both, [objective, found_gap])
    if settings.guarded:
        _guard(guard, found_gap, settings)
    return found_gap / objective if objective > 0.0 else 0.0


def _labels(problem: CocoaProblem, y: Any) -> Any:
    """Of the samples of a part; with columns, every part has a row with the labels of all samples."""
    return y[0] if problem.by_columns else y


def _guard(guard: Any, found: float, settings: CocoaSettings) -> None:
    """Enlarge σ′ if the gap has grown: to the proven value, or, if that is not enough (stale reads), to its double."""
    sigma, best = (float(value) for value in guard.read())
    if best > 0.0 and not found <= GROWTH * best:
        larger = settings.safe if sigma < settings.safe else 2.0 * sigma
        warnings.warn(
            f"cocoa: the duality gap rose from {best:.3g} to {found:.3g}; sigma={sigma:g} is too small and is now "
            f"{larger:g}",
            stacklevel=2,
        )
        guard.add([SIGMA, BEST], [larger - sigma, found - best])
    elif best == 0.0 or found < best:
        guard.add([BEST], [found - best])
