"""Documents that the nodes of a cluster read from files; the driver holds only counts.

    source = CountFile("docword.txt", None, crew=crew)       # reads the file each time its parts are requested
    counted = count_lda(problem, source, census, crew, …)    # the sizes of the visits determine the plan
    reader.fill(visits, arrays, threads, disk, …)            # on a node: the tokens of its own documents, laid out

Every node reads its share of the parts and sends other nodes' documents to those nodes (`runtime.blocks.parted`). The
tokens are the same as in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.errors import DataError
from stretto.plan.plan import Logical
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import fill_parts, index_type
from stretto.runtime.blocks.parted import Exchange, PartedSource
from stretto.runtime.cluster.pages import Pages
from stretto.runtime.files.mapped_arrays import Disk
from stretto.runtime.runtimes import Threads
from stretto.schedule.orders.order import Ints
from stretto.solvers.factorization.node_ratings import own_chunks

from .corpus_files import AHEAD, pieces
from .count_layout import CountLayout
from .layout import GroupedEntries, TokenLayout, by_visit, pointers

_AT_ONCE = 1 << 22  # tokens that a node lays out together


def unread_tokens(logical: Logical, shape: CountLayout, tokens: Ints, runs: Ints, disk: Disk | None) -> TokenLayout:
    """The driver's token arrays: topics, to collect results in, and pages that are never touched."""
    ptr, run_ptr = pointers(tokens), pointers(runs)
    length, count = int(ptr[-1]), int(run_ptr[-1])
    doc = Pages((length + AHEAD,), index_type(logical.rows)).array
    run_word, run_length = (Pages((count,), kind).array for kind in (index_type(logical.cols), np.int32))
    topic = (
        Pages((length,), shape.topic_dtype).array if disk is None else disk.array("topic", (length,), shape.topic_dtype)
    )
    longest = min(int(tokens.max(initial=0)), int(shape.word_tokens.max(initial=0)))
    return TokenLayout(by_visit(logical, ptr, run_ptr, (doc, topic, run_word, run_length)), longest)


@dataclass(frozen=True, eq=False)
class DocumentReader:
    """For `StepSpec.reader`: what a node needs to read its own documents."""

    source: PartedSource
    logical: Logical
    counts: Ints  # [P, V] entries of each visit in each part
    tokens: Ints  # [V] tokens of each visit
    runs: Ints  # [V] runs of each visit

    def fill(
        self,
        visits: Ints,
        arrays: dict[str, Any],
        threads: int,
        disk: Disk | None,
        exchange: Exchange | None = None,
        owner: Ints | None = None,
    ) -> None:
        """Write the tokens of some row blocks' visits into arrays."""
        rows, cols, order = self.logical.rows, self.logical.cols, self.logical.order
        counts = np.zeros_like(self.counts)
        counts[:, visits] = self.counts[:, visits]
        own = counts.sum(axis=0)
        entry_ptr = pointers(own)
        chunks, begin = own_chunks(self.source, rows, order, visits, counts, entry_ptr, exchange, owner)
        kinds = {"entry_doc": index_type(rows), "entry_word": index_type(cols), "entry_count": np.float32}
        shape = (int(entry_ptr[-1]),)
        grouped: Any = tuple(
            np.zeros(shape, kind) if disk is None else disk.array(name, shape, kind) for name, kind in kinds.items()
        )
        with Threads(threads).open() as crew:
            got = fill_parts(chunks, rows, cols, order, begin, entry_ptr[1:], grouped, crew, disk=disk)
            if not np.array_equal(got, own):
                raise DataError("the documents are not what the driver has read; give every machine the same file")
            for first, last in pieces(np.where(own > 0, self.tokens, 0), _AT_ONCE):
                self._spread(first, last, entry_ptr, grouped, arrays, crew)
                if disk is not None:
                    disk.release_all()
        if disk is not None:
            for array in grouped:
                disk.drop(array)

    def _spread(self, first: int, last: int, entry_ptr: Ints, grouped: Any, arrays: dict[str, Any], crew: Crew) -> None:
        """Write the tokens of visits first to last, one range of this node's visits after another."""
        order, ptr, run_ptr = self.logical.order, pointers(self.tokens), pointers(self.runs)
        docs_in = self.logical.rows.sizes[order.row_block]
        words_in = self.logical.cols.sizes[order.col_block]
        for a, b in _neighbours(np.diff(entry_ptr)[first:last] > 0, first):
            at = slice(int(entry_ptr[a]), int(entry_ptr[b]))
            some = GroupedEntries(entry_ptr[a : b + 1] - entry_ptr[a], *(array[at] for array in grouped))
            tokens, runs, _ = some.measure(words_in[a:b], crew)
            if not (np.array_equal(tokens, self.tokens[a:b]) and np.array_equal(runs, self.runs[a:b])):
                raise DataError("the documents are not what the driver has read; give every machine the same file")
            here, runs_here = slice(int(ptr[a]), int(ptr[b])), slice(int(run_ptr[a]), int(run_ptr[b]))
            into = (arrays["doc"][here], arrays["run_word"][runs_here], arrays["run_length"][runs_here])
            local = ptr[a : b + 1] - ptr[a], run_ptr[a : b + 1] - run_ptr[a]
            some.spread(docs_in[a:b], words_in[a:b], *local, into, crew)


def _neighbours(mine: Any, first: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of every range of consecutive True values.

    >>> list(_neighbours(np.array([True, True, False, True]), 10))
    [(10, 12), (13, 14)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mine, [False]]).astype(np.int8)))
    for begin, end in edges.reshape(-1, 2).tolist():
        yield first + begin, first + end
