"""What was worked out from values, not only from types: it holds as long as those values are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.loops.front.bind import Held


@dataclass(frozen=True, eq=False)
class Relied:
    """Numbers, and copies of arrays, as they were."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    def holds(self, held: Held, known: Mapping[str, Any]) -> bool:
        """Whether all of them are still the same."""
        now = {**held.numbers, **known}
        return all(now.get(name) == value for name, value in self.numbers.items()) and all(
            name in held.arrays and np.array_equal(held.arrays[name], value) for name, value in self.arrays.items()
        )
