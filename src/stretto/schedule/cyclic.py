"""Cyclic schedule (`st.schedule.cyclic`): all jobs in turn, `width` at a time, as in ordinary coordinate descent.

    chooser = cyclic(width=2).start(size=5, seed=0)
    [0 1] [2 3] [4] [0 1] …

A round ends with its sweep, so that no job is in it twice. With `shuffle` every sweep has its own random order, which
depends on (seed, sweep).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .chooser import CompiledChooser, check_width, new_choice
from .spec import Schedule


@dataclass(frozen=True)
class Cyclic(Schedule):
    """All jobs in turn, `width` together."""

    width: int = 1  # jobs of a round
    shuffle: bool = False  # whether every sweep has a new random order

    def __post_init__(self) -> None:
        check_width(self.width)

    def start(self, size: int, seed: int, data: Any = None) -> CompiledChooser:
        from stretto.kernels.rounds.chooser_state import IN_TURN, SHUFFLED

        return CompiledChooser(new_choice(SHUFFLED if self.shuffle else IN_TURN, size, seed, min(self.width, size)))

    def explain(self) -> str:
        order = "in a new order every sweep" if self.shuffle else "in turn"
        return f"cyclic: all {order}, {self.width} together"


def cyclic(width: int = 1, shuffle: bool = False) -> Cyclic:
    """All jobs in turn, `width` at a time.

    Parameters
    ----------
    width : int, default 1
        Jobs of a round.
    shuffle : bool, default False
        Use a new random order every sweep.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.cyclic(4)
    Cyclic(width=4, shuffle=False)
    """
    return Cyclic(width, shuffle)
