"""`Batches`: the samples of a fit in mini-batches, by samples and by features.

The samples are put into a random order once and cut into batches; epochs visit the batches in other orders. Laying out
takes time and memory in proportion to the non-zeros, and nothing in it depends on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.factorization_machine import batches as kernels
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import equal_work, make_step
from stretto.schedule.orders.rotation import independent

Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_PARTS = 16  # of a pass
_LEAST = 1 << 14  # entries of a part
_MARKS = 8  # parts of a pass that needs memory for every feature


def run_parts(crew: Crew, name: str, kernel: Any, profile: str, bounds: Ints, work: int, *args: Any) -> None:
    """Run one pass of a kernel over independent parts of its items. work: multiplications of all parts."""
    visits = len(bounds) - 1
    step = make_step(name, kernel, independent(visits), np.diff(bounds), bounds, *args)
    crew.run_pass(step, profile, work)


@dataclass(frozen=True, eq=False)
class SampleRows:
    """Rows of a sparse matrix in a new order, as float32."""

    starts: Ints  # [n + 1]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]

    @property
    def bounds(self) -> Ints:
        """First row of each part: parts of about the same number of entries."""
        return equal_work(np.diff(self.starts) + 4, _PARTS, _LEAST)

    @staticmethod
    def of(csr: tuple[Array, ...], order: Ints, factor: Floats, crew: Crew, profile: str) -> SampleRows:
        """The rows `order` of a CSR matrix (indptr, indices, values), its columns multiplied by factor [p]."""
        indptr, indices, values = np.asarray(csr[0], np.int64), csr[1], csr[2]
        sizes = (indptr[1:] - indptr[:-1])[order]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        made = SampleRows(starts, np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32))
        run_parts(
            crew, "gather", kernels.gather_worker, profile, made.bounds, 2 * int(starts[-1]), order, indptr, indices,
            values, factor, starts, made.columns, made.values,
        )  # fmt: skip
        return made


@dataclass(frozen=True, eq=False)
class Batches:
    """Mini-batches of `rows`; see `kernels/factorization_machine/batches.py`."""

    rows: SampleRows
    first_row: Ints  # [B + 1]
    first_feature: Ints  # [B + 1]
    features: NDArray[np.int32]  # of each batch, one after another
    entries: Ints  # [features + 1] where the entries of each begin
    entry_row: NDArray[np.int32]
    entry_value: NDArray[np.float32]

    @staticmethod
    def of(rows: SampleRows, size: int, p: int, crew: Crew, profile: str) -> Batches:
        """Batches of `size` samples. p: number of features."""
        n, entries = len(rows.starts) - 1, len(rows.columns)
        count = max(1, -(-n // size))
        first_row = np.minimum(np.arange(count + 1) * size, n).astype(np.int64)
        bounds = equal_work(np.diff(rows.starts[first_row]) + 1, max(1, min(_MARKS, entries // max(1, p))), _LEAST)
        mark = np.full((len(bounds) - 1, p), -1, np.int32)
        found = np.zeros(count, np.int64)
        work = 4 * entries
        run_parts(
            crew,
            "count",
            kernels.count_worker,
            profile,
            bounds,
            work,
            first_row,
            rows.starts,
            rows.columns,
            mark,
            found,
        )
        first_feature = np.concatenate([[0], np.cumsum(found)]).astype(np.int64)
        total = int(first_feature[-1])
        made = Batches(
            rows, first_row, first_feature, np.empty(total, np.int32), np.zeros(total + 1, np.int64),
            np.empty(entries, np.int32), np.empty(entries, np.float32),
        )  # fmt: skip
        run_parts(
            crew, "turn", kernels.turn_worker, profile, bounds, work, first_row, rows.starts, rows.columns, rows.values,
            first_feature, made.features, made.entries, made.entry_row, made.entry_value, mark,
        )  # fmt: skip
        return made

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Everything, as `epoch_worker` takes it: four arrays by samples, five by features."""
        rows = self.rows
        return (
            self.first_row, rows.starts, rows.columns, rows.values, self.first_feature, self.features, self.entries,
            self.entry_row, self.entry_value,
        )  # fmt: skip

    def after(self, batch: int) -> SampleRows:
        """The samples of this batch and those after it."""
        rows = self.rows
        return SampleRows(rows.starts[self.first_row[batch] :], rows.columns, rows.values)

    @property
    def largest(self) -> int:
        """Samples of the largest batch."""
        return int(np.diff(self.first_row).max(initial=1))

    def __len__(self) -> int:
        return len(self.first_row) - 1
