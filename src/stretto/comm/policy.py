"""Policies: what is sent before it has to be.

Eager()                          the default: at the end of a clock everything, in between nothing
Lazy()                           only what somebody is about to need (a baseline)
Managed("100Mbit", rank="relative", codec="f2")    in between as well, within a budget, the weightiest rows first
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Lazy:
    """Updates travel when somebody needs them, rows when they are read and too old."""

    lazy = True
    managed = False
    codec: str | None = None


@dataclass(frozen=True)
class Managed:
    """Spare bandwidth carries rows between clocks.

    budget : what each node may send, such as "200Mbit" or bytes per second as a number; half of it is for updates, half
        for rows (`split`: the share of updates).
    burst : rows sent at a time at most, over all destinations, (updates, rows).
    rank : "random", "round-robin", "absolute", "relative", "effective", or a function(deltas [n, width], rows
        [n, width]) -> [n], larger first. On the side of the shards `absolute` and `relative` rank by how far a row has
        moved since it was last sent.
    codec : None, or "f2" to send 16-bit floats; what rounding takes away stays in the buffer and goes with the next.
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
        for limit in self.links.values():
            rate(limit)
        if not callable(self.rank) and self.rank not in RANKS:
            raise PlanError(f"Managed(rank={self.rank!r}): choose {', '.join(RANKS)} or pass a function")
        if self.codec not in CODECS:
            raise PlanError(f"Managed(codec={self.codec!r}): choose None or 'f2'")
        if len(self.burst) != 2 or min(self.burst) < 1:
            raise PlanError(f"Managed(burst={self.burst!r}): give rows per message, at least 1, as (updates, rows)")
        if self.window < 1:
            raise PlanError(f"Managed(window={self.window!r}): at least one message must be allowed")
        if not 0 < self.split < 1:
            raise PlanError(f"Managed(split={self.split!r}): the share of updates lies between 0 and 1")


Policy = Eager | Lazy | Managed
