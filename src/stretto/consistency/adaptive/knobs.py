"""Values of the adaptive controller: knobs with ladders of settings, windows that have run, and moves.

A knob has an ordered ladder of settings. For all of them, lower is more careful: fewer clocks of staleness, a smaller
step. The last rung of a staleness ladder is infinity, which stands for ASP.

    >>> staleness_knob(20).values
    (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, inf)
    >>> rule_of(0.0), rule_of(4.0), rule_of(float("inf"))
    (BSP(), SSP(s=4, speculate=False), ASP())
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from stretto.checks import wrong
from stretto.consistency.rules import ASP, BSP, SSP, Rule

STALENESS = "staleness"
SHARE = "share"


@dataclass(frozen=True)
class KnobLadder:
    """One knob: its name, its settings in order, and where it starts."""

    name: str
    values: tuple[float, ...]  # the first is the most careful: ascending, but for shares
    start: int = 0  # number of the first setting
    kind: str = "number"  # or "staleness", "share"

    def words(self, rung: int) -> str:
        """A setting in words."""
        value = self.values[rung]
        if self.kind != STALENESS:
            return f"{value:.3g}" if self.kind != SHARE else f"{value:.3g} of the rows"
        return "BSP" if value == 0 else "ASP" if math.isinf(value) else f"SSP({value:g})"


@dataclass(frozen=True)
class Window:
    """What a window of a run achieved with the settings that were active."""

    before: float | None  # the objective at its start; None if it is not known
    after: float  # at its end
    seconds: float
    nbytes: int = 0  # sent between nodes
    waited: float | None = None  # share of the workers' time in which they did not compute; None if it is not known


@dataclass(frozen=True)
class ConsistencyMove:
    """One decision of the adaptive controller.

    Attributes
    ----------
    window : int
        Number of the window that it follows, from 1.
    knob : str
        Its name.
    before : str
        The setting until now, in words.
    after : str
        The setting from now on.
    kind : str
        "try" for a trial, "keep" for a trial that succeeded, "back" for one that did not, "lower" where a run diverged.
    reason : str
        Why, in words.
    seconds : float
        Of all windows so far.
    rungs : tuple of int
        Numbers of both settings on the ladder of the knob, from the most careful one.
    """

    window: int
    knob: str
    before: str
    after: str
    kind: str
    reason: str
    seconds: float = 0.0
    rungs: tuple[int, int] = (0, 0)


def staleness_knob(clocks: int, name: str = STALENESS) -> KnobLadder:
    """The staleness bound of a unit with this many clocks: BSP, SSP with powers of two, ASP."""
    bounds = [0.0]
    while 2 ** (len(bounds) - 1) < clocks - 1:  # a bound of clocks - 1 never makes anyone wait
        bounds.append(float(2 ** (len(bounds) - 1)))
    return KnobLadder(name, (*bounds, math.inf), 0, STALENESS)


def share_knob(name: str, share: float) -> KnobLadder:
    """The share of rows that a filter sends: all of them, then half as many each time, down to a quarter of the given.

    >>> share_knob("share", 0.2).values
    (1.0, 0.8, 0.4, 0.2, 0.1, 0.05)
    """
    values = [share * 2.0**k for k in range(20, -3, -1) if share * 2.0**k < 1]
    return KnobLadder(name, (1.0, *values), 0 if share >= 1 else 1 + values.index(share), SHARE)


def period_knob(name: str, every: int) -> KnobLadder:
    """Yields from one exchange to the next: each, then twice as many, up to eight times the given.

    >>> period_knob("period", 3).values
    (1.0, 3.0, 6.0, 12.0, 24.0)
    """
    values = sorted({1.0, *(float(every * 2**k) for k in range(4))})
    return KnobLadder(name, tuple(values), values.index(every))


def number_knob(name: str, initial: float, ladder: Sequence[float], low_high: bool = False) -> KnobLadder:
    """A number: with a ladder, or the lowest and the highest value, between which every rung is twice the one below."""
    values = sorted({float(value) for value in ladder})
    if len(values) < 2 or not all(map(math.isfinite, values)):
        raise wrong(f"knob {name}", "ladder", "at least two finite numbers", ladder)
    if not values[0] <= initial <= values[-1]:
        raise wrong(f"knob {name}", "initial", f"between {values[0]:g} and {values[-1]:g}", initial)
    if low_high:
        low, high = values
        if low <= 0:
            raise wrong(f"knob {name}", "low", "more than 0", low, "list the settings instead")
        values = [initial * 2.0**k for k in range(-60, 61) if low <= initial * 2.0**k <= high]
        if len(values) < 2:
            raise wrong(f"knob {name}", "high", "at least twice low", high, "list the settings instead")
    elif initial not in values:
        raise wrong(f"knob {name}", "initial", "one of the settings of its ladder", initial)
    return KnobLadder(name, tuple(values), bisect_left(values, float(initial)))


def rule_of(staleness: float) -> Rule:
    """The consistency rule of a staleness bound."""
    if staleness == 0:
        return BSP()
    return ASP() if math.isinf(staleness) else SSP(int(staleness))
