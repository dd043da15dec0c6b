"""Decide whether the rows of a matrix without ids are the rows that a model was trained on.

scikit-learn splits rows: it fits on X[train] and scores X[test], whose row 0 is not the model's row 0. If the number of
rows differs, the rows differ. Else the entries decide. If the rows are the same, pairs that are also in the training
data have the same values; if not, their values are equal only by chance. If the matrices have no pair in common,
ratings were held out one by one. If the entries do not decide, an error is raised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.errors import DataError
from stretto.runtime.blocks.source import Chunk, EntrySource
from stretto.solvers.factorization.rated_items import RatedItems

Rows = Literal["same", "other", "unclear"]

# Rows compared: an evenly spaced sample is enough.
_COMPARED = 4096
# Log odds beyond which the question is decided.
_SETTLED = 7.0
# Of pairs that the same row has in both matrices, the share with equal values: some are rated again.
_EQUAL = 0.99
# Expected common pairs of unrelated rows from which on having none is significant.
_EXPECTED = 10.0


def compare(shape: tuple[int, int], trained: EntrySource | None, seen: RatedItems | None, data: Data) -> Rows:
    """Whether the rows of `data` are the rows of the training data.

    shape : of the training data
    trained : the training data; None for a loaded model
    seen : the pairs of the training data without values, for a loaded model
    """
    if data.shape[0] != shape[0]:
        return "other"
    chosen = np.zeros(shape[0], bool)
    present = np.unique(data.rows)
    chosen[present[np.linspace(0, len(present) - 1, min(_COMPARED, len(present))).astype(np.int64)]] = True
    pick = chosen[data.rows] & (data.cols < shape[1])
    keys, values = data.rows[pick].astype(np.int64) * shape[1] + data.cols[pick], data.values[pick]
    if trained is None and seen is None:
        return "unclear"
    theirs, their_values, columns = _training(shape, trained, seen, chosen)
    order = np.argsort(theirs, kind="stable")
    theirs, their_values = theirs[order], their_values[order]
    at = np.minimum(np.searchsorted(theirs, keys), max(len(theirs) - 1, 0))
    common = theirs[at] == keys if len(theirs) else np.zeros(len(keys), bool)
    count = int(common.sum())
    if count == 0:
        return _nothing_common(keys, theirs, columns, shape)
    if trained is None:
        return "same" if count == len(keys) else "unclear"
    equal = int((their_values[at[common]] == values[common]).sum())
    if equal == len(keys):
        return "same"
    chance = float(np.clip(_chance(their_values), 1e-6, _EQUAL))
    odds = equal * math.log(_EQUAL / chance) + (count - equal) * math.log((1.0 - _EQUAL) / (1.0 - chance))
    if abs(odds) < _SETTLED:
        return "unclear"
    return "same" if odds > 0 else "other"


def _training(
    shape: tuple[int, int], trained: EntrySource | None, seen: RatedItems | None, chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Keys and values of the chosen rows' training entries, and the number of entries of each column."""
    columns = np.zeros(shape[1], np.int64)
    if trained is None:
        assert seen is not None
        rows = np.repeat(np.arange(shape[0]), np.diff(seen.indptr))
        chunks: Iterable[Chunk] = [(rows, seen.indices, np.zeros(len(rows), np.float32))]
    else:
        chunks = trained.chunks()
    keys, values = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for rows, cols, ratings in chunks:
        columns += np.bincount(cols, minlength=shape[1])
        pick = chosen[rows]
        keys.append(rows[pick].astype(np.int64) * shape[1] + cols[pick])
        values.append(ratings[pick])
    return np.concatenate(keys), np.concatenate(values), columns


def _nothing_common(
    keys: NDArray[np.int64], theirs: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> Rows:
    """No pair in common: ratings were held out one by one, unless so few pairs are expected that other rows fit too."""
    active = np.bincount(theirs // shape[1], minlength=shape[0])
    share = columns / max(1, columns.sum())
    expected = float(np.sum(active[keys // shape[1]] * share[keys % shape[1]]))
    # Halves of the rows have similar numbers of entries; a test set held out one by one usually has far fewer.
    if expected >= _EXPECTED or 2 * len(keys) < len(theirs):
        return "same"
    return "unclear"


def _chance(values: NDArray[np.float32]) -> float:
    """The probability that two values of the training data are equal."""
    _, counts = np.unique(values, return_counts=True)
    share = counts / counts.sum()
    return float(np.sum(share * share))


def refuse_unclear(what: str) -> DataError:
    """The error for a matrix whose rows might be those of the training data or others."""
    return DataError(
        f"{what}: the matrix has as many rows as the training data, and its entries do not show whether they are the "
        "same rows; give pairs and ratings (an array of users and items, two columns, and y), or a table with ids, so "
        "that rows have names; st.cross_validate and st.split hold out single ratings"
    )
