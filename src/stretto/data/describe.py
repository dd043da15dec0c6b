"""Summary statistics of a data set: size, distribution over rows and columns, and outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.arrays import SLICE, Indices
from stretto.data.records.repeated_pairs import find_duplicates


@dataclass(frozen=True, slots=True)
class Skew:
    """How unevenly records are distributed over the rows or columns.

    Attributes
    ----------
    size : int
        Number of rows or columns.
    empty : int
        Number of those without a record.
    hottest : int
        The index with most records.
    hottest_share : float
        Its share of all records; a plan cannot cut inside it.
    gini : float
        Gini coefficient: 0 when all have the same number of records, towards 1 when few have nearly all.
    zipf : float
        Slope s of count ~ rank^-s over the ranks that have records; 0 is even, 1 is the classical Zipf law.
    """

    size: int
    empty: int
    hottest: int
    hottest_share: float
    gini: float
    zipf: float


@dataclass(frozen=True, slots=True)
class Description:
    """A summary of a data set, made by `Data.describe`.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    nnz : int
        Number of records.
    nbytes : int
        Bytes of the arrays.
    density : float
        Share of the matrix that has a record.
    mean : float
        Mean of the values.
    std : float
        Standard deviation of the values.
    min : float
        Smallest value.
    max : float
        Largest value.
    rows : Skew
        How records are distributed over the rows.
    cols : Skew
        How records are distributed over the columns.
    duplicates : int
        Records beyond the first of their pair.
    """

    shape: tuple[int, int]
    nnz: int
    nbytes: int
    density: float
    mean: float
    std: float
    min: float
    max: float
    rows: Skew
    cols: Skew
    duplicates: int

    def __str__(self) -> str:
        lines = [
            f"{self.shape[0]} x {self.shape[1]}, {self.nnz} records, density {self.density:.3g}",
            f"values {self.min:g} to {self.max:g}, mean {self.mean:.4g}, standard deviation {self.std:.4g}",
        ]
        for name, s in (("rows", self.rows), ("columns", self.cols)):
            lines.append(
                f"{name}: {s.empty} empty, hottest is {s.hottest} with {s.hottest_share:.2%} of all records, "
                f"Gini {s.gini:.2f}, Zipf exponent {s.zipf:.2f}"
            )
        if self.duplicates:
            lines.append(f"{self.duplicates} records repeat the pair of another")
        return "\n".join(lines)


def describe(
    rows: Indices, cols: Indices, values: NDArray[np.float32], shape: tuple[int, int], nbytes: int
) -> Description:
    """The summary of records, in one pass over each array; nbytes: bytes of all arrays of the data set."""
    n = len(values)
    cells = shape[0] * shape[1]
    mean, std = _moments(values)
    positions, pairs = find_duplicates(rows, cols, shape[1])
    return Description(
        shape=shape,
        nnz=n,
        nbytes=nbytes,
        density=n / cells if cells else 0.0,
        mean=mean,
        std=std,
        min=float(values.min()) if n else 0.0,
        max=float(values.max()) if n else 0.0,
        rows=skew(histogram(rows, shape[0])),
        cols=skew(histogram(cols, shape[1])),
        duplicates=len(positions) - len(np.unique(pairs)),
    )


def histogram(indices: Indices, size: int) -> NDArray[np.int64]:
    """Records per index, (size,); a slice at a time, because `bincount` widens what it is given."""
    counts = np.zeros(size, dtype=np.int64)
    step = max(SLICE, size)
    for lo in range(0, len(indices), step):
        counts += np.bincount(indices[lo : lo + step], minlength=size)
    return counts


def skew(counts: NDArray[np.int64]) -> Skew:
    """`Skew` of a histogram."""
    total, size = int(counts.sum()), len(counts)
    if not total:
        return Skew(size, size, 0, 0.0, 0.0, 0.0)
    hottest = int(np.argmax(counts))
    ordered = np.sort(counts)[::-1].astype(np.float64)
    empty = int(size - np.count_nonzero(counts))
    ranks = np.arange(1, size + 1)
    gini = 1.0 - 2.0 * float((ordered * (ranks - 0.5)).sum()) / (total * size)
    return Skew(size, empty, hottest, float(counts[hottest]) / total, max(gini, 0.0), _zipf(ordered))


def _zipf(ordered: NDArray[np.float64]) -> float:
    """Least squares in log-log over ranks spaced evenly in the logarithm, so that the long tail does not decide
    alone.
    """
    positive = ordered[ordered > 0]
    ranks = np.unique(np.geomspace(1, len(positive), num=min(len(positive), 200)).astype(np.int64))
    if len(ranks) < 2:
        return 0.0
    x, y = np.log(ranks), np.log(positive[ranks - 1])
    x = x - x.mean()
    return float(-(x * (y - y.mean())).sum() / (x * x).sum())


def _moments(values: NDArray[np.float32]) -> tuple[float, float]:
    if not len(values):
        return 0.0, 0.0
    mean = float(values.mean(dtype=np.float64))
    square = 0.0
    for lo in range(0, len(values), SLICE):
        part = values[lo : lo + SLICE].astype(np.float64) - mean
        square += float(part @ part)
    return mean, float(np.sqrt(square / len(values)))
