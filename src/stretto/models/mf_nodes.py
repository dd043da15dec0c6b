"""Ratings that the nodes of a cluster read themselves: the driver walks the file and keeps none of them.

    found = walk(path, parts=True)                        # ids, and how often each occurs
    source = FileSource(found, at_once)                   # walked as often as somebody asks for its chunks
    job = lay_out_from_file(problem, counted, source, …)  # counts have decided the plan
    reader.fill(visits, arrays, threads, disk)            # on a node: its own rows' ratings, laid out

Every node walks the whole file and keeps the ratings of its own rows: nobody holds them all, and nothing but counts and
factors passes through the driver. The bits are those of a fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretto.data.data import Data, held_out
from stretto.data.partition import Cut
from stretto.data.parts.file_set import FileSet
from stretto.data.scan import Scan
from stretto.errors import DataError
from stretto.runtime.cluster.pages import Pages
from stretto.runtime.crew import Crew
from stretto.runtime.disk import Disk
from stretto.runtime.layout import Blocks, arrange, fill_blocks, index_type
from stretto.runtime.runtimes import Threads
from stretto.runtime.source import GRAIN, Chunk, Entries, Source, in_grains
from stretto.schedule.order import Ints, Order

from .mf_base import Problem, new_factors, units
from .mf_counted import Counted
from .mf_measure import Held
from .mf_sgd import SgdJob, limit_of


class FileSource:
    """The entries of a file in their order, `at_once` of them in memory; share: of them held out, by seed.

    A `Source` that can be pickled: what travels is what the first walk found, ids and counts.
    """

    def __init__(self, found: Scan | FileSet, at_once: int, share: float = 0.0, seed: int = 0) -> None:
        self.found, self.shape, self.share, self.seed = found, found.shape, share, seed
        self.at_once = max(GRAIN, at_once // GRAIN * GRAIN)
        aside = (held_out(lo, min(lo + GRAIN, found.nnz), share, seed) for lo in range(0, found.nnz, GRAIN))
        self._length = found.nnz - (sum(int(mask.sum()) for mask in aside) if share else 0)

    def __len__(self) -> int:
        return self._length

    def chunks(self) -> Iterator[Chunk]:
        """Those to learn from, in whole grains."""
        return in_grains(self._walk(held=False), self.at_once)

    def aside(self) -> Data:
        """Those that are held out."""
        rows, cols, values = (np.concatenate(part) for part in zip(*self._walk(held=True), strict=True))
        return Data.from_arrays(rows, cols, values, self.shape, source=self.found.path)

    def _walk(self, *, held: bool) -> Iterator[Chunk]:
        first = 0
        for rows, cols, values in self.found.chunks():
            mask = held_out(first, first + len(values), self.share, self.seed) == held
            first += len(values)
            yield (rows, cols, values) if mask.all() else (rows[mask], cols[mask], values[mask])


@dataclass(frozen=True, eq=False)
class FileReader:
    """For `StepSpec.reader`: what a node needs to find its own ratings. weight [V]: entries of each visit.

    once: whether a pair that is rated twice is an error.
    """

    source: FileSource
    rows: Cut
    cols: Cut
    order: Order
    weight: Ints
    mean: float
    scale: float
    once: bool

    def fill(self, visits: Ints, arrays: dict[str, Any], threads: int, disk: Disk | None) -> None:
        """The entries of some row blocks' visits, as `lay_out` has them."""
        ptr, path = _pointers(self.weight), self.source.found.path
        mine = OwnRows(self.source, self.rows, self.order, visits)
        into = (arrays["u"], arrays["i"], arrays["r"])
        with Threads(threads).open() as crew:
            if disk is not None:
                crew.stream(disk)
            units_: dict[str, Any] = {"mean": self.mean, "scale": self.scale, "disk": disk}
            try:
                got = fill_blocks(mine, self.rows, self.cols, self.order, ptr, into, crew, **units_)
            except DataError as error:
                raise DataError(f"{path}: {error}; {_SAME_FILE}") from error
            if not np.array_equal(got[visits], self.weight[visits]):
                raise DataError(f"{path}: it is not what the driver has read; {_SAME_FILE}")
            kind: dict[str, Any] = {"on_disk": disk is not None, "visits": visits}
            repeats = arrange(ptr, self.rows, self.cols, self.order, *into, crew, **kind)
        if self.once and repeats:
            raise DataError(
                f"{path}: pairs are rated more than once, {repeats} of them among the rows of one node; settle "
                "them in the file (`stretto info` lists them) or pass duplicates='keep' to learn from every one"
            )


_SAME_FILE = "give every machine the same file, and leave it as it is while a fit runs"


class OwnRows:
    """The entries of a source that belong to the row blocks of some visits."""

    def __init__(self, source: Source, rows: Cut, order: Order, visits: Ints) -> None:
        self._source, self.shape = source, source.shape
        blocks = np.zeros(order.rows, bool)
        blocks[order.row_block[visits]] = True
        self._mine = blocks[rows.block_of()]  # by row

    def __len__(self) -> int:
        return len(self._source)

    def chunks(self) -> Iterator[Chunk]:
        """Chunk by chunk."""
        for rows, cols, values in self._source.chunks():
            keep = self._mine[rows]
            yield rows[keep], cols[keep], values[keep]


def lay_out_from_file(
    problem: Problem,
    counted: Counted,
    source: FileSource,
    crew: Crew,
    *,
    test: Entries | None,
    once: bool,
    scratch: Path | None = None,
) -> SgdJob:
    """Draw the first factors; ratings are read where they are needed."""
    plan, seen = counted.plan, counted.seen
    rows, cols, order, weight = plan.logical.rows, plan.logical.cols, plan.order, plan.weight
    disk = None
    if plan.physical.memory is not None and scratch is not None:
        # The nodes keep to the budget, and the driver's copy of the factors is in files if it does not fit either.
        disk = Disk(scratch, plan.physical.memory)
        crew.stream(disk)
    here = disk if disk is not None and plan.cost.state_bytes > disk.budget else None
    mean, scale = units(problem, seen)
    # Nobody touches these, so they take no room: the driver runs no visit.
    u, i, r = (Pages((len(source),), kind).array for kind in (index_type(rows), index_type(cols), np.float32))
    blocks = Blocks(_pointers(weight), u, i, r, rows.bounds[order.row_block], cols.bounds[order.col_block], 0)
    factors = new_factors(problem, rows, cols, seen.empty, plan.logical.seed, crew, mean=mean, scale=scale, disk=here)
    held = None if test is None else Held.out(test, rows, cols)
    reader = FileReader(source, rows, cols, order, weight, mean, scale, once)
    return SgdJob(problem, plan, blocks, factors, limit_of(problem, seen), crew, held, reader)


def _pointers(weight: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(weight)]).astype(np.int64)
