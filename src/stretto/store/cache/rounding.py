"""Rounding residuals of changes sent as 16-bit floats, kept until a later change carries them.

A residual is sent when its row is next changed and sent, not by itself: that would cost as much as a change.
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


class RoundingResiduals:
    """Rounding residuals [width] by key."""

    def __init__(self, width: int, dtype: np.dtype[Any]) -> None:
        self._index = Index()
        self._rows: NDArray[Any] = np.zeros((self._index.capacity, width), dtype)

    def __len__(self) -> int:
        return self._index.count

    def add_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add the residuals of these rows to out [n, width], and keep them."""
        lookup = self._index.lookup
        cached_rows.add_found.exact(lookup.keys, lookup.slots, self._rows, _NOTHING, keys, out, _NOTHING)

    def move_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add the residuals of these rows to out [n, width], once for each key, and remove them."""
        pending_changes.absorb.exact(self._index.find(keys), self._rows, out)

    def keep(self, keys: Keys, lost: NDArray[Any]) -> None:
        """Add lost [n, width] to the residuals of these rows."""
        places = self._index.place(keys)
        if self._index.capacity > len(self._rows):
            self._rows = longer(self._rows, self._index.capacity)
        pending_changes.put_back.exact(places, self._index.keys, self._rows, NO_LOCKS, lost)

    def arrays(self) -> tuple[Keys, NDArray[Any]]:
        """Keys [n], ascending, and rows [n, width] of all residuals, as copies."""
        keys, rows = self._index.keys[: len(self)], self._rows[: len(self)]
        order = np.argsort(keys)
        order = order[rows[order].any(axis=1)]
        return keys[order], rows[order]
