"""Out-of-core corpora: parse a file of counts into entries, group them into blocks, and write the tokens to disk.

    source, names = on_disk("docword.txt.gz", memory, folder, None)       # parse the file once into flat files
    entries, tokens = weigh(source, rows, cols, order)                    # sizes of the visits, for the plan
    laid = lay_out_tokens_on_disk(source, logical, shape, entries, tokens, crew, disk, memory)

No function holds more than a chunk of the corpus in memory. Tokens and their order are the same as in memory.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.data.parts.file_set import FileSet
from stretto.data.parts.files import is_several
from stretto.data.parts.node_files import NodeFiles
from stretto.data.reading.parsing import Parsing, ReadOptions
from stretto.data.reading.report import LineReport
from stretto.errors import DataError, PlanError
from stretto.models.factorization.input import at_once
from stretto.plan.plan import Logical, Plan
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import group_on_disk, index_type, visit_table
from stretto.runtime.blocks.parted import PartedSource, by_shares
from stretto.runtime.blocks.source import GRAIN, Chunk, EntrySource, Spool, in_grains
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order
from stretto.text import show_bytes

from .count_layout import CountLayout
from .input import LARGEST, OPEN_ENDED, UnknownWordsWarning, Words, read_vocabulary
from .layout import GroupedEntries, TokenLayout, by_visit, pointers

AHEAD = 64  # the samplers prefetch documents a few tokens ahead, also past the last one
# Share of a memory budget for tokens while they are written; each needs its entry, its document and a run.
_SHARE, _PER_TOKEN = 4, 28
_PER_ENTRY = 12
_LARGEST_TABLE = 1 << 28  # bytes of the table that marks which words occur in which row blocks


class CountFile:
    """A file of word counts, in the order of a vocabulary: an `EntrySource` that reads the file at each iteration.

    Parameters
    ----------
    path : the file
    vocabulary : the words in column order, or a file with one word a line. A file with named words is put into
        that order; words that are not in it are left out, with a warning.
    at_least : number of words, for a format that does not give it
    at_once : entries in memory at a time
    crew : counts the file in parts, each of which is refused if it changes; None: one file is read as a whole
    """

    def __init__(
        self,
        path: Any,
        vocabulary: Words | None,
        at_least: int = 0,
        at_once: int = GRAIN,
        *,
        crew: Crew | None = None,
    ) -> None:
        from stretto.data.parts.file_set import walk

        self.path, self._found = path, walk(path, crew)
        self.at_once = max(GRAIN, at_once // GRAIN * GRAIN)
        found = self._found
        names = None if vocabulary is None else read_vocabulary(vocabulary)
        width = found.shape[1]
        if width < max(at_least, len(names or ())) and _is_open_ended(path):
            width = max(at_least, len(names or ()))
        self._to: Any = None
        if found.col_ids is not None:
            called = [str(name) for name in found.col_ids.ids.tolist()]
            if names is not None and (found.col_ids.is_text or all(name.isdecimal() for name in names)):
                place = {name: k for k, name in enumerate(names)}
                self._to, width = np.array([place.get(name, -1) for name in called], np.int32), len(names)
            names = called if names is None else names
        if names is not None and len(names) != width:
            raise DataError(
                f"the vocabulary has {len(names)} words, {path} has {width}; give one name a column, in order"
            )
        self.shape, self.names, self._left_out = (found.shape[0], width), names, 0.0

    def __len__(self) -> int:
        """Number of entries in the file, including those of words that are left out."""
        return int(self._found.nnz)

    def chunks(self) -> Iterator[Chunk]:
        return in_grains(self.counts(), self.at_once)

    def counts(self) -> Iterator[Chunk]:
        """The entries as they are read: counts above 0, of words of the vocabulary."""
        self._left_out = 0.0
        return self._pick(self._found.chunks())

    @property
    def parts(self) -> int:
        """As `PartedSource`; 0: the file is read as a whole."""
        return len(self._found.parts) if isinstance(self._found, FileSet) else 0

    @property
    def readers(self) -> Ints | None:
        """As `PartedSource`."""
        return self._found.readers if isinstance(self._found, FileSet) else None

    @property
    def before(self) -> Ints | None:
        """Number of entries before each part; known if no entry is left out."""
        if not isinstance(self._found, FileSet) or self._to is not None or self._found.numbering.low <= 0:
            return None
        return self._found.numbering.firsts

    def part(self, number: int) -> Iterator[Chunk]:
        """The entries of one part."""
        assert isinstance(self._found, FileSet)
        return self._pick(self._found.part(number))

    def _pick(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for rows, cols, values in chunks:
            _refuse_unless_counts(rows, cols, values, str(self.path))
            some = values > 0
            if self._to is not None:
                cols = self._to[cols]
                self._left_out += float(values[cols < 0].sum(dtype=np.float64))
                some &= cols >= 0
            yield (rows, cols, values) if some.all() else (rows[some], cols[some], values[some])

    def warn_unknown(self) -> None:
        """Warn about words that the last scan left out."""
        if self._left_out:
            count = np.count_nonzero(self._to < 0)
            said = f"words not in the vocabulary were left out: {count:,}, with {self._left_out:,.0f} tokens"
            said = f"{self.path}: {said}; add them to the vocabulary to keep them"
            warnings.warn(said, UnknownWordsWarning, stacklevel=3)


def on_disk(
    path: Any, memory: int, folder: Path, vocabulary: Words | None, at_least: int = 0
) -> tuple[EntrySource, list[str] | None]:
    """(entries, words): parse a file of counts chunk by chunk into flat files in the folder; also its words' names.

    vocabulary, at_least : as for `CountFile`
    """
    found = CountFile(path, vocabulary, at_least)
    source = Spool(folder, found.shape, at_once(memory)).write(found.counts())
    found.warn_unknown()
    return source, found.names


def _is_open_ended(path: Any) -> bool:
    """Whether the file's format does not give the number of words."""
    if isinstance(path, NodeFiles) or is_several(path):
        return False
    with Parsing(os.fspath(path), ReadOptions(), LineReport(os.fspath(path))) as parsing:
        return parsing.guess.format in OPEN_ENDED


