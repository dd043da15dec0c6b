"""Compute statistics of a data set in one pass: counts of rows and columns, mean, standard deviation, digest.

    seen = survey(source, crew)

Sums are computed per grain and added exactly, so they do not depend on threads, chunks, or which node reads which part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.kernels.factorization import grid as kernels
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.rotation import independent

from .crew import Crew
from .parted import PartedSource, by_shares, in_parts, whole_grains
from .source import GRAIN, Chunk, EntrySource
from .step import make_step

_PARTS = 16


@dataclass(frozen=True, eq=False)
class Survey:
    """Statistics of a data set."""

    shape: tuple[int, int]
    entries: int
    row_counts: NDArray[np.int64]  # [m]
    col_counts: NDArray[np.int64]  # [n]
    mean: float
    std: float
    farthest: float  # largest |value − mean|
    digest: str  # of the set of entries, independent of their order, and of mean and standard deviation

    @property
    def empty(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows and columns without an entry."""
        return self.row_counts == 0, self.col_counts == 0


@dataclass(eq=False)
class _Sums:
    """Running sums over chunks: counts, sums and squares of every grain, digest, smallest and largest value."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    sums: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    digest: int = 0
    entries: int = 0
    low: float = math.inf
    high: float = -math.inf

    def add(self, chunk: Chunk, shift: float, crew: Crew) -> None:
        rows, cols, values = chunk
        m, n = len(self.rows), len(self.cols)
        self.entries += len(values)
        # Every part counts into its own arrays; with few entries for each row that would cost more than it saves.
        bounds = grains(len(values), max(1, len(values) // (4 * (m + n))))
        count = len(bounds) - 1
        per_row, per_col = np.zeros((count, m), np.int32), np.zeros((count, n), np.int32)
        about = np.zeros((-(-len(values) // GRAIN), 4))
        codes = np.zeros(count, np.uint64)
        args = (bounds, rows, cols, values, shift, GRAIN, per_row, per_col, about, codes)
        crew.run(make_step("survey", kernels.survey_worker, independent(count), np.diff(bounds), *args), "exact")
        self.rows += per_row.sum(axis=0, dtype=np.int64)
        self.cols += per_col.sum(axis=0, dtype=np.int64)
        self.sums += about[:, 0].tolist()
        self.squares += about[:, 1].tolist()
        self.low = min(self.low, float(about[:, 2].min(initial=self.low)))
        self.high = max(self.high, float(about[:, 3].max(initial=self.high)))
        self.digest += sum(codes.tolist())

    def join(self, other: _Sums) -> None:
        self.rows += other.rows
        self.cols += other.cols
        self.sums += other.sums
        self.squares += other.squares
        self.digest += other.digest
        self.entries += other.entries
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


def survey(source: EntrySource, crew: Crew) -> Survey:
    """Count rows and columns and compute mean, standard deviation and digest of the values, in one pass."""
    m, n = source.shape
    found = _Sums(np.zeros(m, np.int64), np.zeros(n, np.int64))
    shift = 0.0
    parts = in_parts(source)
    if parts is not None and (parts.before is not None or parts.readers is not None):
        firsts = by_shares(parts, crew, _first_value)
        shift = min((one for one in firsts if one is not None), default=(0, 0.0))[1]
        for one in by_shares(parts, crew, partial(_sum_up, shift)):
            found.join(one)
    else:
        for chunk in source.chunks():
            if not found.entries and len(chunk[2]):
                shift = float(chunk[2][0])
            found.add(chunk, shift, crew)
    if not found.entries:
        raise DataError("there are no ratings to learn from; check the file or the filter that made them")
    entries = found.entries
    mean = math.fsum(found.sums) / entries
    if not math.isfinite(mean):
        raise DataError("a rating is NaN or infinite; drop it or give it a value before fitting")
    # Sums round, and the rounding depends on the order of the entries. In single precision that rarely shows; where it
    # does, the digest differs too and it is another plan.
    std = float(np.float32(math.sqrt(max(0.0, math.fsum(found.squares) / entries - mean * mean))))
    mean = float(np.float32(shift + mean))
    code = f"{m}x{n}:{entries}:{found.digest % 2**64:016x}:{mean.hex()}:{std.hex()}"
    farthest = max(found.high - mean, mean - found.low)
    return Survey((m, n), entries, found.rows, found.cols, mean, std, farthest, code)


def _first_value(source: PartedSource, parts: Sequence[int], crew: Crew) -> tuple[int, float] | None:
    """The first part of a share that has entries, and the value of its first one."""
    values = ((number, chunk[2]) for number in sorted(parts) for chunk in source.part(number))
    return next(((number, float(some[0])) for number, some in values if len(some)), None)


def _sum_up(shift: float, source: PartedSource, parts: Sequence[int], crew: Crew) -> _Sums:
    m, n = source.shape
    found = _Sums(np.zeros(m, np.int64), np.zeros(n, np.int64))
    # If only one node can read a part, its grains are separate: sums may round differently from those of the whole.
    apart = (chunk for number in parts for chunk in source.part(number))
    for chunk in whole_grains(source, parts) if source.readers is None else apart:
        found.add(chunk, shift, crew)
    return found


def grains(n: int, at_most: int) -> Ints:
    """Bounds that divide n entries into parts of whole grains: `at_most`, and never more than 16."""
    grain_count = -(-n // GRAIN)
    count = max(1, min(_PARTS, at_most, grain_count))
    return np.minimum(np.linspace(0, grain_count, count + 1).astype(np.int64) * GRAIN, n)
