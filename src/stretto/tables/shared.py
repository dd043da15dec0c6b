"""Shared tables: one array of this process that workers read and write in place.

    x = w.table("factors")
    x.array                     [rows, cols] the table itself, no copy; pass it to compiled code

Within a clock nothing is cached, sent or checked. The rule is enforced at its end: `tick` waits until no worker is
further behind than the rule allows (st.BSP(): a barrier). Two workers that write the same number at the same
time may lose one of the two writes. So a run with shared tables promises convergence only (grade: statistical), as with
Hogwild!. Calls of `add` are safe against each other, unless the job leaves out the locks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.tables.job import WorkerApi

from .checks import Keys
from .handle import Handle, WorkerRunState
from .table import Table


class SharedHandle(Handle):
    """A handle on a shared array: reads copy from it, adds change it in place."""

    def __init__(
        self, client: WorkerApi, number: int, name: str, table: Table, state: WorkerRunState, copies: bool
    ) -> None:
        super().__init__(client, number, name, table, state, copies)
        self._whole: NDArray[Any]
        self._whole, self._access = client.shared(number)

    @property
    def array(self) -> NDArray[Any]:
        """The table itself: [rows, cols], or [rows] for width 1."""
        if self._state.over:
            raise self._ended("array")
        return self._whole.reshape(-1) if self._flat else self._whole

    def _read(self, keys: Keys, out: NDArray[Any]) -> None:
        self._access.read(self._whole, keys, out)

    def _ask(self, keys: Keys) -> None:
        pass

    def _add(self, keys: Keys, deltas: NDArray[Any]) -> None:
        self._access.add(self._whole, keys, deltas)

    def _read_at(self, rows: Keys, cols: Keys, out: NDArray[Any]) -> None:
        self._access.read_at(self._whole, rows, cols, out[:, 0])

    def _add_at(self, rows: Keys, cols: Keys, deltas: NDArray[Any]) -> None:
        self._access.add_at(self._whole, rows, cols, np.ascontiguousarray(deltas[:, 0]))

    def _announce(self, keys: Keys, clock: int) -> None:
        pass
