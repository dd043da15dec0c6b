"""`VisitForm`: how compiled code iterates over a visit.

entries     records laid out visit by visit:        for t in range(ptr[g], ptr[g + 1])
range       records in their own order:             for t in range(lo[g], hi[g])
grid        nested ranges:                          for i in range(lo[g, 0], hi[g, 0]): for j in …
skewed      a grid in transformed coordinates:      for y0 …: for y1 …: i = …; j = …, if inside the grid
picked      iterations listed by their numbers:     for q in range(ptr[g], ptr[g + 1]): t = picked[q]; i = …
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VisitForm:
    """How a visit iterates."""

    kind: str  # 'entries', 'range', 'grid', 'skewed' or 'picked', see above
    steps: tuple[int, ...] = ()  # of the dimensions of a grid, skewed or not
    inverse: tuple[tuple[int, ...], ...] = ()  # matrix of the inverse transformation
    dense: bool = False  # whether records are the elements of an array: their positions follow from the indices
    pair: tuple[int, ...] = (0, 1)  # the dimensions that are transformed
