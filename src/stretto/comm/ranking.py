"""Rank changed rows: which are sent first when the budget does not cover all of them.

    absolute      Σ |δ|, how much the row has changed since it was last sent
    relative      Σ |δ| / Σ |a|, relative to the row's values; Σ |δ| where these are zero or the row is not held
    effective     Σ |δ| times the factor that the server function last multiplied changes of the row with
    round-robin   by key, continuing after the last one sent
    random        in a new random order each time, drawn from (seed, number of draws before, key)
    a function    of (deltas [m, width], rows [m, width]) -> [m], the larger first

`order` gives the order of all m rows, or, faster, only the first n. Of equal rows the earlier comes first. Shards keep
not deltas but how far each row has moved: `order_moved`. The sender reports the last row it sent: `RankState.sent`.

    >>> import numpy as np
    >>> deltas, rows = np.array([[1.0], [-4.0], [2.0]]), np.array([[0.0], [100.0], [1.0]])
    >>> held, scale, keys = np.array([True, True, True]), np.ones(3), np.array([7, 8, 9])
    >>> order("absolute", deltas, rows, held, scale, keys, RankState()).tolist()
    [1, 2, 0]
    >>> order("relative", deltas, rows, held, scale, keys, RankState()).tolist()
    [2, 0, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.kernels.tables import ranks

Rank = str | Callable[[Any, Any], Any]
Indices = NDArray[np.int64]
Keys = NDArray[np.int64]

_BY_KEY = ("random", "round-robin")
_SEEDS = 2**63 - 1
_LAST = 2**63 - 1  # the key after which the lowest comes
_WORD = 2**64 - 1
_FEW = 4  # choosing is quicker than sorting while fewer than m / _FEW are wanted


@dataclass(slots=True)
class RankState:
    """State of a ranking between calls. One for each table."""

    seed: int = 0
    draws: int = 0  # random orders drawn so far
    last: int = _LAST  # the last key sent

    def sent(self, key: int) -> None:
        """Record the key of the last row sent: `round-robin` continues after it."""
        self.last = int(key)


def order(
    rank: Rank,
    deltas: NDArray[Any] | None,
    rows: NDArray[Any] | None,
    held: NDArray[np.bool_] | None,
    scale: NDArray[Any] | None,
    keys: Keys,
    state: RankState,
    n: int | None = None,
) -> Indices:
    """[m] indices of all rows, the first to send first; with n only the first [min(n, m)].

    Arguments that the rank does not use may be None.

    Parameters
    ----------
    rank : str or callable
        The ranking.
    deltas : array [m, width]
        Changes since the rows were last sent; used by all ranks but the two by key.
    rows : array [m, width]
        Values of the rows, zeros where a row is not held; used by "relative" and by functions.
    held : array [m] bool
        Whether the row is in the cache; used by "relative".
    scale : array [m]
        Factors of the server function; used by "effective".
    keys : array [m]
        Keys of the rows.
    state : RankState
        Of the table.
    n : int or None
        How many rows to return.
    """
    if rank in _BY_KEY:
        scores: NDArray[Any] = _key_scores(rank, keys, state)
    elif callable(rank):
        scores = _called(rank, deltas, rows, len(keys))
    else:
        scores = np.empty(len(keys))
        if rank == "absolute":
            ranks.absolute.exact(deltas, scores)
        elif rank == "relative":
            ranks.relative.exact(deltas, rows, held, scores)
        else:
            ranks.effective.exact(deltas, scale, scores)
    return _first(scores, n)


def order_moved(
    rank: Rank,
    moved: NDArray[Any],
    size: NDArray[Any] | None,
    scale: NDArray[Any] | None,
    keys: Keys,
    state: RankState,
    n: int | None = None,
) -> Indices:
    """[m] indices of all rows of a shard, the first to send first; with n only the first [min(n, m)].

    Parameters
    ----------
    rank : str or callable
        The ranking. A function is called with `moved` and `size` as single columns, [m, 1].
    moved : array [m]
        How far each row has moved since it was last sent.
    size : array [m] or None
        Σ |a| of each row.
    scale : array [m] or None
        Factors of the server function.
    keys : array [m]
        Keys of the rows.
    state : RankState
        Of the table.
    n : int or None
        How many rows to return.
    """
    if rank in _BY_KEY:
        return _first(_key_scores(rank, keys, state), n)
    if callable(rank):
        return _first(_called(rank, moved[:, None], None if size is None else size[:, None], len(keys)), n)
    scores: NDArray[np.float64] = np.abs(moved, dtype=np.float64)
    if rank == "relative" and size is not None:
        np.divide(scores, np.abs(size), out=scores, where=size != 0)
    elif rank == "effective" and scale is not None:
        scores *= np.abs(scale)
    scores[np.isnan(scores)] = np.inf
    return _first(scores, n)


def _key_scores(rank: Rank, keys: Keys, state: RankState) -> NDArray[np.uint64]:
    if rank == "random":
        scores = np.empty(len(keys), np.uint64)
        ranks.drawn.exact(state.seed & _SEEDS, state.draws, keys, scores)  # seeds of any size are masked
        state.draws += 1
        return scores
    # The distance of each key from the last one sent, modulo 2⁶⁴; the nearest comes first.
    ahead: NDArray[np.uint64] = keys.astype(np.uint64) - np.uint64((state.last + 1) & _WORD)
    return ~ahead


def _called(rank: Callable[[Any, Any], Any], deltas: Any, rows: Any, m: int) -> NDArray[np.float64]:
    name = getattr(rank, "__name__", repr(rank))
    given = np.asarray(rank(deltas, rows))
    if given.shape != (m,) or given.dtype.kind not in "fiub":
        raise DataError(
            f"rank function {name!r} returned {given.dtype} {list(given.shape)} for {m} rows; "
            f"return one number for each row, a float array [{m}], larger for rows that should be sent first"
        )
    scores = given.astype(np.float64)
    bad = np.flatnonzero(np.isnan(scores))
    if len(bad):
        raise DataError(
            f"rank function {name!r} returned NaN for {len(bad)} of {m} rows (the first is row {bad[0]} of the batch); "
            "give such rows a number, for example 0 to send them last: rows that are not held are all zeros"
        )
    return scores


def _first(scores: NDArray[Any], n: int | None) -> Indices:
    """[min(n, m)] the first n of the scores [m] float64 or uint64, the larger first; all of them without n."""
    if n is not None and n * _FEW < len(scores):
        chosen = np.empty(n, np.int64)
        ranks.best.exact(scores, chosen)
        return chosen
    whole = np.argsort(-scores if scores.dtype.kind == "f" else ~scores, kind="stable")
    return whole.astype(np.int64, copy=False)[:n]
