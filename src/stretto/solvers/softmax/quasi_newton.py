"""L-BFGS memory: steps and gradient changes with their inner products; a step reads long vectors at most twice.

Rows of H hold steps s and gradient changes y; a small table holds the products of all of them. The two loops of L-BFGS
run over coefficients. One pass over H gives the new products, another the direction. Vectors are in the coordinates of
a metric, where the initial Hessian is a multiple of the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .passes import Passes

Floats = NDArray[np.float64]


class LbfgsMemory:
    """The last `pairs` steps of size N."""

    def __init__(self, passes: Passes, size: int, pairs: int, dtype: Any) -> None:
        self.passes, self.pairs = passes, pairs
        self.H = np.zeros((2 * pairs, size), dtype)
        self.table = np.zeros((2 * pairs, 2 * pairs))
        self.order: list[int] = []  # slots from the oldest pair to the newest

    def state(self) -> dict[str, NDArray[Any]]:
        """The stored pairs, for a checkpoint."""
        used = 2 * (max(self.order, default=-1) + 1)
        return {"H": self.H[:used], "table": self.table, "order": np.array(self.order, np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a saved `state`."""
        self.H[: len(state["H"])] = state["H"]
        self.table[:] = state["table"]
        self.order = state["order"].tolist()

    def clear(self) -> None:
        self.order = []

    def direction(self, turned: Floats, *, first: float) -> Floats:
        """[N] a descent direction, from turned [3, N] = (step, change, slope) of the last step.

        first : the multiple of the identity before the first pair
        """
        step, change, slope = turned
        if float(np.abs(step).max(initial=0.0)) > 0.0:
            self._take(step, change)
        if not self.order:
            return np.asarray(-first * slope)
        used = 2 * (max(self.order) + 1)
        products = self.passes.products(self.H, used, turned)
        new = self.order[-1]
        # Products of the newest pair with all pairs.
        self.table[2 * new, :used] = self.table[:used, 2 * new] = products[:, 0]
        self.table[2 * new + 1, :used] = self.table[:used, 2 * new + 1] = products[:, 1]
        table, with_slope = self.table, products[:, 2]
        # Skip a pair without curvature. The loss is convex, so only rounding gives one.
        if not table[2 * new, 2 * new + 1] > 1e-14 * np.sqrt(table[2 * new, 2 * new] * table[2 * new + 1, 2 * new + 1]):
            self.order.pop()
            if not self.order:
                return np.asarray(-first * slope)
        factor, of_slope = np.zeros(used), 1.0
        back: dict[int, float] = {}
        for slot in reversed(self.order):
            s, y = 2 * slot, 2 * slot + 1
            back[slot] = (np.sum(factor * table[:used, s]) + of_slope * with_slope[s]) / table[s, y]
            factor[y] -= back[slot]
        newest = 2 * self.order[-1]
        unit = table[newest, newest + 1] / table[newest + 1, newest + 1]
        factor *= unit
        of_slope *= unit
        for slot in self.order:
            s, y = 2 * slot, 2 * slot + 1
            forth = (np.sum(factor * table[:used, y]) + of_slope * with_slope[y]) / table[s, y]
            factor[s] += back[slot] - forth
        return self.passes.mix(self.H, -factor, -of_slope, slope)

    def _take(self, step: Floats, change: Floats) -> None:
        slot = len(self.order) if len(self.order) < self.pairs else self.order.pop(0)
        if slot in self.order:
            slot = next(free for free in range(self.pairs) if free not in self.order)
        self.H[2 * slot], self.H[2 * slot + 1] = step, change
        self.order.append(slot)
