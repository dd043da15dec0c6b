"""One numbering of rows and columns for all parts: `merge` builds it on the driver, `numbered` applies it on a node.

Ids have the numbers that `scan` gives them in one file: their ranks in sorted order, whichever part mentions them. Rows
without ids follow one another, those of the second file after those of the first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.parts.census import AxisCensus, PartCensus
from stretto.data.parts.part_range import Entries, PartRange
from stretto.data.parts.reading import PartReader, TextCodes
from stretto.data.reading.axis import IdIndex
from stretto.data.reading.columns import Interner
from stretto.data.reading.headers import check_extent
from stretto.data.reading.parsing import starts_at_zero
from stretto.data.reading.report import BadLinesWarning
from stretto.data.records.ids import IdMap, text_array
from stretto.errors import DataError, FormatError

_PLAN_AGAIN = "plan the parts again with open_parts, take their censuses and merge them"


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Shape, ids and counts of a data set, and where each part belongs in it. It grows with rows and columns.

    Parameters
    ----------
    shape : tuple of two ints
        Rows and columns.
    nnz : int
        Records.
    row_counts, col_counts : array of int64 [rows], [columns]
        Records of each.
    row_ids, col_ids : IdMap or None
        Their ids, where they have any.
    labels : array of float64 [rows] or None
        Labels of the rows (svmlight).
    firsts : array of int64 [parts + 1]
        Number of each part's first record among all; the last is `nnz`.
    row_offsets : array of int64 [parts]
        What is added to a part's rows where they have no ids.
    first_col : int
        The column that is written as 0 or, in most svmlight files, as 1.
    low, high : float
        The smallest and the largest value.
    left_out : int
        Bad lines that were left out.
    digests : tuple of int [parts]
        Checksums of the parts' records.
    plan : str
        Fingerprint of the plan whose parts were counted.
    """

    shape: tuple[int, int]
    nnz: int
    row_counts: NDArray[np.int64]
    col_counts: NDArray[np.int64]
    row_ids: IdMap | None
    col_ids: IdMap | None
    labels: NDArray[np.float64] | None
    firsts: NDArray[np.int64]
    row_offsets: NDArray[np.int64]
    first_col: int
    low: float
    high: float
    left_out: int
    digests: tuple[int, ...]
    plan: str


def merge(censuses: Iterable[PartCensus]) -> Numbering:
    """The numbering of a data set, from the censuses of all its parts in any order."""
    taken = _complete(list(censuses))
    part = taken[0].part
    where = part.path if taken[-1].part.file == 0 else f"{part.path} and {taken[-1].part.file} more files"
    _refuse_broken_promises(taken)
    left_out = sum(one.left_out for one in taken)
    if left_out and part.on_error == "skip":
        first = next(one for one in taken if one.left_out)
        lines = "1 line was" if left_out == 1 else f"{left_out} lines were"
        warnings.warn(
            f"{where}: {lines} left out; the first is in {first.part.path}, {first.problem}", BadLinesWarning,
            stacklevel=2,
        )  # fmt: skip
    firsts = np.concatenate(([0], np.cumsum([one.records for one in taken])))
    if not firsts[-1]:
        raise FormatError(where, None, "there are no records", "check how the data were made")
    row_counts, row_ids, row_offsets, _ = _united(taken, "rows", where)
    col_counts, col_ids, _, first_col = _united(taken, "columns", where)
    return Numbering(
        (len(row_counts), len(col_counts)), int(firsts[-1]), row_counts, col_counts, row_ids, col_ids,
        _labels(taken, len(row_counts), where), firsts, row_offsets, first_col,
        min(one.low for one in taken), max(one.high for one in taken), left_out,
        tuple(one.digest for one in taken), part.plan,
    )  # fmt: skip


def _complete(censuses: list[PartCensus]) -> list[PartCensus]:
    """The censuses in the order of the parts; refused unless each part of one plan is present once."""
    taken = sorted(censuses, key=lambda one: one.part.number)
    if not taken:
        raise DataError("merge was given no census; take one of every part: merge([p.census() for p in parts])")
    if len({one.part.plan for one in taken}) > 1:
        raise DataError("the censuses are of different plans; take those of the parts of one call of parts()")
    numbers = [one.part.number for one in taken]
    if numbers != list(range(taken[0].part.parts)):
        missing = sorted(set(range(taken[0].part.parts)) - set(numbers))
        what = f"that of part {missing[0]} is missing" if missing else "one part was counted twice"
        raise DataError(f"the plan has {taken[0].part.parts} parts: {what}; give one census of each")
    return taken


