"""The two units of `st.cocoa`: a round of the parts, and the duality gap.

They use the shared vector through `copy_of` and `add_change` alone. Vectors are stored in rows of 16 numbers, because
every row travels with its number. A part owns whole rows of the state `variables`.
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
WIDTH = 16  # numbers in a row of a vector
GROWTH = 2.0  # a gap this many times the smallest one counts as divergence


@dataclass(frozen=True)
class CocoaSettings:
    """What the units need besides data and states."""

    problem: CocoaProblem
    gamma: float  # weight of the changes of a part
    safe: float  # the σ′ that is proven to converge under BSP
    passes: int  # of coordinate descent, in a round
    shuffle: bool  # visit the variables of a part in random order
    rows: int  # of the state `variables`, for each part
    guarded: bool  # heuristic settings: σ′ is in the state `guard`, and grows if the gap does


def copy_of(shared: Any, length: int) -> Floats:
    """The shared vector as this part sees it."""
    return np.ravel(shared.read())[:length]


def add_change(shared: Any, change: Floats) -> None:
    """Add the change of this part to the shared vector."""
    rows = rows_for(len(change))
    shared.add(np.arange(rows), _in_rows(change, rows))


def rows_for(length: int) -> int:
    """Rows of a vector."""
    return -(-length // WIDTH)


def _in_rows(vector: Floats, rows: int) -> Floats:
    padded = np.zeros(rows * WIDTH)
    padded[: len(vector)] = vector
    return padded.reshape(rows, WIDTH)


def _own_rows(part: int, settings: CocoaSettings) -> NDArray[np.int64]:
    return part * settings.rows + np.arange(settings.rows)


def solve(
    worker: UnitWorker, matrix: Any, y: Any, norm: Any, shared: Any, variables: Any, guard: Any, settings: CocoaSettings
) -> None:  # fmt: skip
    """A round: improve the subproblem of a part, and add γ times the change to its variables and the shared vector.

    matrix: what the part owns, by rows.
    """
    problem, passes = settings.problem, settings.passes
    sigma = float(guard.read([SIGMA])[0]) if settings.guarded else settings.safe
    random = worker.random()
    count, length = matrix.shape
    own = _own_rows(worker.part, settings)
    before = np.ravel(variables.read(own))[:count]
    orders = [random.permutation(count) if settings.shuffle else np.arange(count) for _ in range(passes)]
    labels = _labels(problem, y)
    mine, change = improve(
        problem, matrix, labels, norm, before, copy_of(shared, length), sigma, np.concatenate(orders)
    )
    worker.work(2 * passes * entries_of(matrix))
    variables.add(own, _in_rows(settings.gamma * mine, settings.rows))
    add_change(shared, settings.gamma * change)


def gap(
    worker: UnitWorker, matrix: Any, y: Any, shared: Any, variables: Any, sums: Any, proof: Any, guard: Any,
    settings: CocoaSettings,
) -> float:  # fmt: skip
    """The duality gap as a share of the objective. Iteration 0 collects the sums of parts, iteration 1 adds them.

    Both states are 0 again when they are next written, so that values are exact.
    """
    problem, part = settings.problem, worker.part
    both = np.arange(2)
    if worker.iteration % 2 == 0:
        mine = np.ravel(variables.read(_own_rows(part, settings)))[: matrix.shape[0]]
        found = part_sums(problem, matrix, _labels(problem, y), mine, copy_of(shared, matrix.shape[1]))
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
    objective, found_gap = certificate(problem, _labels(problem, y), copy_of(shared, matrix.shape[1]), collected)
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
