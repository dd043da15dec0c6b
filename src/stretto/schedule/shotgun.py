"""Random rounds, as in Shotgun: `width` different jobs, every set of so many with the same probability.

It costs nothing to choose them, and they disturb each other as chance will have it: beyond the safe width of `width`
(the module) progress per update goes down, and far beyond it the objective goes up.

Bradley, Kyrola, Bickson, Guestrin: Parallel coordinate descent for l1-regularized loss minimization, ICML 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .chooser import Compiled, check_width, new_choice
from .spec import Schedule


@dataclass(frozen=True)
class Random(Schedule):
    """`width` different jobs drawn evenly, by the key (seed, round)."""

    width: int = 1

    def __post_init__(self) -> None:
        check_width(self.width)

    def start(self, size: int, seed: int, data: Any = None) -> Compiled:
        from stretto.kernels.rounds.chooser_state import DRAWN

        return Compiled(new_choice(DRAWN, size, seed, min(self.width, size)))

    def explain(self) -> str:
        return f"random: {self.width} different ones drawn evenly, whatever they disturb"


def random(width: int = 1) -> Random:
    """Different jobs drawn evenly in every round (Shotgun).

    Parameters
    ----------
    width : int, default 1
        Jobs of a round.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.random(8)
    Random(width=8)
    """
    return Random(width)
