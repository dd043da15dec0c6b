"""Ratings that the nodes of a cluster read from files; the driver holds only counts.

    found = walk(path, crew)                              # ids, and how often each occurs
    source = FileSource(found, at_once)                   # reads the file each time its chunks are requested
    job = lay_out_from_file(problem, counted, source, …)  # the counts determined the plan
    reader.fill(visits, arrays, threads, disk)            # on a node: its own rows' ratings, laid out

Every node reads its share of the parts and sends ratings of other nodes' rows to those nodes (`runtime.blocks.parted`).
No process holds all ratings, and only counts and factors go through the driver. The bits are those of a fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stretto.cached import cached_property
from stretto.data.partition import BlockPartition
from stretto.data.parts.file_set import FileSet
from stretto.data.reading.scan import Scan
from stretto.data.records.data import Data, held_out
from stretto.errors import DataError
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import Blocks, arrange, fill_parts, index_type
from stretto.runtime.blocks.parted import Exchange, PartedSource, by_shares
from stretto.runtime.blocks.source import GRAIN, Chunk, EntryArrays, in_grains
from stretto.runtime.cluster.pages import Pages
from stretto.runtime.files.mapped_arrays import Disk
from stretto.runtime.runtimes import Threads
from stretto.schedule.orders.order import Ints, Order

from .counted_plan import CountedRatings
from .penalties import shares_of
from .problem import FactorizationProblem, new_factors, units
from .sgd import SgdJob, limit_of, ranked_of
from .sgd import held_out as held_out_of


class FileSource:
    """The training entries of a file in order, `at_once` of them in memory.

    A `Source` that can be pickled: it contains the ids and counts that the first scan found.

    share : share of the entries that is held out, drawn by seed
    """

    def __init__(self, found: Scan | FileSet, at_once: int, share: float = 0.0, seed: int = 0) -> None:
        self.found, self.shape, self.share, self.seed = found, found.shape, share, seed
        self.at_once = max(GRAIN, at_once // GRAIN * GRAIN)
        self._length = found.nnz - (self._held(0, found.nnz) if share else 0)

    def __len__(self) -> int:
        return self._length

    def chunks(self) -> Iterator[Chunk]:
        """Entries to learn from, in whole grains."""
        return in_grains(self._pick(self.found.chunks(), 0, held=False), self.at_once)

    @property
    def parts(self) -> int:
        """As `PartedSource`; 0: the file is read as a whole."""
        return len(self.found.parts) if isinstance(self.found, FileSet) else 0

    @property
    def readers(self) -> Ints | None:
        """As `PartedSource`."""
        return self.found.readers if isinstance(self.found, FileSet) else None

    @cached_property
    def before(self) -> Ints:
        """Number of entries to learn from before each part."""
        assert isinstance(self.found, FileSet)
        firsts = self.found.numbering.firsts
        if not self.share:
            return firsts
        kept = [end - first - self._held(first, end) for first, end in pairwise(firsts.tolist())]
        return np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)

    def _held(self, first: int, end: int) -> int:
        """Number of held-out records in a range."""
        ranges = ((at, min(at + GRAIN, end)) for at in range(first, end, GRAIN))
        return sum(int(held_out(*one, self.share, self.seed).sum()) for one in ranges)

    def part(self, number: int) -> Iterator[Chunk]:
        """Entries of one part to learn from."""
        assert isinstance(self.found, FileSet)
        return self._pick(self.found.part(number), int(self.found.numbering.firsts[number]), held=False)

    def aside(self, crew: Crew | None = None) -> Data:
        """The held-out entries. crew: reads the parts."""
        found: list[Chunk]
        if crew is not None and self.parts:
            by_part: dict[int, list[Chunk]] = {}
            for one in by_shares(self, crew, _held_of):
                by_part |= one
            found = [chunk for number in range(self.parts) for chunk in by_part[number]]
        else:
            found = list(self._pick(self.found.chunks(), 0, held=True))
        rows, cols, values = (np.concatenate(part) for part in zip(*found, strict=True))
        return Data.from_arrays(rows, cols, values, self.shape, source=self.found.path)

    def _pick(self, chunks: Iterator[Chunk], first: int, *, held: bool) -> Iterator[Chunk]:
        """Select the held-out records of chunks, or the others. first: number of the first record."""
        for rows, cols, values in chunks:
            mask = held_out(first, first + len(values), self.share, self.seed) == held
            first += len(values)
            yield (rows, cols, values) if mask.all() else (rows[mask], cols[mask], values[mask])


def _held_of(source: FileSource, parts: Sequence[int], crew: Crew) -> dict[int, list[Chunk]]:
    assert isinstance(source.found, FileSet)
    firsts = source.found.numbering.firsts
    return {k: list(source._pick(source.found.part(k), int(firsts[k]), held=True)) for k in parts}


@dataclass(frozen=True, eq=False)
class FileReader:
    """For `StepSpec.reader`: what a node needs to read its own ratings."""

    source: FileSource
    rows: BlockPartition
    cols: BlockPartition
    order: Order
    counts: Ints  # [P, V] entries of each visit in each part of the files
    mean: float  # mean of the ratings
    scale: float  # standard deviation of the ratings
    once: bool  # whether a pair that is rated twice is an error

    def fill(
        self,
        visits: Ints,
        arrays: dict[str, Any],
        threads: int,
        disk: Disk | None,
        exchange: Exchange | None = None,
        owner: Ints | None = None,
    ) -> None:
        """Write the entries of some row blocks' visits into arrays, in the order of `lay_out`."""
        weight = self.counts.sum(axis=0)
        ptr, path = _pointers(weight), self.source.found.path
        chunks, first = own_chunks(self.source, self.rows, self.order, visits, self.counts, ptr, exchange, owner)
        into = (arrays["u"], arrays["i"], arrays["r"])
        with Threads(threads).open() as crew:
            if disk is not None:
                crew.stream(disk)
            units_: dict[str, Any] = {"mean": self.mean, "scale": self.scale, "disk": disk}
            try:
                got = fill_parts(chunks, self.rows, self.cols, self.order, first, ptr[1:], into, crew, **units_)
            except DataError as error:
                raise DataError(f"{path}: {error}; {_SAME_FILE}") from error
            if not np.array_equal(got[visits], weight[visits]):
                raise DataError(f"{path}: it is not what the driver has read; {_SAME_FILE}")
            kind: dict[str, Any] = {"on_disk": disk is not None, "visits": visits}
            repeats = arrange(ptr, self.rows, self.cols, self.order, *into, crew, **kind)
        if self.once and repeats:
            raise DataError(
                f"{path}: pairs are rated more than once, {repeats} of them among the rows of one node; settle "
                "them in the file (`stretto info` lists them) or pass duplicates='keep' to learn from every one"
            )


