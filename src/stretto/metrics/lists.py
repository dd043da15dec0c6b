"""Metrics of ranked lists that any recommender made: `st.metrics.ndcg(recommended, relevant, k=10)`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import number
from stretto.data.convert.convert import as_data, plain_array
from stretto.data.convert.sparse_structure import is_sparse
from stretto.data.records.data import Data
from stretto.errors import DataError
from stretto.runtime.runtimes import Threads

from .measure import Relevant, information_of, mean, measure
from .names import ERRORS, TOGETHER, Metric, parse_all

_NEED_TRAIN = ("novelty", "popularity_bias")


def ranking(
    recommended: Any,
    relevant: Any,
    metrics: Any = ("precision@10", "recall@10", "ndcg@10", "map@10", "mrr@10", "hit_rate@10"),
    *,
    items: int | None = None,
    train: Any = None,
    graded: bool = False,
    per_user: bool = False,
    n_jobs: int | None = None,
) -> dict[str, Any]:
    """Several metrics of ranked lists, in one pass over the users.

    Users without relevant items are left out: their metrics are NaN with per_user, and no part of the means.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first, each item once; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took. Stored entries of a matrix count if they are positive; items are column numbers. Row k is
        about the user of row k of `recommended`.
    metrics : str or sequence of str
        Names such as "ndcg@10": precision, recall, ndcg, map, mrr, hit_rate, auc, coverage, novelty and
        popularity_bias. Without @k, of the first ten places.
    items : int or None, default None
        How many items could have been recommended, for auc and coverage; None for the columns of `relevant`.
    train : sparse matrix [users, items] or None, default None
        Who had which item before, for novelty and popularity_bias.
    graded : bool, default False
        The gain of an item in NDCG is its value in `relevant`, not 1.
    per_user : bool, default False
        Return an array [m] for each metric, not its mean. Coverage is one number in any case.
    n_jobs : int or None, default None
        Threads; None uses every core. Changes no bit.

    Returns
    -------
    dict
        By name, means over the users that have relevant items, or arrays [m].

    Examples
    --------
    >>> import stretto as st
    >>> found = st.metrics.ranking([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], ["recall@2", "mrr@3"])
    >>> found
    {'recall@2': 0.25, 'mrr@3': 0.25}
    """
    asked = parse_all(metrics, "ranking")
    single = [one for one in asked if one.name not in TOGETHER]
    wrong = [str(one) for one in single if one.name in ERRORS]
    if wrong:
        raise DataError(f"ranking: {wrong[0]} is an error of predicted ratings; use st.evaluate(model, ratings)")
    found, held, columns = _lists(recommended, relevant, graded=graded)
    if items is not None:
        number("items", items, least=1, whole=True, owner="ranking")
    size = columns if items is None else int(items)
    _check(asked, found, size)
    information = _information(train, size) if any(one.name in _NEED_TRAIN for one in single) else None
    values = np.zeros((len(found), 0))
    if single:
        with Threads(n_jobs).open() as crew:
            values = measure(found, held, single, crew, items=size or 0, information=information)
    made: dict[str, Any] = {}
    for one in asked:
        if one.name in TOGETHER:
            made[str(one)] = covered(found[:, : one.k], size or 0)
        else:
            column = values[:, single.index(one)]
            made[str(one)] = column if per_user else mean(column)
    return made


def covered(found: NDArray[Any], items: int) -> float:
    """Share of the items that are in some list."""
    return len(np.unique(found[found >= 0])) / items


def _lists(recommended: Any, relevant: Any, *, graded: bool) -> tuple[NDArray[np.int32], Relevant, int | None]:
    """Item numbers of the lists, relevant items, and how many items there are; None if that is not known."""
    lists = plain_array(recommended, "recommended")
    if lists.ndim != 2:
        raise DataError(f"recommended has one row of items for each user, best first; got shape {lists.shape}")
    if is_sparse(relevant) or isinstance(relevant, Data):
        held = relevant if isinstance(relevant, Data) else as_data(relevant, duplicates="last")
        held = held.take(held.values > 0)
        if held.shape[0] != len(lists):
            raise DataError(f"recommended has {len(lists)} rows and relevant {held.shape[0]}; give one for each user")
        if lists.dtype.kind not in "iu":
            raise DataError(f"items are columns of relevant, whole numbers; recommended has dtype {lists.dtype}")
        if lists.size and int(lists.max()) >= held.shape[1]:
            raise DataError(f"recommended has item {int(lists.max())}, and relevant has {held.shape[1]} columns")
        return _no_repeats(np.maximum(lists, -1).astype(np.int32)), Relevant.of(held, graded=graded), held.shape[1]
    if graded:
        raise DataError("graded=True takes gains from the values of a sparse matrix; give relevant as one")
    return (*_collections(lists, relevant), None)


def _collections(lists: NDArray[Any], relevant: Any) -> tuple[NDArray[np.int32], Relevant]:
    """Lists and relevant items, given as collections of ids, in one numbering."""
    try:
        held = [list(one) for one in relevant]
    except TypeError:
        raise DataError("relevant is a sparse matrix, or a list with a collection of items for each user") from None
    if len(held) != len(lists):
        raise DataError(f"recommended has {len(lists)} rows and relevant {len(held)}; give one for each user")
    flat = [item for one in held for item in one]
    number_of: dict[Any, int] = {}
    for item in (*lists.ravel().tolist(), *flat):
        none = item == "" if isinstance(item, str) else item < 0
        number_of.setdefault(item, -1 if none else len(number_of))
    found = np.array([number_of[item] for item in lists.ravel().tolist()], np.int32).reshape(lists.shape)
    rows = np.repeat(np.arange(len(held)), [len(one) for one in held])
    cols = np.array([number_of[item] for item in flat], np.int32)
    if len(cols) and int(cols.min()) < 0:
        raise DataError('relevant has an item below 0 (or ""), which stands for no item in the lists')
    data = Data.from_arrays(rows, cols, np.ones(len(cols), np.float32), (len(held), max(1, len(number_of))))
    return _no_repeats(found), Relevant.of(data)


def _no_repeats(found: NDArray[np.int32]) -> NDArray[np.int32]:
    ordered = np.sort(found, axis=1)
    twice = np.flatnonzero(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1))
    if len(twice):
        raise DataError(f"recommended has an item twice in row {int(twice[0])}; a ranked list has each item once")
    return found


def _check(asked: tuple[Metric, ...], found: NDArray[np.int32], items: int | None) -> None:
    """Refuse metrics that the lists are too short for, or whose number of items is not known."""
    for one in asked:
        if one.k > found.shape[1] and (items is None or found.shape[1] < items):
            raise DataError(
                f"ranking: {one} counts {one.k} places, and recommended has {found.shape[1]}; recommend more items, or "
                f"ask for {one.name}@{max(1, found.shape[1])}"
            )
        if items is None and one.name in ("auc", "coverage"):
            raise DataError(f"ranking: {one} needs the number of items that could be recommended: items=…")


def _information(train: Any, items: int | None) -> NDArray[np.float64]:
    if train is None or not (is_sparse(train) or isinstance(train, Data)):
        raise DataError("ranking: novelty and popularity_bias need train, the sparse matrix of users and items before")
    data = train if isinstance(train, Data) else as_data(train, duplicates="last")
    if items is None or data.shape[1] != items:
        raise DataError(f"ranking: train has {data.shape[1]} columns; relevant must be a sparse matrix with as many")
    users = int(np.count_nonzero(np.bincount(data.rows)))
    return information_of(np.bincount(data.cols, minlength=data.shape[1]), users)
