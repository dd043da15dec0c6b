"""What the function of a unit gets for a replicated state: its own copy, exchanged with the others between clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.consistency.replication import Replication
from stretto.store.replica import Replica

from .handle import Handle


class ReplicaHandle:
    """A part's copy of a replicated state.

    Attributes
    ----------
    array : array [rows] or [rows, cols]
        The copy. Read and write it in place; assigning to it writes its numbers.
    """

    def __init__(
        self,
        table: Handle,
        rules: Replication,
        part: int,
        parts: int,
        kept: dict[str, Any],
        seed: int = 0,
        now: Callable[[], float | None] | None = None,
    ) -> None:
        assert table.rows is not None
        self._table, self._kept = table, kept
        self._replica = Replica(rules, table.rows, table.cols, table.dtype, parts, seed * 1_000_003 + part)
        values = self._replica.values
        self._array: NDArray[Any] = values.reshape(-1) if table.cols == 1 else values
        self.every = rules.every
        self._every = np.arange(table.rows)
        saved = {name: kept.pop(self._name(name), None) for name in self._replica.saved()}
        if saved["rows"] is not None:
            self._replica.restore(saved)
        self._now = now if rules.timed else None
        began = self._seconds()
        if began is not None:
            self._replica.begin(began)

    @property
    def array(self) -> NDArray[Any]:
        """The copy."""
        return self._array

    @array.setter
    def array(self, values: ArrayLike) -> None:
        # `v.array = v.array - step` must not put another array in place of the copy, which would never be exchanged.
        if values is not self._array:
            self._array[...] = values

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._array)

    def read(self, keys: ArrayLike | None = None) -> Any:
        """Rows of the copy: [n] or [n, cols]; None for all.

        Parameters
        ----------
        keys : array_like of int or None, default None
            Numbers of the rows.
        """
        return self._array.copy() if keys is None else self._array[self._checked(keys)]

    def add(self, keys: ArrayLike, deltas: ArrayLike) -> None:
        """Add to rows of the copy; every occurrence of a key counts.

        Parameters
        ----------
        keys : array_like of int
            Numbers of the rows.
        deltas : array_like [n] or [n, cols]
            What is added.
        """
        np.add.at(self._array, self._checked(keys), np.asarray(deltas, self._array.dtype))

    def receive(self) -> None:
        """Take what the others have sent; waits until that is as fresh as the rule of the unit demands."""
        self._replica.receive(self._table.read(self._every).reshape(self._replica.values.shape))

    def send(self, *, everything: bool = False) -> None:
        """Send changes since the last exchange, as far as the filter lets them. everything: without the filter."""
        keys, changes = self._replica.send(everything=everything, now=self._seconds())
        if len(keys):
            self._table.add(keys, changes if self._table.cols > 1 else changes.reshape(-1))

    def keep(self) -> None:
        """Keep what was held back for the next stage of the unit."""
        for name, array in self._replica.saved().items():
            self._kept[self._name(name)] = array

    def _seconds(self) -> float | None:
        """The time, where a quota needs it."""
        return None if self._now is None else self._now()

    def _checked(self, keys: ArrayLike) -> NDArray[Any]:
        """Keys that are rows; negative ones do not count from the end, as in tables."""
        found = np.asarray(keys)
        if found.size and not 0 <= int(found.min()) <= int(found.max()) < self.rows:
            raise IndexError(
                f"rows {int(found.min())} to {int(found.max())} of a replicated state with rows 0 to {self.rows - 1}"
            )
        return found

    def _name(self, what: str) -> str:
        return f"{what} of replica {self._table.name}"
