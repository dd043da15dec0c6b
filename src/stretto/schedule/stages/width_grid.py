"""`WidthGrid`: which widths a search tries. Beyond one node they are whole nodes.

The first worker on another node brings the network, and a part of a node costs the same messages as all of it.

>>> grid = WidthGrid(widest=96, growth=2.0, node=12)
>>> grid.start, grid.step(12, up=True), grid.step(24, up=False), grid.step(9, up=True)
(12, 24, 12, 12)
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class WidthGrid:
    """Widths up to `widest`, each `growth` times the one before. node: workers of a node."""

    widest: int
    growth: float
    node: int

    @property
    def start(self) -> int:
        """The geometric middle of 1 and all workers."""
        return self.near(max(1, round(math.sqrt(self.widest))))

    def middle(self, width: int, other: int) -> int:
        """The geometric middle of two widths."""
        return self.near(round(math.sqrt(width * other)))

    def step(self, width: int, *, up: bool) -> int | None:
        """The next width in a direction, in which one node is not skipped; None beyond the ends."""
        node = self.node
        if up and width < self.widest:
            wanted = self.near(max(width + 1, round(width * self.growth)))
            least = width + 1 if width < node else (width // node + 1) * node
            return min(self.widest, max(least, wanted), node if width < node else self.widest)
        if not up and width > 1:
            wanted = self.near(max(1, round(width / self.growth)))
            most = width - 1 if width <= node else (width - 1) // node * node
            return max(1, min(most, wanted), node if width > node else 1)
        return None

    def near(self, width: int) -> int:
        """The nearest width that fills its nodes. Within one node all widths do."""
        if self.node >= self.widest or width < self.node / math.sqrt(self.growth):
            return width
        return min(self.widest, max(1, round(width / self.node)) * self.node)
