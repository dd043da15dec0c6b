"""`partial_fit` of als and ccd: solve again for the users and items that further ratings are about, and no others.

    1. new users, from their ratings of known items
    2. the items of the further ratings, from all ratings of theirs
    3. the users of the further ratings, from all ratings of theirs

Each is the exact minimum of the objective with everything else fixed, so the objective over all ratings never rises.
Mean, spread and confidence stay those of the last fit. The work grows with the ratings of those users and items.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.data.records.duplicates import settle
from stretto.errors import DataError
from stretto.runtime.blocks.compressed import by_rows
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import Chunk
from stretto.solvers.factorization.factors import PaddedFactors, whole_lanes

from .align import Aligned
from .build import EarlierFit
from .continue_fit import RatingBatches
from .fitted_problem import FittedProblem
from .fold_in import fold_in

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class UpdatedFactors:
    """Factors and biases after an update, and the ratings that they follow from."""

    W: Floats  # [m, rank]
    H: Floats  # [n, rank]
    b: Floats  # [m]
    c: Floats  # [n]
    ratings: RatingBatches


def updated(
    earlier: EarlierFit, before: RatingBatches, data: Data, learned: FittedProblem, policy: str, crew: Crew
) -> UpdatedFactors:
    """The factors after further ratings.

    Parameters
    ----------
    earlier : EarlierFit
        What was learned before, and where its rows and columns are in `data`.
    before : RatingBatches
        The ratings that it was learned from.
    data : Data
        The further ratings.
    learned : FittedProblem
        The problem of the last fit.
    policy : str
        What to do with a pair that is rated again; "error": the later rating replaces the earlier one, and a pair that
        is rated twice in `data` is refused.
    crew : Crew
        Where to run.
    """
    if not before.whole:
        raise DataError(
            "partial_fit of als and ccd needs the earlier ratings, which a model from a file has only if it was saved "
            "with model.save(path, ratings=True); for new users alone: model.fold_in(their ratings)"
        )
    if policy == "error":
        settle(data, "error")
    m, n = data.shape
    W, b = _grown(earlier.row_factors, earlier.rows, m), _grown(earlier.row_bias, earlier.rows, m)
    H, c = _grown(earlier.col_factors, earlier.cols, n), _grown(earlier.col_bias, earlier.cols, n)
    known_user, known_item = np.zeros(m, bool), np.zeros(n, bool)
    known_user[earlier.rows], known_item[earlier.cols] = True, True
    users, items = np.unique(data.rows), np.unique(data.cols)
    moved = before.joined(earlier.rows, earlier.cols, data).parts[:-1]
    own, others = _of_rows(moved, data, users, policy)

    def solve(of_users: bool, some: NDArray[Any], entries: tuple[NDArray[Any], NDArray[Any], Floats]) -> None:
        rows, cols, values = entries
        place = np.full(m if of_users else n, -1, np.int32)
        place[some] = np.arange(len(some))
        at, width = place[rows if of_users else cols], n if of_users else m
        other = np.asarray(cols if of_users else rows, np.int32)
        at, other, values = _read_only((at, other, values))
        compressed = by_rows(Aligned(at, other, values, (len(some), width), at))
        fixed, biases = (H, c) if of_users else (W, b)
        found = fold_in(
            PaddedFactors(np.zeros((0, 0), np.float32), whole_lanes(fixed), biases, biases, learned.mean),
            compressed,
            learned,
            crew,
        )
        factors, own_biases = (W, b) if of_users else (H, c)
        factors[some], own_biases[some] = found

    new = users[~known_user[users]]
    if len(new):
        pick = ~known_user[own[0]] & known_item[own[1]]
        solve(True, new, (own[0][pick], own[1][pick], own[2][pick]))
    solve(False, items, _entries([*others, own], items, n))
    solve(True, users, own)
    return UpdatedFactors(W, H, b, c, RatingBatches((*others, own), (m, n)))


def _grown(array: Floats, at: NDArray[np.int64], size: int) -> Floats:
    """Rows at their new places; new rows are zero."""
    found = np.zeros((size, *array.shape[1:]), np.float32)
    found[at] = array
    return found


def _of_rows(parts: Iterable[Chunk], data: Data, users: NDArray[Any], policy: str) -> tuple[Chunk, list[Chunk]]:
    """(all ratings of some rows, with repeated pairs settled; the ratings of the others)."""
    touched = np.zeros(data.shape[0], bool)
    touched[users] = True
    own: list[Chunk] = []
    others: list[Chunk] = []
    for rows, cols, values in parts:
        pick = touched[rows]
        own.append((rows[pick], cols[pick], values[pick]))
        others.append(_read_only((rows[~pick], cols[~pick], values[~pick])))
    own.append((data.rows, data.cols, data.values))
    rows, cols, values = (np.concatenate([part[k] for part in own]) for k in range(3))
    settled = settle(Data(rows, cols, values, data.shape), "last" if policy == "error" else policy)
    return (settled.rows, settled.cols, settled.values), [part for part in others if len(part[0])]


def _read_only(chunk: Chunk) -> Chunk:
    """The same arrays, as `Data` has them: kernels are compiled for these."""
    for array in chunk:
        array.flags.writeable = False
    return chunk


def _entries(parts: Iterable[Chunk], items: NDArray[Any], count: int) -> Chunk:
    """All ratings of some columns."""
    touched = np.zeros(count, bool)
    touched[items] = True
    picked = [(rows[mask], cols[mask], values[mask]) for rows, cols, values in parts for mask in [touched[cols]]]
    rows, cols, values = (np.concatenate([part[k] for part in picked]) for k in range(3))
    return rows, cols, values
