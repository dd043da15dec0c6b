"""Rules of replicated states: `st.add` and `st.average` merge changes; `st.top`, `st.random_share` and `st.round_robin`
filter them.

    v = st.state(np.zeros(1000), replicate=True, merge=st.add(1.0), filter=st.top("relative", share=0.2))

Each part of a unit that uses such a state has a full copy of its own. At an exchange the part sends what it has changed
since the last one, as far as the filter lets it, and receives what the others have sent. What the filter holds back
stays in the copy and is sent later; at the end of the unit everything is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import choice, number, shown, whole
from stretto.comm.units import rate
from stretto.errors import PlanError

from .exchange import AUTO, WAYS


@dataclass(frozen=True)
class Merge:
    """How the changes of replicas are combined: each is multiplied and added. Made by `st.add` and `st.average`."""

    gamma: float | None = 1.0  # factor of every change; None: 1 / replicas
    function: Callable[[Any, int], Any] | None = None  # (changes [n, cols], replicas) -> what is added

    def weighted(self, changes: NDArray[Any], replicas: int) -> NDArray[Any]:
        """What a replica adds to the state for its changes [n, cols]."""
        if self.function is None:
            factor = 1.0 / replicas if self.gamma is None else self.gamma
            return changes if factor == 1.0 else (changes * factor).astype(changes.dtype)
        found = np.asarray(self.function(changes, replicas), changes.dtype)
        if found.shape != changes.shape:
            raise PlanError(f"merge: the function gave {found.shape} for changes of {changes.shape}; return that shape")
        return found

    def words(self) -> str:
        """The rule in words."""
        if self.function is not None:
            return f"merged by {getattr(self.function, '__name__', 'a function')}"
        return "averaged" if self.gamma is None else f"added {self.gamma:g} times"


@dataclass(frozen=True)
class Filter:
    """Which changed rows a replica sends. Made by `st.top`, `st.random_share` and `st.round_robin`."""

    rank: str  # of `comm.ranking`
    share: float | None  # of the rows of the state, at most, in an exchange; None: as many as the quota allows
    quota: float | None = None  # bytes per second that a part may send, on average
    asked: str = ""  # the quota as it was given

    def count(self, rows: int) -> int:
        """Rows that may be sent in an exchange."""
        return rows if self.share is None else max(1, int(self.share * rows))

    def words(self) -> str:
        """The rule in words."""
        if self.share is None:
            return f"as many rows as {self.asked} allow ({self.rank})"
        return f"{self.share:.0%} of its rows in an exchange ({self.rank})"


@dataclass(frozen=True)
class Replication:
    """The rules of one replicated state. every: yields of a unit between two exchanges."""

    merge: Merge = Merge()
    filter: Filter | None = None
    every: int = 1
    exchange: str = AUTO  # or one of `exchange.WAYS`; it decides what is sent where, and no result under BSP

    @property
    def timed(self) -> bool:
        """Whether what is sent depends on time."""
        return self.filter is not None and self.filter.quota is not None

    @property
    def share(self) -> float:
        """Share of the rows that a part sends in an exchange, as far as that is known before."""
        return 1.0 if self.filter is None or self.filter.share is None else self.filter.share

    def words(self) -> str:
        """The rules in words."""
        sent = "" if self.filter is None else f", sends {self.filter.words()}"
        return f"a copy for each part, changes are {self.merge.words()}{sent}"


def replication_of(merge: Any, filter: Any, every: int, exchange: str = AUTO) -> Replication:
    """Check the rules of `st.state`."""
    if merge is None:
        merge = Merge()
    elif not isinstance(merge, Merge):
        if not callable(merge):
            raise PlanError(f"state: merge={shown(merge)}; give st.add(gamma), st.average() or a function")
        merge = Merge(None, merge)
    if filter is not None and not isinstance(filter, Filter):
        raise PlanError(
            f"state: filter={shown(filter)}; give st.top('absolute' | 'relative', share=…), st.random_share(share) or "
            "st.round_robin(share)"
        )
    choice("exchange", exchange, (AUTO, *WAYS), owner="state")
    return Replication(merge, filter, whole("every", every, 1, "state"), exchange)


def add(gamma: float = 1.0) -> Merge:
    """Merge replicas by adding the changes of all, each multiplied by gamma: w ← w + γ Σₖ Δwₖ.

    Parameters
    ----------
    gamma : float, default 1.0
        Factor of every change.

    Returns
    -------
    Merge

    Examples
    --------
    >>> import stretto as st
    >>> st.add(0.5).words()
    'added 0.5 times'
    """
    number("gamma", gamma, above=0, owner="add")
    return Merge(float(gamma))


def average() -> Merge:
    """Merge replicas by the mean of their changes: w ← w + (1/K) Σₖ Δwₖ for K replicas.

    Returns
    -------
    Merge

    Examples
    --------
    >>> import stretto as st
    >>> st.average().words()
    'averaged'
    """
    return Merge(None)


def top(rank: str = "absolute", share: float | None = None, *, quota: str | float | None = None) -> Filter:
    """Send the rows that have changed most.

    Parameters
    ----------
    rank : {"absolute", "relative"}, default "absolute"
        By the size of the change, or by its size relative to the row.
    share : float or None, default None
        Rows sent in an exchange, as a share of all rows; None for 0.1, or for what `quota` allows.
    quota : str, float or None, default None
        In place of `share`: bytes per second that each part sends on average, or text such as "10Mbit". An exchange
        sends as many rows as fit into the time since the last one. On `st.Serial`, where no time counts, all of them.

    Returns
    -------
    Filter

    Examples
    --------
    >>> import stretto as st
    >>> st.top("relative", share=0.05).words()
    '5% of its rows in an exchange (relative)'
    """
    choice("rank", rank, ("absolute", "relative"), owner="top")
    return _filter("top", rank, 0.1 if share is None and quota is None else share, quota)


def random_share(share: float | None = None, *, quota: str | float | None = None) -> Filter:
    """Send changed rows drawn at random.

    Parameters
    ----------
    share : float or None, default None
        Rows sent in an exchange, as a share of all rows.
    quota : str, float or None, default None
        In place of `share`: see `st.top`.

    Returns
    -------
    Filter

    Examples
    --------
    >>> import stretto as st
    >>> st.random_share(0.2).words()
    '20% of its rows in an exchange (random)'
    """
    return _filter("random_share", "random", share, quota)


def round_robin(share: float | None = None, *, quota: str | float | None = None) -> Filter:
    """Send changed rows in turn, by their number.

    Parameters
    ----------
    share : float or None, default None
        Rows sent in an exchange, as a share of all rows.
    quota : str, float or None, default None
        In place of `share`: see `st.top`.

    Returns
    -------
    Filter

    Examples
    --------
    >>> import stretto as st
    >>> st.round_robin(0.2).words()
    '20% of its rows in an exchange (round-robin)'
    """
    return _filter("round_robin", "round-robin", share, quota)


def _filter(owner: str, rank: str, share: float | None, quota: str | float | None) -> Filter:
    if (share is None) == (quota is None):
        given = "both" if share is not None else "neither"
        raise PlanError(f"{owner}: {given} of share= and quota= given; give one: a share of the rows, or '10Mbit'")
    if share is not None:
        number("share", share, above=0, most=1, owner=owner)
        return Filter(rank, float(share))
    assert quota is not None
    return Filter(rank, None, rate(quota), quota if isinstance(quota, str) else f"{quota:g} bytes/s")
