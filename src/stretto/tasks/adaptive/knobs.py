"""`st.knob`: a number of a unit that a loop with sync="adaptive" tunes while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stretto.checks import flags, number
from stretto.consistency.adaptive.knobs import KnobLadder, number_knob


@dataclass(frozen=True, eq=False, repr=False)
class Knob:
    """A number that may be tuned. Made by `st.knob`."""

    ladder: KnobLadder
    whole: bool = False  # the function gets integers

    @property
    def initial(self) -> float | int:
        """The number at the start, and where no loop tunes it."""
        return self.setting(self.ladder.values[self.ladder.start])

    def setting(self, value: float) -> float | int:
        """A setting as the function gets it."""
        return round(value) if self.whole else value

    def __repr__(self) -> str:
        values = self.ladder.values
        return f"knob({self.ladder.name}: {self.initial:g} of {', '.join(f'{value:g}' for value in values)})"


def knob(initial: float, ladder: Sequence[float], *, name: str = "", whole: bool = False) -> Knob:
    """A number of a unit that `st.loop(…, sync="adaptive")` tunes: a learning rate, a batch size, a clock length.

    Outside of such a loop the function gets the initial number. Lower settings should be the more careful ones.

    Parameters
    ----------
    initial : float
        The number at the start.
    ladder : sequence of float
        The settings, one of which is `initial`; or a tuple (low, high) of positive numbers around `initial`, between
        which every setting is twice the one below.
    name : str, default ""
        Its name in events; "" for the name of the function's parameter.
    whole : bool, default False
        Whether the function gets integers.

    Returns
    -------
    Knob

    Examples
    --------
    >>> import stretto as st
    >>> st.knob(0.1, (0.02, 0.5), name="step")
    knob(step: 0.1 of 0.025, 0.05, 0.1, 0.2, 0.4)
    >>> st.knob(10, [5, 10, 50], name="batch", whole=True).initial
    10
    """
    called = f"knob {name}" if name else "knob"
    number("initial", initial, owner=called)
    for value in ladder:
        number("ladder", value, owner=called)
    flags(whole=whole, owner=called)
    bounds = isinstance(ladder, tuple) and len(ladder) == 2
    return Knob(number_knob(name, float(initial), ladder, bounds), whole)
