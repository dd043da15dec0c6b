"""Ratings that the nodes of a cluster read themselves: the driver walks the file and keeps none of them.

    found = scan(path)                                    # ids, and how often each occurs
    source = FileSource(found, at_once)                   # walked as often as somebody asks for its chunks
    counted = count_from_file(problem, source, crew, …)   # counts decide the plan
    reader.pieces(visits, threads)                        # on a node: its own rows' ratings, laid out

Every node walks the whole file and keeps the ratings of its own rows: nobody holds them all, and nothing but counts and
factors passes through the driver. The bits are those of a fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.data.data import Data, held_out
from stretto.data.partition import Cut
from stretto.data.scan import Scan
from stretto.errors import DataError
from stretto.plan.arrays import Piece, Pieces
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Physical
from stretto.runtime.cluster.pages import Pages
from stretto.runtime.crew import Crew
from stretto.runtime.layout import Blocks, index_type, lay_out, survey, tally
from stretto.runtime.runtimes import Threads
from stretto.runtime.source import GRAIN, Chunk, Entries, in_grains
from stretto.schedule.order import Ints, Order

from .mf_base import Problem, new_factors, units
from .mf_cost import refuse_rank, refuse_time
from .mf_counted import Counted
from .mf_measure import Held
from .mf_sgd import SgdJob, limit_of, logical_sgd, plan_sgd


class FileSource:
    """The entries of a file in their order, `at_once` of them in memory; share: of them held out, by seed.

    A `Source` that can be pickled: what travels is what the first walk found, ids and counts.
    """

    def __init__(self, found: Scan, at_once: int, share: float = 0.0, seed: int = 0) -> None:
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

    def pieces(self, visits: Ints, threads: int) -> dict[str, Pieces]:
        """The entries of some row blocks' visits, as `lay_out` has them."""
        mine = np.zeros(self.order.rows, bool)
        mine[self.order.row_block[visits]] = True
        block, path = self.rows.block_of(), self.source.found.path
        kept: list[Chunk] = []
        for rows, cols, values in self.source.chunks():
            keep = mine[block[rows]]
            kept.append((rows[keep], cols[keep], values[keep]))
        rows, cols, values = (np.concatenate(part) for part in zip(*kept, strict=True))
        entries = Data.from_arrays(rows, cols, values, self.source.shape)
        with Threads(threads).open() as crew:
            tallied = tally((rows, cols, values), self.rows, self.cols, self.order, crew)
            if not np.array_equal(tallied.weight[visits], self.weight[visits]):
                raise DataError(f"{path}: it is not what the driver has read; give every machine the same file")
            laid = lay_out(entries, self.rows, self.cols, self.order, tallied, crew, mean=self.mean, scale=self.scale)
        if self.once and laid.repeats:
            raise DataError(
                f"{path}: pairs are rated more than once, {laid.repeats} of them among the rows of one node; settle "
                "them in the file (`stretto info` lists them) or pass duplicates='keep' to learn from every one"
            )
        here, there = laid.ptr, _pointers(self.weight)
        spans = [(int(there[v]), slice(int(here[v]), int(here[v + 1]))) for v in visits.tolist()]
        arrays: dict[str, Any] = {"u": laid.u, "i": laid.i, "r": laid.r}
        return {name: [Piece(at, array[span]) for at, span in spans] for name, array in arrays.items()}


def count_from_file(
    problem: Problem, source: FileSource, crew: Crew, *, seed: int, profile: str, width: int, physical: Physical
) -> Counted:
    """Walk the file, count and plan."""
    seen = survey(source, crew)
    logical = logical_sgd(problem, seen, seed=seed, profile=profile, width=width)
    weight = np.zeros(len(logical.order), np.int64)
    for chunk in source.chunks():
        weight += tally(chunk, logical.rows, logical.cols, logical.order, crew).weight
    plan = plan_sgd(problem, logical, weight, physical)
    refuse_rank(problem, source.shape)
    refuse_if_over(plan.cost.state_bytes, physical.memory or 0, "give a larger memory=, or lower rank")
    refuse_time(problem, plan)
    return Counted(plan, seen)


def lay_out_from_file(
    problem: Problem, counted: Counted, source: FileSource, crew: Crew, *, test: Entries | None, once: bool
) -> SgdJob:
    """Draw the first factors; ratings are read where they are needed."""
    plan, seen = counted.plan, counted.seen
    rows, cols, order, weight = plan.logical.rows, plan.logical.cols, plan.order, plan.weight
    mean, scale = units(problem, seen)
    # Nobody touches these, so they take no room: the driver runs no visit.
    u, i, r = (Pages((len(source),), kind).array for kind in (index_type(rows), index_type(cols), np.float32))
    blocks = Blocks(_pointers(weight), u, i, r, rows.bounds[order.row_block], cols.bounds[order.col_block], 0)
    factors = new_factors(problem, rows, cols, seen.empty, plan.logical.seed, crew, mean=mean, scale=scale)
    held = None if test is None else Held.out(test, rows, cols)
    reader = FileReader(source, rows, cols, order, weight, mean, scale, once)
    return SgdJob(problem, plan, blocks, factors, limit_of(problem, seen), crew, held, reader)


def _pointers(weight: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(weight)]).astype(np.int64)