def _refuse_broken_promises(taken: Sequence[PartCensus]) -> None:
    """Raise if a file's parts together have fewer entries than its header states."""
    for file in range(taken[-1].part.file + 1):
        own = [one for one in taken if one.part.file == file]
        sized = own[0].part.layout.settled.sized
        if sized is None or own[0].part.layout.loaded:
            continue
        found = sum(one.records + one.left_out for one in own)  # bad lines were entries, too
        if found != sized.entries:
            problem = f"the header promises {sized.entries} entries, the file has {found}"
            if own[0].part.on_error == "raise":
                raise FormatError(own[0].part.path, None, problem, "the file may be incomplete")
            warnings.warn(f"{own[0].part.path}: {problem}", BadLinesWarning, stacklevel=3)


def _united(
    taken: Sequence[PartCensus], what: str, where: str
) -> tuple[NDArray[np.int64], IdMap | None, NDArray[np.int64], int]:
    """Counts, ids, offset of each part's positions, and the first position, of one axis."""
    axes = [one.rows if what == "rows" else one.cols for one in taken]
    with_ids = [k for k, axis in enumerate(axes) if axis.ids is not None]
    offsets = np.zeros(len(taken), dtype=np.int64)
    if not with_ids:
        counts, first = _stacked(taken, axes, offsets, what, where)
        return counts, None, offsets, first
    if len(with_ids) < len(axes):
        other = next(k for k in range(len(axes)) if k not in with_ids)
        raise DataError(
            f"{taken[other].part.path}: its {what} have no ids, those of {taken[with_ids[0]].part.path} have; write "
            "all of them with ids, or none"
        )
    counts, ids = _by_ids(taken, axes, what)
    return counts, ids, offsets, 0


def _by_ids(taken: Sequence[PartCensus], axes: Sequence[AxisCensus], what: str) -> tuple[NDArray[np.int64], IdMap]:
    some = [(k, axis.ids) for k, axis in enumerate(axes) if axis.ids is not None and len(axis.ids)]
    if len(some) == 1:
        k, ids = some[0]
        return axes[k].counts, ids
    for k, ids in some[1:]:
        if ids.is_text != some[0][1].is_text:
            first, second = taken[some[0][0]].part.path, taken[k].part.path
            kinds = ("text", "integers") if ids.is_text else ("integers", "text")
            raise DataError(f"{second}: its {what} have {kinds[0]} for ids, those of {first} {kinds[1]}; convert one")
    united = _union([ids for _, ids in some])
    counts = np.zeros(len(united), dtype=np.int64)
    for k, ids in some:
        counts[united.encode(ids.ids)] += axes[k].counts
    return counts, united


def _union(maps: Sequence[IdMap]) -> IdMap:
    if maps[0].is_text:  # Python sorts characters as `Interner` sorts their bytes, several times faster than NumPy
        return IdMap(text_array(sorted(set().union(*(ids.ids.tolist() for ids in maps)))))
    known = np.empty(0, dtype=np.int64)
    for ids in maps:
        known = np.union1d(known, ids.ids)
    return IdMap(known)


def _stacked(
    taken: Sequence[PartCensus], axes: Sequence[AxisCensus], offsets: NDArray[np.int64], what: str, where: str
) -> tuple[NDArray[np.int64], int]:
    """Counts by position, one file's or part's rows after the other's; fills in `offsets`."""
    first, size = 0, 0
    part = taken[0].part
    if axes[0].numbered:
        for k, axis in enumerate(axes):
            alone = axis.numbered == "part" or k == 0 or taken[k].part.file != taken[k - 1].part.file
            offsets[k] = size if alone else offsets[k - 1]
            size += (axis.size or 0) if alone else 0
    elif axes[0].size is not None:
        size = axes[0].size
        other = next((k for k, axis in enumerate(axes) if axis.size != size), None)
        if other is not None:
            raise DataError(
                f"{taken[other].part.path}: it has {axes[other].size} {what}, {part.path} has {size}; files of one "
                f"data set have the same {what}"
            )
    else:
        first, size = _open_ended(taken, axes, what, where)
    counts = np.zeros(size, dtype=np.int64)
    for axis, offset in zip(axes, offsets.tolist(), strict=True):
        assert axis.positions is not None
        counts[axis.positions + (offset - first)] += axis.counts
    return counts, first


