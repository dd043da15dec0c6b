"""Input ratings of a fit: arrays in memory, or a file that is written to disk in blocks within a memory budget."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretto.data.parts.node_files import NodeFiles
from stretto.data.records.data import Data, held_out
from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import GRAIN, Chunk, EntrySource, InMemory, Spool
from stretto.solvers.factorization.node_ratings import FileSource

from .align import Aligned, AxisIds, aligned, entries_of, is_matrix
from .arguments import as_matrix
from .row_identity import compare
from .side.joined import SideFeatures
from .weights import Weighted

# Share of a memory budget for one chunk of entries while it is read, grouped and written.
_CHUNK_SHARE = 8
_CHUNK_BYTES = 48


@dataclass(frozen=True, eq=False)
class RatingsInput:
    """Ratings to learn from and ratings to measure on, in one numbering."""

    source: EntrySource  # ratings to learn from
    data: Data | None  # None if they are on disk
    test: Data | Aligned | None  # ratings to measure on
    shape: tuple[int, int]
    row_ids: IdMap | None
    col_ids: IdMap | None
    every: EntrySource | None = None  # for additional ratings: all of them, with the earlier ones
    by_nodes: bool = False  # the nodes of a cluster read the file; the driver only counts
    features: SideFeatures | None = None
    weights: Weighted | None = None  # the ratings of `data` with their weights

    @property
    def trained_on(self) -> EntrySource:
        """All ratings that the model has learned from."""
        return self.source if self.every is None else self.every

    def __repr__(self) -> str:
        return (
            repr(self.data)
            if self.data is not None
            else f"{self.shape[0]} x {self.shape[1]}, {len(self.source)} records on disk"
        )


def is_path(X: Any) -> bool:
    """Whether X names one or several files."""
    several = isinstance(X, list) and bool(X) and all(isinstance(one, str | os.PathLike) and _is_file(one) for one in X)
    return several or isinstance(X, str | os.PathLike | NodeFiles)


def _is_file(path: Any) -> bool:
    """Whether an item of a list is a file name: a list of texts may be documents."""
    place = os.fspath(path)
    return "://" in place or os.path.isfile(place)


def at_once(memory: int) -> int:
    """Number of entries that may be processed together within a budget."""
    return max(GRAIN, memory // (_CHUNK_SHARE * _CHUNK_BYTES))


def held_share(validation: Any) -> float:
    """The share of the ratings to hold out; 0 if none is requested."""
    if not isinstance(validation, float | int | np.number):
        return 0.0
    if isinstance(validation, bool) or not 0.0 < float(validation) < 1.0:
        raise DataError(f"validation is a share between 0 and 1, or ratings to measure on; got {validation!r}")
    return float(validation)


def held_data(validation: Any, source: EntrySource, row_ids: IdMap | None, col_ids: IdMap | None) -> Aligned:
    """Ratings to measure on, in the numbering of the training ratings; may be given as (pairs, ratings)."""
    X, y = validation if isinstance(validation, tuple) and len(validation) == 2 else (validation, None)
    data = entries_of(X, y, "keep", named=row_ids is not None)
    matrix = is_matrix(X, data)
    if matrix and data.shape != source.shape:
        raise DataError(
            f"validation is a matrix of {data.shape[0]} × {data.shape[1]}, and the training data have "
            f"{source.shape[0]} × {source.shape[1]}: it needs the same rows and columns; hold out ratings, not rows, "
            "with st.split or validation=0.1"
        )
    if matrix and compare(source.shape, source, None, data) != "same":
        raise DataError(
            "validation is a matrix whose rows do not seem to be those of the training data; hold out ratings, not "
            "rows, with st.split or validation=0.1, or give a table with ids"
        )
    rows, cols = AxisIds(row_ids, source.shape[0], "row"), AxisIds(col_ids, source.shape[1], "column")
    return aligned(data, rows, cols, positions=matrix)


def refuse_empty(test: Data | Aligned | None, share: float) -> None:
    """DataError if there are no ratings to measure on."""
    if test is not None and not len(test):
        if share:
            raise DataError(
                f"validation={share:g} holds out none of these few ratings; give more of them, a larger share, or "
                "validation=None"
            )
        raise DataError("validation has no ratings; give some, or leave it out")


def feed_from(
    X: Any,
    *,
    validation: Any,
    duplicates: str,
    seed: int,
    memory: int | None,
    scratch: Path | None,
    nodes: Crew | None = None,
    counting: bool = False,
    weights: Weighted | None = None,
) -> RatingsInput:
    """Ratings from what the user gave.

    Parameters
    ----------
    validation : data, or the share of the entries to hold out, or None
    scratch : folder for a file that is streamed within `memory`
    nodes : the crew of a cluster whose nodes read the file, see `read_by_nodes`
    counting : the ratings will only be counted, so a file that would be streamed is read in place
    weights : those of the ratings X, which are its data
    """
    if nodes is not None and memory is not None:
        return _read_by_nodes(X, validation, seed, memory, nodes)
    if isinstance(X, NodeFiles):
        raise X.unread()
    if is_path(X) and memory is not None and counting:
        return _walked(X, validation, seed, memory)
    if is_path(X) and memory is not None and scratch is not None:
        return _from_file(X, validation, seed, memory, scratch)
    if is_path(X):
        from stretto.data.reading.read import read_for_fit

        X = read_for_fit(X, duplicates)
    data = as_matrix(X, duplicates=duplicates)
    test: Data | Aligned | None = None
    share = held_share(validation)
    if share:
        if weights is not None and weights.weights is not None:
            kept = ~held_out(0, len(data), share, seed)
            weights = Weighted(data.take(kept), weights.weights[kept])
        data, test = data.split(share, seed=seed)
    source = InMemory(data, None if memory is None else at_once(memory))
    if validation is not None and not share:
        test = held_data(validation, source, data.row_ids, data.col_ids)
    refuse_empty(test, share)
    return RatingsInput(source, data, test, data.shape, data.row_ids, data.col_ids, weights=weights)


def read_by_nodes(X: Any, memory: int | None, duplicates: str) -> bool:
    """Whether the nodes of a cluster read X: files, with a memory budget, of which every record counts."""
    return is_path(X) and memory is not None and duplicates == "keep"


def _read_by_nodes(path: Any, validation: Any, seed: int, memory: int, crew: Crew) -> RatingsInput:
    """Count the files, in parts; held-out ratings stay in memory."""
    from stretto.data.parts.file_set import walk

    return replace(_walked(walk(path, crew), validation, seed, memory, crew), by_nodes=True)


def _walked(path: Any, validation: Any, seed: int, memory: int, crew: Crew | None = None) -> RatingsInput:
    """Ratings that are read from their file at each iteration; held-out ratings are in memory."""
    from stretto.data.parts.file_set import walk

    found = walk(path) if is_path(path) else path
    share = held_share(validation)
    source = FileSource(found, at_once(memory), share, seed)
    test: Data | Aligned | None = source.aside(crew) if share else None
    if test is None and validation is not None:
        test = held_data(validation, source, found.row_ids, found.col_ids)
    refuse_empty(test, share)
    return RatingsInput(source, None, test, found.shape, found.row_ids, found.col_ids)


def _from_file(path: Any, validation: Any, seed: int, memory: int, scratch: Path) -> RatingsInput:
    """Parse the file chunk by chunk into flat files; held-out ratings stay in memory."""
    from stretto.data.parts.file_set import walk

    found = walk(path)
    share = held_share(validation)
    aside: list[Chunk] = []

    def kept() -> Iterator[Chunk]:
        first = 0
        for rows, cols, values in found.chunks():
            mask = held_out(first, first + len(values), share, seed)
            first += len(values)
            if share:
                aside.append((rows[mask], cols[mask], values[mask]))
            yield (rows[~mask], cols[~mask], values[~mask]) if share else (rows, cols, values)

    source = Spool(scratch, found.shape, at_once(memory)).write(kept())
    test: Data | Aligned | None = None
    if share:
        rows, cols, values = (np.concatenate(part) for part in zip(*aside, strict=True))
        test = Data.from_arrays(rows, cols, values, found.shape, source=str(path))
    elif validation is not None:
        test = held_data(validation, source, found.row_ids, found.col_ids)
    refuse_empty(test, share)
    return RatingsInput(source, None, test, found.shape, found.row_ids, found.col_ids)