def _refuse_unless_counts(rows: Any, cols: Any, values: Any, where: str) -> None:
    bad = ~((values >= 0) & (values <= LARGEST) & (values == np.floor(values)))  # also true for NaN
    if bad.any():
        k = int(bad.argmax())
        raise DataError(
            f"{where}: {values[k]} at row {rows[k]}, column {cols[k]} is no count; a corpus that is streamed must have "
            "whole numbers from 0 to 2^24 − 1: round them in the file, or fit without memory="
        )


def weigh_parts(
    source: PartedSource, rows: BlockPartition, cols: BlockPartition, order: Order, crew: Crew
) -> tuple[Ints, Ints, Ints]:
    """([P, V], [V], [V]): entries of each visit in each part, tokens of each visit, and an upper bound of its runs.

    The crew's workers or nodes count them.
    """
    entries, tokens = np.zeros((source.parts, len(order)), np.int64), np.zeros(len(order), np.int64)
    occurs = np.zeros((rows.blocks, len(cols)), bool)
    for counts, some, marks in by_shares(source, crew, partial(_weigh_share, rows, cols, order)):
        tokens += some
        occurs |= np.unpackbits(marks, axis=1, count=len(cols)).astype(bool)
        for number, weight in counts.items():
            entries[number] = weight
    return entries, tokens, _runs(occurs, cols, order)


def _weigh_share(
    rows: BlockPartition, cols: BlockPartition, order: Order, source: PartedSource, parts: Sequence[int], crew: Crew
) -> tuple[dict[int, Ints], Ints, NDArray[np.uint8]]:
    row_block, col_block, table = rows.block_of(), cols.block_of(), visit_table(order)
    found, tokens = {}, np.zeros(len(order))
    occurs = np.zeros((rows.blocks, len(cols)), bool)
    for number in parts:
        entries = np.zeros(len(order), np.int64)
        for r, c, values in source.part(number):
            visit = table[row_block[r], col_block[c]]
            entries += np.bincount(visit, minlength=len(order))
            tokens += np.bincount(visit, weights=values, minlength=len(order))
            occurs[row_block[r], c] = True
        found[number] = entries
    return found, tokens.astype(np.int64), np.packbits(occurs, axis=1)


def weigh(
    source: EntrySource, rows: BlockPartition, cols: BlockPartition, order: Order, *, zeros: bool = False
) -> tuple[Ints, Ints]:
    """([V], [V]): entries and tokens of each visit. zeros: whether there may be stored zeros, as in memory."""
    row_block, col_block, table = rows.block_of(), cols.block_of(), visit_table(order)
    entries, tokens = np.zeros(len(order), np.int64), np.zeros(len(order))
    for r, c, values in source.chunks():
        _refuse_unless_counts(r, c, values, "the corpus")
        if not zeros and len(values) and values.min() < 1:
            raise DataError("the corpus has stored zeros; leave them out of the entries")
        visit = table[row_block[r], col_block[c]]
        entries += np.bincount(visit, minlength=len(order))
        tokens += np.bincount(visit, weights=values, minlength=len(order))
    return entries, tokens.astype(np.int64)


