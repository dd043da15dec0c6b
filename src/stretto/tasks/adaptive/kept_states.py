"""`KeptStates`: the values of a task's states, to return to if what follows diverges."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from stretto.state.state import State
from stretto.tasks.safe_point import Collecting, Local, Progress


@dataclass(frozen=True, eq=False)
class KeptStates:
    """A copy of all states, and of what parts keep."""

    values: dict[int, NDArray[Any]]  # by number of the state
    local: Local

    @classmethod
    def of(cls, states: Mapping[int, State], progress: Progress, environment: Collecting) -> KeptStates:
        """Collect the states from the nodes and copy them; no stage runs."""
        _collect(states, environment)
        return cls({number: state.array.copy() for number, state in states.items()}, deepcopy(progress.local))

    def restore(self, states: Mapping[int, State], progress: Progress, environment: Collecting) -> None:
        """Give the states their values back; no stage runs."""
        _collect(states, environment)
        for number, values in self.values.items():
            states[number].array[...] = values
        environment.stages.reset(environment.names.owner, states)
        progress.local = deepcopy(self.local)


def _collect(states: Mapping[int, State], environment: Collecting) -> None:
    if (
        not environment.stages.virtual
    ):  # simulated nodes use the arrays, and would have to get them back from the driver
        environment.stages.collect(environment.names.owner, states)
