"""`Replica`: one part's copy of a replicated state, and the changes that it has not sent yet.

    replica = Replica(rules, rows, cols, dtype, replicas=8)
    replica.receive(table)              the rows as all parts see them; own changes that were not sent stay on top
    replica.values += …                 the part computes
    keys, changes = replica.send()      what goes to the others now, weighted by the merge rule

The cycle is that of the dissertation (figure 4-5): a copy, the change against the last exchange, the filter, the
exchange, the merge. Whatever the filter holds back stays in `values` and in the change against `base`, so nothing is
lost: it is sent by a later `send`, or by `send(everything=True)` at the end. Pure: it sends nothing itself.

    >>> import numpy as np
    >>> from stretto.consistency.replication import Filter, Merge, Replication
    >>> replica = Replica(Replication(Merge(0.5), Filter("absolute", 0.5)), 2, 1, np.dtype("f8"), replicas=2)
    >>> replica.receive(np.zeros((2, 1)))
    >>> replica.values[:] = [[1.0], [4.0]]
    >>> keys, changes = replica.send()
    >>> keys.tolist(), changes.tolist()
    ([1], [[2.0]])
    >>> replica.receive(np.array([[0.0], [3.0]]))  # the other part has added 1 to row 1
    >>> replica.values.tolist()
    [[1.0], [3.0]]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.budget import Bucket
from stretto.comm.messages import KEY
from stretto.comm.ranking import RankState, order
from stretto.consistency.replication import Replication

Keys = NDArray[np.int64]


class Replica:
    """A copy of a state.

    Parameters
    ----------
    rules : Replication
        Merge and filter.
    rows, cols : int
        Shape of the state.
    dtype : dtype
        Type of its numbers.
    replicas : int
        Parts that have a copy.
    seed : int, default 0
        Of a random filter; another one for each part.

    Attributes
    ----------
    values : array [rows, cols]
        The copy. The part reads and writes it in place.
    base : array [rows, cols]
        What was last received.
    """

    def __init__(self, rules: Replication, rows: int, cols: int, dtype: Any, replicas: int, seed: int = 0) -> None:
        self._rules, self._replicas = rules, replicas
        self.values: NDArray[Any] = np.zeros((rows, cols), dtype)
        self.base: NDArray[Any] = np.zeros((rows, cols), dtype)
        self._unsent: NDArray[Any] = np.zeros((0, cols), dtype)  # changes that were held back
        self._unsent_keys: Keys = np.zeros(0, np.int64)
        self._rank = RankState(seed=seed)
        self._row_bytes = KEY + cols * self.values.itemsize
        quota = None if rules.filter is None else rules.filter.quota
        self._bucket = None if quota is None else Bucket(quota)

    def begin(self, now: float) -> None:
        """The time from which on a quota counts."""
        if self._bucket is not None:
            self._bucket.empty_at = now

    def send(self, *, everything: bool = False, now: float | None = None) -> tuple[Keys, NDArray[Any]]:
        """(keys [n], changes [n, cols]) that go to the others; then `receive`.

        everything: without the filter. now: seconds, for a quota; None: it holds nothing back.
        """
        change = self.values - self.base
        keys = np.flatnonzero(change.any(axis=1))
        rows, most = change[keys], len(keys)
        rule = self._rules.filter
        if rule is not None and not everything:
            most = min(most, rule.count(len(change)), self._within_quota(now))
        if most == 0:
            sent = np.zeros(len(keys), np.bool_)
        elif most < len(keys):
            assert rule is not None
            chosen = order(rule.rank, rows, self.base[keys], np.ones(len(keys), np.bool_), None, keys, self._rank, most)
            self._rank.sent(int(keys[chosen[-1]]))
            sent = np.zeros(len(keys), np.bool_)
            sent[chosen] = True
        else:
            sent = np.ones(len(keys), np.bool_)
        if self._bucket is not None:
            self._bucket.spend(int(sent.sum()) * self._row_bytes)
        self._unsent_keys, self._unsent = keys[~sent], rows[~sent]
        return keys[sent], self._rules.merge.weighted(rows[sent], self._replicas)

    def _within_quota(self, now: float | None) -> int:
        """Rows that fit into the time since the last exchange; those of an idle time up to all rows of the state."""
        rows = len(self.values)
        if self._bucket is None or now is None:
            return rows
        return int(self._bucket.unused(now, rows * self._row_bytes) / self._row_bytes)

    def receive(self, rows: NDArray[Any]) -> None:
        """Take the rows [rows, cols] of the state as they are now; changes that were held back stay on top."""
        self.base[:] = rows
        self.values[:] = rows
        self.values[self._unsent_keys] += self._unsent

    @property
    def unsent(self) -> tuple[Keys, NDArray[Any]]:
        """(keys [n], changes [n, cols]) that were held back."""
        return self._unsent_keys, self._unsent

    def saved(self) -> dict[str, NDArray[Any]]:
        """What a later replica needs to continue: changes that were held back, and where the filter is."""
        return {
            "rows": self._unsent_keys,
            "changes": self._unsent,
            "filter": np.array([self._rank.draws, self._rank.last], np.int64),
        }

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `saved` returned; `receive` must follow."""
        self._unsent_keys, self._unsent = saved["rows"], saved["changes"]
        self._rank.draws, self._rank.last = (int(number) for number in saved["filter"])