def count_runs(source: EntrySource, rows: BlockPartition, cols: BlockPartition, order: Order) -> Ints | None:
    """[V] number of words of each visit, which equals its runs; None if the table for counting would be too large."""
    if rows.blocks * len(cols) > _LARGEST_TABLE:
        return None
    occurs = np.zeros((rows.blocks, len(cols)), bool)
    block = rows.block_of()
    for r, c, values in source.chunks():
        some = values > 0
        occurs[block[r[some]], c[some]] = True
    return _runs(occurs, cols, order)


def _runs(occurs: NDArray[np.bool_], cols: BlockPartition, order: Order) -> Ints:
    """[V] number of words that occur in each visit. occurs [row blocks, words]."""
    of_word = cols.block_of()
    found = np.stack([np.bincount(of_word[marks], minlength=cols.blocks) for marks in occurs])
    return np.asarray(found[order.row_block, order.col_block], np.int64)


def refuse_if_disk_full(plan: Plan, entries: Ints, averaged: int, folder: Path) -> None:
    """Raise an error before any work if the files would not fit on the disk. averaged: bytes of the averaged states."""
    wanted = int(entries.sum()) * _PER_ENTRY + plan.cost.memory + averaged
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise PlanError(
            f"streaming this corpus takes {show_bytes(wanted)} of disk in {folder}, and {show_bytes(free)} are free; "
            "free some, set TMPDIR to a folder on a larger disk, or raise memory= to hold it in memory"
        )


def most_runs(entries: Ints, tokens: Ints, logical: Logical) -> Ints:
    """[V] upper bound of the runs of each visit: its entries, and the words of its column block."""
    words: Ints = logical.cols.sizes[logical.order.col_block]
    return np.minimum(np.minimum(entries, tokens), words)


def lay_out_tokens_on_disk(
    source: EntrySource,
    logical: Logical,
    shape: CountLayout,
    entries: Ints,
    tokens: Ints,
    crew: Crew,
    disk: Disk,
    memory: int,
) -> TokenLayout:
    """Write every token of the corpus to files, by visit. entries, tokens [V]: from `weigh`.

    The entries are first grouped by visit, then converted to tokens a few visits at a time.
    """
    rows, cols, order = logical.rows, logical.cols, logical.order
    entry_ptr, *grouped = group_on_disk(source, rows, cols, order, entries, crew, disk, 0.0, 1.0)
    docs_in, words_in = rows.sizes[order.row_block], cols.sizes[order.col_block]
    runs, most, at_once = np.zeros(len(order), np.int64), 0, max(1, memory // (_SHARE * _PER_TOKEN))

    def parts() -> Iterator[tuple[slice, GroupedEntries]]:
        for first, last in pieces(tokens, at_once):
            begin, end = int(entry_ptr[first]), int(entry_ptr[last])
            some = GroupedEntries(entry_ptr[first : last + 1] - begin, *(array[begin:end] for array in grouped))
            yield slice(first, last), some
            disk.release_all()

    for which, part in parts():
        _, runs[which], longest = part.measure(words_in[which], crew)
        most = max(most, longest)
    ptr, run_ptr = pointers(tokens), pointers(runs)
    doc = disk.array("doc", (int(ptr[-1]) + AHEAD,), index_type(rows))
    run_word = disk.array("run_word", (int(run_ptr[-1]),), index_type(cols))
    run_length = disk.array("run_length", (int(run_ptr[-1]),), np.int32)
    for which, part in parts():
        first, last = which.start, which.stop
        here, runs_here = ptr[first : last + 1] - ptr[first], run_ptr[first : last + 1] - run_ptr[first]
        at, run = slice(int(ptr[first]), int(ptr[last])), slice(int(run_ptr[first]), int(run_ptr[last]))
        into = (doc[at], run_word[run], run_length[run])
        part.spread(docs_in[which], words_in[which], here, runs_here, into, crew)
    topic = disk.array("topic", (int(ptr[-1]),), shape.topic_dtype)
    for array in grouped:
        disk.drop(array)
    return TokenLayout(by_visit(logical, ptr, run_ptr, (doc, topic, run_word, run_length)), most)


def pieces(weight: Ints, at_most: int) -> Iterator[tuple[int, int]]:
    """Ranges (first, last + 1) of total weight at most `at_most`; a heavier item gets its own range.

    >>> list(pieces(np.array([3, 3, 9, 1]), 6))
    [(0, 2), (2, 3), (3, 4)]
    """
    ends, first = np.cumsum(weight), 0
    while first < len(weight):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + at_most, side="right")))
        yield first, last
        first = last
