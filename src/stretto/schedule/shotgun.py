"""Random schedule (`st.schedule.random`), as in Shotgun: `width` distinct jobs, drawn uniformly in every round.

Choosing is cheap, but jobs of a round may conflict: beyond the safe width (see `stretto.schedule.width`) progress per
update decreases, and far beyond it the objective rises.

Bradley, Kyrola, Bickson, Guestrin: Parallel coordinate descent for l1-regularized loss minimization, ICML 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .chooser import CompiledChooser, check_width, new_choice
from .spec import Schedule


@dataclass(frozen=True)
class Random(Schedule):
    """`width` distinct jobs drawn uniformly, by the key (seed, round)."""

    width: int = 1  # jobs of a round

    def __post_init__(self) -> None:
        check_width(self.width)

    def start(self, size: int, seed: int, data: Any = None) -> CompiledChooser:
        from stretto.kernels.rounds.chooser_state import DRAWN

        return CompiledChooser(new_choice(DRAWN, size, seed, min(self.width, size)))

    def explain(self) -> str:
        return f"random: {self.width} distinct jobs drawn uniformly, conflicts ignored"


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
