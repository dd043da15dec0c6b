"""Which rows go first when not all can: ranks over the rows that have changed.

    absolute      Σ |δ|, how much the row has changed since it was last sent
    relative      Σ |δ| / Σ |a|, against what the row holds; Σ |δ| where that is zero or the row is not held here
    effective     Σ |δ| times what the server function last multiplied changes of the row with
    round-robin   by key, going on after the last one sent
    random        in an order drawn anew each time, from (seed, how many draws before, key)
    a function    of (deltas [m, width], rows [m, width]) -> [m], the larger first

`order` gives the order of all m rows, or the first n of it for less. Of equals the earlier goes first. Shards do not
keep deltas but how far each row has moved: `order_moved`. Whoever sends some of them says so: `RankState.sent`.

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
    """What a ranking remembers from one time to the next: draws made, and the last key sent. One for each table."""

    seed: int = 0
    draws: int = 0
    last: int = _LAST

    def sent(self, key: int) -> None:
        """The row with this key was the last one sent: `round-robin` goes on after it."""
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

    deltas, rows [m, width]; held [m], whether the row is in the cache (rows of others are not looked at; a function
    should find zeros there); scale, keys [m]. What the rank does not need may be None: `absolute` looks at deltas,
    `relative` at deltas, rows and held, `effective` at deltas and scale, a function at deltas and rows.
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

    moved [m]: how far each has moved since it was last sent; size [m]: Σ |a|; scale, keys [m]. A function is called
    with `moved` and `size` as single columns, [m, 1].
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
        ranks.drawn.exact(state.seed & _SEEDS, state.draws, keys, scores)  # made of numbers of any size
        state.draws += 1
        return scores
    # How far each key lies behind the last one sent, round the circle of all 64-bit numbers; the nearest first.
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
