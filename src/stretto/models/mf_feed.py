"""Where a fit gets its ratings: arrays in memory, or a file cut to disk within a memory budget."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretto.data.data import Data, held_out
from stretto.data.ids import IdMap
from stretto.errors import PlanError
from stretto.runtime.source import GRAIN, Chunk, InMemory, Source, Spool

from .mf_input import as_matrix
from .mf_nodes import FileSource

# Of a memory budget, the share that one chunk of entries may take while it is read, grouped and written.
_CHUNK_SHARE = 8
_CHUNK_BYTES = 48


@dataclass(frozen=True, eq=False)
class Feed:
    """Ratings to learn from and ratings to measure on, in one numbering. data is None when they are on disk."""

    source: Source
    data: Data | None
    test: Data | None
    shape: tuple[int, int]
    row_ids: IdMap | None
    col_ids: IdMap | None

    def __repr__(self) -> str:
        return (
            repr(self.data)
            if self.data is not None
            else f"{self.shape[0]} x {self.shape[1]}, {len(self.source)} records on disk"
        )


def is_path(X: Any) -> bool:
    """Whether X names a file rather than being data."""
    return isinstance(X, str | os.PathLike)


def at_once(memory: int) -> int:
    """Entries that may be handled together within a budget."""
    return max(GRAIN, memory // (_CHUNK_SHARE * _CHUNK_BYTES))


def feed_from(
    X: Any,
    *,
    validation: Any,
    duplicates: str,
    seed: int,
    memory: int | None,
    scratch: Path | None,
    nodes: bool = False,
) -> Feed:
    """Ratings from what the user gave. validation: data, or the share of the entries to hold out, or None.

    nodes: with a memory budget, those of a cluster read the file, and nobody writes it to disk.
    """
    if nodes and memory is not None:
        return _read_by_nodes(X, validation, duplicates, seed, memory)
    if is_path(X) and memory is not None and scratch is not None:
        return _from_file(X, validation, seed, memory, scratch)
    if is_path(X):
        from stretto.data.read import read_for_fit

        X = read_for_fit(X, duplicates)
    data = as_matrix(X, duplicates=duplicates)
    test = None
    if isinstance(validation, float):
        data, test = data.split(validation, seed=seed)
    elif validation is not None:
        test = as_matrix(validation, duplicates="keep", ids=(data.row_ids, data.col_ids))
    source = InMemory(data, None if memory is None else at_once(memory))
    return Feed(source, data, test, data.shape, data.row_ids, data.col_ids)


def _read_by_nodes(path: Any, validation: Any, duplicates: str, seed: int, memory: int) -> Feed:
    """Walk the file once; what is held out stays in memory."""
    from stretto.data.scan import scan

    if not is_path(path) or duplicates != "keep":
        what = "data that are in memory already" if not is_path(path) else f"duplicates={duplicates!r}"
        raise PlanError(
            f"memory= on a cluster lets the nodes read a text file, of which the driver keeps counts only; {what} "
            "cannot be had that way: leave memory= out, or give the path of a file with duplicates='error' or 'keep'"
        )
    place = os.fspath(path)
    found = scan(place if "://" in place else os.path.abspath(place))
    if found.in_memory:
        raise PlanError(f"memory= on a cluster: {place} is no text that nodes can walk; leave memory= out")
    share = validation if isinstance(validation, float) else 0.0
    source = FileSource(found, at_once(memory), share, seed)
    test = source.aside() if share else None
    if test is None and validation is not None:
        test = as_matrix(validation, duplicates="keep", ids=(found.row_ids, found.col_ids))
    return Feed(source, None, test, found.shape, found.row_ids, found.col_ids)


def _from_file(path: Any, validation: Any, seed: int, memory: int, scratch: Path) -> Feed:
    """Parse the file piece by piece into flat files; what is held out stays in memory."""
    from stretto.data.scan import scan

    found = scan(path)
    share = validation if isinstance(validation, float) else 0.0
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
    test = None
    if share:
        rows, cols, values = (np.concatenate(part) for part in zip(*aside, strict=True))
        test = Data.from_arrays(rows, cols, values, found.shape, source=str(path))
    elif validation is not None:
        test = as_matrix(validation, duplicates="keep", ids=(found.row_ids, found.col_ids))
    return Feed(source, None, test, found.shape, found.row_ids, found.col_ids)
