"""What rounding took away from changes that were sent as 16-bit floats, kept until it can go with a later change.

A row's leftover travels when the row is next changed and sent, not by itself: it would cost as much as a change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import cached_rows, pending_changes
from stretto.store.index import Index, longer

from .buffer import NO_LOCKS

_NOTHING = np.empty((0, 0), np.int32)


class Leftovers:
    """By key, rows [width] of what was lost."""

    def __init__(self, width: int, dtype: np.dtype[Any]) -> None:
        self._index = Index()
        self._rows: NDArray[Any] = np.zeros((self._index.capacity, width), dtype)

    def __len__(self) -> int:
        return self._index.count

    def add_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add what is left of these rows to out [n, width]; it also stays here."""
        lookup = self._index.lookup
        cached_rows.add_found.exact(lookup.keys, lookup.slots, self._rows, _NOTHING, keys, out, _NOTHING)

    def move_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add what is left of these rows to out [n, width], once for each key; nothing is left of them here."""
        pending_changes.absorb.exact(self._index.find(keys), self._rows, out)

    def keep(self, keys: Keys, lost: NDArray[Any]) -> None:
        """Add lost [n, width] to what is left of these rows."""
        places = self._index.place(keys)
        if self._index.capacity > len(self._rows):
            self._rows = longer(self._rows, self._index.capacity)
        pending_changes.put_back.exact(places, self._index.keys, self._rows, NO_LOCKS, lost)

    def arrays(self) -> tuple[Keys, NDArray[Any]]:
        """Keys [n], ascending, and rows [n, width] of all that is left, as copies."""
        keys, rows = self._index.keys[: len(self)], self._rows[: len(self)]
        order = np.argsort(keys)
        order = order[rows[order].any(axis=1)]
        return keys[order], rows[order]
