"""Which nodes hold copies of the rows of a shard, and which changes they have not got (`kernels.tables.shard_rows`)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stretto.store.index import longer
from stretto.store.touched import TouchedRows


class RowHolders:
    """Columns by slot, as in the kernels, and the slots that were ever held.

    Attributes
    ----------
    by_node : array [cap, nodes] uint8
        Whether each node holds the row, and whether it changed since.
    standing : array [cap]
        How many holders are up to date.
    fresh : array [cap] uint8
        Whether the row changed since it last got a version.
    listed : array [cap] uint8
        Whether the row is in `dirty`.
    dirty : array [cap]
        Slots that changed since they were sent.
    """

    def __init__(self, capacity: int, nodes: int) -> None:
        self.by_node: NDArray[np.uint8] = np.zeros((capacity, nodes), dtype=np.uint8)
        self.standing: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self.fresh: NDArray[np.uint8] = np.zeros(capacity, dtype=np.uint8)
        self.listed: NDArray[np.uint8] = np.zeros(capacity, dtype=np.uint8)
        self.dirty: NDArray[np.int64] = np.empty(capacity, dtype=np.int64)
        self._touched: TouchedRows | None = None

    @classmethod
    def kept_in(cls, kept: dict[str, Any], capacity: int, nodes: int) -> Self:
        """Those of an earlier run over the same rows, with no holders; new ones where they would differ.

        Not for rows with versions: `fresh` is not reset.
        """
        found: Self | None = kept.get("holders")
        if found is None or found.by_node.shape != (capacity, nodes):
            found = kept["holders"] = cls(capacity, nodes)
            found._touched = TouchedRows(capacity)
        else:
            assert found._touched is not None
            found._touched.reset((found.by_node, 0), (found.standing, 0), (found.listed, 0))
        return found

    def held(self, slots: NDArray[np.int64]) -> None:
        """A node will hold these rows. No other rows get holders or are listed."""
        if self._touched is not None:
            self._touched.mark(slots)

    def resize(self, capacity: int) -> None:
        """Grow to this capacity."""
        for name in ("by_node", "standing", "fresh", "listed", "dirty"):
            setattr(self, name, longer(getattr(self, name), capacity))
