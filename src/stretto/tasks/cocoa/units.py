"""The units of `st.cocoa` that run on the parts: a round, and at the end the shared vector computed anew.

A round reads the shared vector and adds the change of the part: one vector down, one up. The variables of a part are a
row of a state that stays on the node of the part. Where the duality gap is evaluated, a part adds a few sums over what
it has in hand anyway, so the gap costs no vector: it is that of the variables before the round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.solvers.linear.cocoa import CocoaProblem, entries_of, improve, shared_of
from stretto.solvers.linear.cocoa_gap import part_sums
from stretto.tasks.unit_worker import UnitWorker

from .guard import GAP, LEAST, OBJECTIVE, share_of
from .measured import SIGMA, STEPS, measured_sigma, squared
from .settings import CocoaSettings

Floats = NDArray[np.float64]


def width_for(filtered: bool) -> int:
    """Numbers in a row of the shared vector. Every row travels with its number; filters choose among rows."""
    return 8 if filtered else 64


def rows_for(length: int, width: int) -> int:
    """Rows of a vector."""
    return -(-length // width)


def copy_of(shared: Any, length: int) -> Floats:
    """The shared vector as this part sees it."""
    return np.ravel(shared.read())[:length]


def add_change(shared: Any, change: Floats, width: int) -> None:
    """Add the change of this part to the shared vector."""
    rows = rows_for(len(change), width)
    padded = np.zeros(rows * width)
    padded[: len(change)] = change
    shared.add(np.arange(rows), padded.reshape(rows, width))


def solve(
    worker: UnitWorker, matrix: Any, y: Any, norm: Any, shared: Any, variables: Any, sums: Any, steps: Any, guard: Any,
    settings: CocoaSettings, width: int,
) -> None:  # fmt: skip
    """A round: improve the subproblem of a part, and add γ times the change to its variables and the shared vector.

    matrix: what the part owns, by rows.
    """
    problem, part, gamma = settings.problem, worker.part, settings.gamma
    count, length = matrix.shape
    labels, v = _labels(problem, y), copy_of(shared, length)
    own = np.array(variables.read([part]))
    mine = own[0, :count]
    changed = np.zeros_like(own)
    if worker.iteration % settings.every == 0:
        first = own.shape[1] // 2  # behind the variables are those of the last evaluation
        changed[0, first:] = own[0, :first] - own[0, first:]
        _report(sums, part, part_sums(problem, matrix, labels, norm, mine, v, part, worker.parts))
        worker.work(entries_of(matrix))
    least = float(np.ravel(guard.read())[LEAST]) if settings.guarded else 0.0
    before = np.ravel(steps.read()) if settings.measured else np.zeros(STEPS)
    sigma = measured_sigma(before, v, gamma, least, settings.safe) if settings.measured else max(settings.sigma, least)
    random = worker.random()
    orders = [random.permutation(count) if settings.shuffle else np.arange(count) for _ in range(settings.passes)]
    moved, change = improve(problem, matrix, labels, norm, mine, v, sigma, np.concatenate(orders))
    worker.work(2 * settings.passes * entries_of(matrix))
    changed[0, :count] = gamma * moved
    variables.add([part], changed)
    add_change(shared, gamma * change, width)
    if settings.measured:
        report = np.array([squared(change), gamma * float(np.add.accumulate(v * change)[-1]), 0.0, 0.0])
        if part == 0:  # it replaces what the last round left
            report += [-before[0], -before[1], squared(v) - before[2], sigma - before[SIGMA]]
        steps.add([0], report[None])


def restore(
    worker: UnitWorker, matrix: Any, y: Any, shared: Any, variables: Any, check: Any, proof: Any,
    settings: CocoaSettings, width: int,
) -> None:  # fmt: skip
    """Compute the shared vector anew. If the last gap was small enough, go back to its variables.

    The rounds that were made since may have made the gap larger.

    check: what the variables give, minus the shared vector; behind it, the same for the variables to go back to.
    """
    problem, part, length = settings.problem, worker.part, matrix.shape[1]
    rows = rows_for(length, width)
    back = share_of(*np.ravel(proof.read())[[GAP, OBJECTIVE]].tolist()) < settings.tol
    if worker.iteration % 2:  # all parts have added
        if part == 0 and back:
            shared.add(np.arange(rows), np.array(check.read())[rows:])
        return
    labels, own = _labels(problem, y), np.array(variables.read([part]))
    first, count = own.shape[1] // 2, matrix.shape[0]
    found = [shared_of(problem, matrix, labels, own[0, at : at + count]) for at in ((0, first) if back else (0,))]
    if back:
        changed = np.zeros_like(own)
        changed[0, :first] = own[0, first:] - own[0, :first]
        variables.add([part], changed)
    worker.work(len(found) * entries_of(matrix))
    v, old = copy_of(shared, length), np.array(check.read())
    for half, mine in enumerate(found):
        added = np.zeros((rows, width))
        added.ravel()[:length] = mine - v if part == 0 else mine
        keys = half * rows + np.arange(rows)
        check.add(keys, added - old[keys] if part == 0 else added)


def collect(
    worker: UnitWorker, matrix: Any, y: Any, norm: Any, shared: Any, variables: Any, sums: Any, settings: CocoaSettings
) -> None:
    """Report the sums of a part."""
    problem, part, v = settings.problem, worker.part, copy_of(shared, matrix.shape[1])
    mine = np.array(variables.read([part]))[0, : matrix.shape[0]]
    _report(sums, part, part_sums(problem, matrix, _labels(problem, y), norm, mine, v, part, worker.parts))
    worker.work(entries_of(matrix))


def _report(sums: Any, part: int, found: Floats) -> None:
    """Report the sums of a part. They are 0 before, unless a run was interrupted."""
    sums.add([part], found[None] - np.array(sums.read([part])))


def _labels(problem: CocoaProblem, y: Any) -> Any:
    """Of the samples of a part; with columns, every part has a row with the labels of all samples."""
    return y[0] if problem.by_columns else y
