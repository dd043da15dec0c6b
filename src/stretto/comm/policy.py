"""Communication policies: which changes are sent before a clock requires them.

Eager()                          the default: everything at the end of a clock, nothing in between
Lazy()                           only changes that a reader is about to need (a baseline)
Managed("100Mbit", rank="relative", codec="f2")    also between clocks, within a budget, the highest-ranked rows first
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from stretto.errors import PlanError

from .units import rate

RANKS = ("random", "round-robin", "absolute", "relative", "effective")
CODECS = (None, "f2")


@dataclass(frozen=True)
class Eager:
    """Send updates and fresh rows when a clock ends, without a limit. The default.

    Parameters
    ----------
    codec : {None, "f2"}, default None
        "f2" sends 16-bit floats. The rounding error stays in the buffer and is sent with the next change of the row.

    Attributes
    ----------
    lazy : bool
        Whether rows are sent only when a reader asks for them.
    managed : bool
        Whether rows are also sent between clocks.

    Examples
    --------
    >>> import stretto as st
    >>> st.tables.Eager()
    Eager(codec=None)
    """

    lazy = False
    managed = False
    codec: str | None = None

    def __post_init__(self) -> None:
        _check_codec(self)


@dataclass(frozen=True)
class Lazy:
    """Send updates when a reader needs them, and rows when they are read and too old. A baseline.

    Parameters
    ----------
    codec : {None, "f2"}, default None
        "f2" sends 16-bit floats. The rounding error stays in the buffer and is sent with the next change of the row.

    Attributes
    ----------
    lazy : bool
        Whether rows are sent only when a reader asks for them.
    managed : bool
        Whether rows are also sent between clocks.

    Examples
    --------
    >>> import stretto as st
    >>> st.tables.Lazy().lazy
    True
    """

    lazy = True
    managed = False
    codec: str | None = None

    def __post_init__(self) -> None:
        _check_codec(self)


@dataclass(frozen=True)
class Managed:
    """Send rows between clocks as well, within a bandwidth budget, the most important rows first.

    Parameters
    ----------
    budget : str or float
        What each node may send: a rate such as "200Mbit", or bytes per second.
    burst : tuple of int, default (100, 100)
        The most rows sent at a time, over all destinations: (updates, rows). Messages of keys have the same limit,
        except announcements, which cannot be cut.
    rank : str or callable, default "relative"
        What is sent first: "random", "round-robin", "absolute", "relative", "effective", or a function(deltas [n,
        width], rows [n, width]) -> [n], larger first. On shards, "absolute" and "relative" rank by how far a row has
        moved since it was last sent.
    codec : {None, "f2"}, default None
        "f2" sends 16-bit floats. The rounding error, and whatever exceeds ±65504, stays in the buffer and is sent with
        the next change of the row. What is in the buffer when the run ends is lost, so keep single changes well below
        that bound.
    window : int, default 32
        The most messages on a link that are not acknowledged. Nothing more is sent on the link until one is.
    split : float, default 0.5
        The share of the budget for updates. The rest is for rows.
    links : dict, default {}
        Budgets of single links beside the budget of the node: {(from node, to node): "50Mbit"}.

    Attributes
    ----------
    lazy : bool
        Whether rows are sent only when a reader asks for them.
    managed : bool
        Whether rows are also sent between clocks.

    Examples
    --------
    >>> import stretto as st
    >>> policy = st.tables.Managed("200Mbit", rank="absolute", codec="f2")
    >>> policy.budget, policy.managed
    ('200Mbit', True)
    """

    budget: str | float
    burst: tuple[int, int] = (100, 100)
    rank: str | Callable[[Any, Any], Any] = "relative"
    codec: str | None = None
    window: int = 32
    split: float = 0.5
    links: Mapping[tuple[int, int], str | float] = field(default_factory=dict)
    lazy = False
    managed = True

    def __post_init__(self) -> None:
        rate(self.budget)
        if not callable(self.rank) and self.rank not in RANKS:
            raise PlanError(f"Managed(rank={self.rank!r}): choose {', '.join(RANKS)} or pass a function")
        _check_codec(self)
        if not (isinstance(self.burst, Sequence) and len(self.burst) == 2 and all(map(_counts, self.burst))):
            raise PlanError(f"Managed(burst={self.burst!r}): give rows per message, at least 1, as (updates, rows)")
        if not _counts(self.window):
            raise PlanError(f"Managed(window={self.window!r}): give a number of messages, an integer of at least 1")
        if not _is_share(self.split):
            raise PlanError(f"Managed(split={self.split!r}): give the share of updates, between 0 and 1")
        pairs = list(self.links) if isinstance(self.links, Mapping) else [self.links]
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_node, pair)) and pair[0] != pair[1]):
                raise PlanError(
                    f"Managed(links=…): {pair!r} is not a link; give {{(from node, to node): rate}}, such as "
                    "{(0, 1): '50Mbit'}"
                )
            rate(self.links[pair])

    def check_nodes(self, nodes: int) -> None:
        """Refuse links that a run on this many nodes does not have.

        Parameters
        ----------
        nodes : int
            Nodes of the run.

        Raises
        ------
        PlanError
            If a link names a node that the run does not have.
        """
        for pair in self.links:
            if max(pair) >= nodes:
                raise PlanError(
                    f"Managed(links=…) limits {pair}, and this run has nodes 0 to {nodes - 1}; leave it out"
                )


def _check_codec(policy: Policy) -> None:
    if policy.codec not in CODECS:
        raise PlanError(f"{type(policy).__name__}(codec={policy.codec!r}): choose None or 'f2'")


def _is_node(value: object) -> bool:
    return type(value) is not bool and isinstance(value, Integral) and int(value) >= 0


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < 1


def _counts(value: object) -> bool:
    return _is_node(value) and value != 0


Policy = Eager | Lazy | Managed
