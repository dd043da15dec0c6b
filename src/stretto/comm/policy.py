"""Policies: what is sent before it has to be.

Eager()                          the default: at the end of a clock everything, in between nothing
Lazy()                           only what somebody is about to need (a baseline)
Managed("100Mbit", rank="relative", codec="f2")    in between as well, within a budget, the weightiest rows first
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
    """Updates and fresh rows travel when a clock ends; nothing is limited."""

    lazy = False
    managed = False
    codec: str | None = None

    def __post_init__(self) -> None:
        _check_codec(self)


@dataclass(frozen=True)
class Lazy:
    """Updates travel when somebody needs them, rows when they are read and too old."""

    lazy = True
    managed = False
    codec: str | None = None

    def __post_init__(self) -> None:
        _check_codec(self)


@dataclass(frozen=True)
class Managed:
    """Spare bandwidth carries rows between clocks.

    budget : what each node may send, such as "200Mbit" or bytes per second as a number; half of it is for updates, half
        for rows (`split`: the share of updates).
    burst : rows sent at a time at most, over all destinations, (updates, rows). Messages of keys are no longer than a
        burst of rows either, but for announcements, which cannot be cut.
    rank : "random", "round-robin", "absolute", "relative", "effective", or a function(deltas [n, width], rows
        [n, width]) -> [n], larger first. On the side of the shards `absolute` and `relative` rank by how far a row has
        moved since it was last sent.
    codec : None, or "f2" to send 16-bit floats; what rounding takes away stays in the buffer and goes with the next
        change of the row. So does all beyond ±65504; what is still there when the run ends is lost, so keep single
        changes well below that.
    window : messages on a link without an answer at most; beyond, nothing is sent on it until one comes.
    links : budgets of single links, {(from node, to node): "50Mbit"}, beside that of the node.
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
            raise PlanError(f"Managed(window={self.window!r}): how many messages, a whole number of at least 1")
        if not _is_share(self.split):
            raise PlanError(f"Managed(split={self.split!r}): the share of updates lies between 0 and 1")
        pairs = list(self.links) if isinstance(self.links, Mapping) else [self.links]
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_node, pair)) and pair[0] != pair[1]):
                raise PlanError(
                    f"Managed(links=…): {pair!r} is not a link; give {{(from node, to node): rate}}, such as "
                    "{(0, 1): '50Mbit'}"
                )
            rate(self.links[pair])

    def check_nodes(self, nodes: int) -> None:
        """Refuse links that a run on so many nodes does not have."""
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
