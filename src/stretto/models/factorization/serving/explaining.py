"""Which of a row's ratings made a score: contributions that add up to the score of the row when it is folded in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.factorization.explain import explain_worker
from stretto.kernels.factorization.loss_codes import CODES
from stretto.models.factorization.fitted_problem import FittedProblem
from stretto.models.factorization.fold_in import StandardColumns, fold_in, fold_in_ranking, gramian
from stretto.runtime.blocks.compressed import Compressed
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step
from stretto.schedule.orders.rotation import independent
from stretto.solvers.factorization.factors import PaddedFactors, names, predict, run
from stretto.solvers.factorization.penalties import penalties

from .explanation import Explanation, explanation

Doubles = NDArray[np.float64]
_NO_GRAM = np.zeros((0, 0), np.float32)


def contributions(
    model: PaddedFactors,
    row: Compressed,
    learned: FittedProblem,
    targets: NDArray[np.int32],
    crew: Crew,
) -> Doubles:
    """[T, n] what each of a row's n ratings adds to the score of each target, in the units of the ratings.

    The bias of the row is part of them: it follows from the same ratings.

    Parameters
    ----------
    model : PaddedFactors
        The learned columns.
    row : Compressed
        One row.
    learned : FittedProblem
        The problem of the fit.
    targets : array [T] of int32
        Columns whose scores to explain.
    crew : Crew
        Where to run.
    """
    if not len(row.values):
        return np.zeros((len(targets), 0))
    if learned.problem.ranking:
        return _of_steps(model, row, learned, targets, crew)
    return _of_least_squares(model, row, learned, targets, crew)


def _of_least_squares(
    model: PaddedFactors, row: Compressed, learned: FittedProblem, targets: NDArray[np.int32], crew: Crew
) -> Doubles:
    """Of squared loss, implicit feedback by als, and losses that Newton steps solve."""
    problem = learned.problem
    columns = StandardColumns.of(model, learned)
    W, b = fold_in(model, row, learned, crew)
    x = np.zeros(columns.Y.shape[1], np.float32)
    x[: problem.rank] = W[0] / columns.root
    if columns.own >= 0:
        x[columns.own] = b[0] / columns.scale
    reg, weight = penalties(problem, learned.scale), float(len(row.values))
    if problem.implicit:
        weight += learned.confidence * float(np.abs(row.values).sum(dtype=np.float64))
    parts = np.zeros((len(targets), len(row.values)))
    bounds = np.arange(len(targets) + 1, dtype=np.int64)
    step = make_step(
        "explain",
        explain_worker,
        independent(len(targets)),
        np.diff(bounds),
        bounds,
        row.indices,
        columns.values(row.values, learned),
        x,
        columns.Y,
        targets,
        gramian(columns.Y, crew) if problem.implicit else _NO_GRAM,
        columns.offset,
        reg.ridge + reg.factors * weight,
        columns.own,
        reg.bias_ridge + reg.biases * weight,
        float(learned.confidence),
        CODES[problem.loss],
        parts,
    )
    run(crew, step)
    return parts * learned.scale


def _of_steps(
    model: PaddedFactors,
    row: Compressed,
    learned: FittedProblem,
    targets: NDArray[np.int32],
    crew: Crew,
) -> Doubles:
    """Of ranking losses: every step that folds the row in is made for one of its values."""
    count, n = len(targets), len(row.values)
    copies = Compressed(
        np.arange(count + 1, dtype=np.int64) * n, np.tile(row.indices, count), np.tile(row.values, count)
    )
    H = model.H.astype(np.float64)
    along = np.stack([(H * H[j]).sum(axis=1) for j in targets.tolist()])
    parts = np.zeros((count * n, 2))
    fold_in_ranking(model, copies, learned, crew, traced=(along, parts))
    return np.asarray(parts.sum(axis=1).reshape(count, n))


def explain(
    model: PaddedFactors,
    row: NDArray[np.int32],
    past: tuple[NDArray[np.int32], NDArray[np.float32]],
    targets: NDArray[np.int32],
    owner: Any,
    crew: Crew,
    user: Any,
) -> list[Explanation]:
    """Explanations of some items for one row of the model.

    Parameters
    ----------
    model : PaddedFactors
        Factors of the row and of the columns.
    row : array [1] of int32
        The row.
    past : (array [n], array [n])
        Columns and values of the row.
    targets : array [T] of int32
        Columns to explain.
    owner : object
        What has `_learned` and `item_ids_`.
    crew : Crew
        Where to run.
    user : int or str
        Id of the row.
    """
    order = np.argsort(past[0], kind="stable")
    indices, values = past[0][order].astype(np.int32), past[1][order].astype(np.float32)
    compressed = Compressed(np.array([0, len(indices)], np.int64), indices, values)
    parts = contributions(model, compressed, owner._learned, targets, crew)
    scores = predict(model, np.repeat(row, len(targets)), targets, crew)
    items, wanted = names(indices, owner.item_ids_), names(targets, owner.item_ids_).tolist()
    made = []
    for t, (item, score) in enumerate(zip(wanted, scores.tolist(), strict=True)):
        bias = float(model.c[targets[t]]) if len(model.c) else 0.0
        made.append(explanation(user, item, score, (float(model.mean), bias), (items, values, parts[t])))
    return made
