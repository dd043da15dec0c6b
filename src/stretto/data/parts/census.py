"""`PartCensus`: counts of rows, columns and records of one part. It grows with rows and columns, never with records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.part_range import RECORDS, PartRange
from stretto.data.parts.reading import PartReader, TextCodes
from stretto.data.reading.axis import IdCounts
from stretto.data.reading.columns import GrowingArray, Interner
from stretto.data.records.ids import IdMap


@dataclass(frozen=True, slots=True, eq=False)
class AxisCensus:
    """How many records each row (or column) of a part has.

    Parameters
    ----------
    ids : IdMap or None
        The ids that `counts` counts; None for rows that have none but a position.
    positions : array of int64 or None
        The positions that `counts` counts, rising, where there are no ids.
    counts : array of int64
        Records of each.
    size : int or None
        How many positions there are, where that is known before all parts have been read.
    numbered : {"file", "part", ""}
        Positions count from 0 in each file, in each part, or in the whole data set.
    """

    ids: IdMap | None
    positions: NDArray[np.int64] | None
    counts: NDArray[np.int64]
    size: int | None = None
    numbered: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PartCensus:
    """What reading a part once found; a node sends it to the driver.

    Parameters
    ----------
    part : PartRange
        The part.
    records : int
        How many records it has.
    digest : int
        Checksum of the records in their order.
    rows, cols : AxisCensus
        Records of each row and column.
    labels : array of float64 or None
        Labels of its rows (svmlight).
    low, high : float
        The smallest and the largest value; inf and -inf where there is none.
    left_out : int
        Bad lines that were left out.
    problem : str
        The first of them.
    """

    part: PartRange
    records: int
    digest: int
    rows: AxisCensus
    cols: AxisCensus
    labels: NDArray[np.float64] | None
    low: float
    high: float
    left_out: int
    problem: str


def take_census(part: PartRange) -> PartCensus:
    """`DataPart.census`."""
    reader = PartReader(part, RECORDS)
    rows, cols, labels = IdCounts(), IdCounts(), GrowingArray(np.float64, 16)
    low, high = np.inf, -np.inf
    for r, c, values, y in reader:
        rows.add(r)
        cols.add(c)
        labels.extend(y)
        low, high = min(low, float(values.min(initial=np.inf))), max(high, float(values.max(initial=-np.inf)))
    rows.close()
    cols.close()
    y = labels.done()
    on_rows, on_cols = _axes(part, reader, rows, cols, len(y))
    bad = reader.report.problems
    problem = min(bad, key=lambda p: p.line) if bad else None
    labelled = part.layout.format == "svmlight" or (reader.loaded is not None and reader.loaded.labels is not None)
    return PartCensus(
        part, reader.records, reader.digest, on_rows, on_cols, y if labelled else None, low, high,
        reader.report.count, f"line {problem.line}: {problem.text}" if problem else "",
    )  # fmt: skip


def _axes(
    part: PartRange, reader: PartReader, rows: IdCounts, cols: IdCounts, n_rows: int
) -> tuple[AxisCensus, AxisCensus]:
    sized = part.layout.settled.sized
    if reader.loaded is not None:
        shape = reader.loaded.shape
        return (
            _stored(rows, reader.loaded.row_ids, shape[0], "file"),
            _stored(cols, reader.loaded.col_ids, shape[1], ""),
        )
    if sized is not None:
        return _positions(rows, sized.n_rows, "file"), _positions(cols, sized.n_cols)
    if part.layout.format in {"svmlight", "lda-c"}:
        return _positions(rows, n_rows, "part"), _positions(cols)
    return _ids(part, rows, reader.row_names), _ids(part, cols, reader.col_names)


def _positions(counted: IdCounts, size: int | None = None, numbered: str = "") -> AxisCensus:
    return AxisCensus(None, counted.known, counted.counts, size, numbered)


def _stored(counted: IdCounts, ids: IdMap | None, size: int, numbered: str) -> AxisCensus:
    if ids is None:
        return _positions(counted, size, numbered)
    return AxisCensus(ids, None, counted.spread(0, size))


def _ids(part: PartRange, counted: IdCounts, names: Interner | TextCodes | None) -> AxisCensus:
    if names is not None:
        rank, ids = names.ranks(part.path)
        counts = np.empty(len(rank), dtype=np.int64)
        counts[rank] = counted.spread(0, len(rank))  # a bad line may hold the only mention of an id
        return AxisCensus(ids, None, counts)
    if part.options.raw_ids:
        return _positions(counted)
    return AxisCensus(IdMap(counted.known), None, counted.counts)