_SAME_FILE = "give every machine the same file, and leave it as it is while a fit runs"


def own_chunks(
    source: PartedSource,
    rows: BlockPartition,
    order: Order,
    visits: Ints,
    counts: Ints,
    ptr: Ints,
    exchange: Exchange | None,
    owner: Ints | None,
) -> tuple[Iterator[tuple[int, Chunk]], Ints]:
    """(part, entries) of the row blocks of some visits, and [P, V] where each visit's entries of a part begin.

    counts : [P, V] entries of each visit in each part
    ptr : [V + 1] first entry of each visit
    exchange : None if a node reads all parts itself
    owner : the node of each row block
    """
    first = ptr[:-1] + np.cumsum(counts, axis=0) - counts
    if exchange is not None and owner is not None:
        return exchange.walk(source, owner[rows.block_of()]), first
    blocks = np.zeros(order.rows, bool)
    blocks[order.row_block[visits]] = True
    mine = blocks[rows.block_of()]

    def walk() -> Iterator[tuple[int, Chunk]]:
        for number in range(source.parts):
            for r, c, values in source.part(number):
                keep = mine[r]
                yield number, (r[keep], c[keep], values[keep])

    return walk(), first


def lay_out_from_file(
    problem: FactorizationProblem,
    counted: CountedRatings,
    source: FileSource,
    crew: Crew,
    *,
    test: EntryArrays | None,
    once: bool,
    scratch: Path | None = None,
) -> SgdJob:
    """Draw the initial factors; the nodes read the ratings."""
    plan, seen = counted.plan, counted.seen
    rows, cols, order, weight = plan.logical.rows, plan.logical.cols, plan.order, plan.weight
    disk = None
    if plan.physical.memory is not None and scratch is not None:
        # The nodes keep to the budget. The driver's copy of the factors is in files if it does not fit either.
        disk = Disk(scratch, plan.physical.memory)
        crew.stream(disk)
    here = disk if disk is not None and plan.cost.state_bytes > disk.budget else None
    mean, scale = units(problem, seen)
    # These pages are never touched, so they take no memory: the driver runs no visit.
    u, i, r = (Pages((len(source),), kind).array for kind in (index_type(rows), index_type(cols), np.float32))
    blocks = Blocks(_pointers(weight), u, i, r, rows.bounds[order.row_block], cols.bounds[order.col_block], 0)
    factors = new_factors(problem, rows, cols, seen.empty, plan.logical.seed, crew, mean=mean, scale=scale, disk=here)
    held = held_out_of(problem, test, source, rows, cols)
    assert counted.parts is not None
    reader = FileReader(source, rows, cols, order, counted.parts, mean, scale, once)
    shares = shares_of(problem, seen, rows, cols)
    ranked = ranked_of(problem, plan, seen)
    return SgdJob(problem, plan, blocks, factors, shares, limit_of(problem, seen), crew, held, reader, ranked)


def _pointers(weight: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(weight)]).astype(np.int64)
