"""Values that an analysis result depends on: the result is valid while these numbers and arrays are unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.loops.front.bind import BoundValues


@dataclass(frozen=True, eq=False)
class Assumptions:
    """Values at the time of the analysis."""

    numbers: Mapping[str, Any] = field(default_factory=dict)  # by name
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)  # copies, by name

    def holds(self, held: BoundValues, known: Mapping[str, Any]) -> bool:
        """Whether all values are unchanged."""
        now = {**held.numbers, **known}
        return all(now.get(name) == value for name, value in self.numbers.items()) and all(
            name in held.arrays and np.array_equal(held.arrays[name], value) for name, value in self.arrays.items()
        )