def _open_ended(taken: Sequence[PartCensus], axes: Sequence[AxisCensus], what: str, where: str) -> tuple[int, int]:
    """First position and size of an axis whose size no file states."""
    part = taken[0].part
    ends = [(int(a.positions[0]), int(a.positions[-1])) for a in axes if a.positions is not None and len(a.positions)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    raw = part.layout.format not in {"svmlight", "lda-c"}
    if raw and low < 0:
        raise DataError(f"{where}: the id {low} is negative, so it is no position; leave raw_ids= out")
    first = 0
    if not raw:
        first = 0 if starts_at_zero(np.array([low]), part.layout.format, part.options) else 1
    sizes = {one.part.file: one.part.state.size for one in taken}
    known = None if None in sizes.values() else sum(size or 0 for size in sizes.values())
    claim = "with raw_ids=True the largest id makes" if raw else "the largest index makes"
    packed = any(one.part.kind == "whole" for one in taken)
    check_extent(where, high + 1 - first, what, claim, known, packed)
    return first, high + 1 - first


def _labels(taken: Sequence[PartCensus], n_rows: int, where: str) -> NDArray[np.float64] | None:
    if any(one.labels is None for one in taken):
        return None
    labels = np.concatenate([one.labels for one in taken if one.labels is not None])
    if len(labels) != n_rows:
        raise DataError(f"{where}: {len(labels)} labels for {n_rows} rows; a row with an id has one label, in one file")
    return labels


class _TextIndex:
    """Maps codes of one reading to ranks of their names."""

    def __init__(self, part: PartRange, names: Interner | TextCodes, ids: IdMap) -> None:
        self.part, self.names, self.ids = part, names, ids
        self.rank = np.empty(0, dtype=np.int32)

    def __call__(self, codes: NDArray[Any]) -> NDArray[Any]:
        if len(self.names) > len(self.rank):
            fresh = self.ids.encode(text_array(self.names.texts(len(self.rank), self.part.path)), "mark")
            if fresh.min() < 0:
                raise _changed(self.part, "it holds ids that its census did not count")
            self.rank = np.concatenate((self.rank, fresh))
        return np.asarray(self.rank[codes])


def _index(reader: PartReader, numbering: Numbering, rows: bool) -> Callable[[NDArray[Any]], NDArray[Any]]:
    part, data = reader.part, reader.loaded
    ids = numbering.row_ids if rows else numbering.col_ids
    names = reader.row_names if rows else reader.col_names
    size = numbering.shape[0 if rows else 1]
    if ids is None:
        first = -int(numbering.row_offsets[part.number]) if rows else numbering.first_col
        return IdIndex(part.path, size, None, None, first)
    if names is not None:
        return _TextIndex(part, names, ids)
    if data is not None:
        own = data.row_ids if rows else data.col_ids
        rank = np.empty(0, np.int32) if own is None else ids.encode(own.ids, "mark")
        return IdIndex(part.path, len(rank), None, rank, 0)
    return IdIndex(part.path, size, ids, None, 0)


def numbered(part: PartRange, numbering: Numbering, chunk: int) -> Iterator[Entries]:
    """`DataPart.entries`."""
    if numbering.plan != part.plan:
        raise DataError(f"{part}: the numbering is of another plan; {_PLAN_AGAIN}")
    reader = PartReader(part, chunk)
    index: list[Callable[[NDArray[Any]], NDArray[Any]]] = []
    for rows, cols, values, _ in reader:
        index = index or [_index(reader, numbering, rows=True), _index(reader, numbering, rows=False)]
        for lo in range(0, len(values), chunk):
            at = slice(lo, lo + chunk)
            yield index[0](rows[at]), index[1](cols[at]), values[at].copy()
    counted = int(numbering.firsts[part.number + 1] - numbering.firsts[part.number])
    if reader.records != counted:
        raise _changed(part, f"its census counted {counted} records, and it has {reader.records}")
    if reader.digest != numbering.digests[part.number]:
        raise _changed(part, "its records are not those that its census counted")


def _changed(part: PartRange, what: str) -> DataError:
    return DataError(f"{part}: {what}; the file changed in between, or this node has another copy of it: {_PLAN_AGAIN}")
