"""SGD on data and factors larger than memory: the same plan, the same bits, a tile of the grid at a time.

With the exchange order, an aligned tile of m × m blocks is visited for m steps by itself, and inside it the order is
again the exchange order of m blocks. So the grid is walked tile by tile: read the entries of the tile, its rows and its
columns; make its visits; write the rows and columns back. While a tile is worked on, the next tile's entries are read.
Nothing of this is logical: the tile's side follows from the memory budget, and the result is that of the whole grid in
memory, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import Cut
from stretto.kernels.lanes import padded
from stretto.kernels.random import fill_worker
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Plan
from stretto.runtime.blockfile import BlockFiles, RowFile
from stretto.runtime.crew import Crew
from stretto.runtime.job import Report
from stretto.runtime.layout import Survey, arrange, index_type, scatter, tally
from stretto.runtime.source import Source
from stretto.runtime.step import Step, make_step
from stretto.schedule.order import Ints, Order
from stretto.schedule.rotation import independent, rotation
from stretto.state.rows import Rows

from .mf_base import Factors, Problem, squares_of, units
from .mf_measure import Held, mean_cost, named
from .mf_sgd import limit_of, sgd_step

# Kept for every row and column besides the factors: its count, its place, its block.
_PER_INDEX = 24


class Tiles:
    """The walk over an exchange order of B blocks in tiles of side m."""

    def __init__(self, blocks: int, side: int, rows: Cut, cols: Cut, weight: Ints) -> None:
        self.blocks, self.side, self.rows, self.cols, self.weight = blocks, side, rows, cols, weight
        self.groups = blocks // side
        self.order: Order = rotation(side)

    def __len__(self) -> int:
        return self.groups * self.groups

    def groups_of(self, tile: int) -> tuple[int, int]:
        """(row group, column group) of a tile; in one sweep over the row groups no column group repeats."""
        sweep, row_group = divmod(tile, self.groups)
        return row_group, row_group ^ sweep

    def visits(self, tile: int) -> Ints:
        """[m²] the plan's visits of a tile, in the tile's own order."""
        sweep, row_group = divmod(tile, self.groups)
        step, row = np.divmod(np.arange(self.side * self.side, dtype=np.int64), self.side)
        return (sweep * self.side + step) * self.blocks + row_group * self.side + row

    def runs(self, tile: int) -> list[tuple[int, int]]:
        """Runs of neighbouring visits (first, last + 1) that make up a tile."""
        firsts = self.visits(tile)[:: self.side].tolist()
        return [(first, first + self.side) for first in firsts]

    def entries(self, tile: int) -> int:
        return int(self.weight[self.visits(tile)].sum())

    def span(self, cut: Cut, group: int) -> tuple[int, int]:
        """Positions of the rows of a group of blocks."""
        return int(cut.bounds[group * self.side]), int(cut.bounds[(group + 1) * self.side])

    def local_bounds(self, cut: Cut, group: int) -> Ints:
        """[m + 1] bounds of a group's blocks, counted from its first row."""
        piece = cut.bounds[group * self.side : (group + 1) * self.side + 1]
        local: Ints = piece - piece[0]
        return local

    def need(self, per_entry: int, per_row: int) -> int:
        """Bytes held while tiles are worked on: two tiles' entries, one tile's rows and columns."""
        entries = max(self.entries(tile) for tile in range(len(self)))
        spans = [
            max(b - a for a, b in (self.span(cut, g) for g in range(self.groups))) for cut in (self.rows, self.cols)
        ]
        return 2 * entries * per_entry + sum(spans) * per_row


def choose_side(plan: Plan, per_entry: int, per_row: int) -> int:
    """The largest tile that fits the budget; refuses when not even one block does."""
    logical, budget = plan.logical, plan.physical.memory
    kept = (len(logical.rows) + len(logical.cols)) * _PER_INDEX
    side = logical.order.rows
    while True:
        need = kept + Tiles(logical.order.rows, side, logical.rows, logical.cols, plan.weight).need(per_entry, per_row)
        if budget is None or need <= budget or side == 1:
            break
        side //= 2
    refuse_if_over(need, budget, "raise the budget, lower the rank, or raise width= for smaller blocks")
    return side


class StreamedSgdJob:
    """SGD over blocks and factors on disk."""

    def __init__(
        self, problem: Problem, plan: Plan, blocks: BlockFiles, tiles: Tiles, seen: Survey, folder: Path, crew: Crew
    ) -> None:
        self.problem, self.plan, self.crew, self.tiles = problem, plan, crew, tiles
        self.limit = limit_of(problem, seen)
        self.items, self.repeats = int(plan.weight.sum()), 0
        self.held: Held | None = None
        self._blocks = blocks
        rows, cols = plan.logical.rows, plan.logical.cols
        wide, bias = padded(problem.rank), int(problem.biases)
        states = {"W": (0, wide), "H": (1, wide), "b": (0, bias), "c": (1, bias)} | squares_of(problem)
        # name → (file, 0 for rows and 1 for columns); no rows where a state is not wanted
        self._files: dict[str, tuple[RowFile, int]] = {}
        for name, (side, width) in states.items():
            count = len((rows, cols)[side]) if width else 0
            self._files[name] = RowFile(folder / f"{name}.rows", count, max(width, 1)), side
        spans = [max(b - a for a, b in (tiles.span(cut, g) for g in range(tiles.groups))) for cut in (rows, cols)]
        self._room = {
            name: np.zeros(
                (spans[side] if file.rows else 0, file.width) if file.width > 1 else (spans[side] if file.rows else 0),
                np.float32,
            )
            for name, (file, side) in self._files.items()
        }
        most = max(tiles.entries(tile) for tile in range(len(tiles)))
        self._entries = [tuple(np.empty(most, d) for d in blocks.dtypes) for _ in range(2)]
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="stretto-read")
        self._ahead: tuple[int, Future[None]] | None = None
        self._inside: int | None = None
        maps = {name: file.mapped() for name, (file, _) in self._files.items()}
        self.factors = Factors(
            Rows("W", maps["W"], problem.rank, rows),
            Rows("H", maps["H"], problem.rank, cols),
            Rows("b", maps["b"], 1, rows),
            Rows("c", maps["c"], 1, cols),
            *units(problem, seen),
            {
                name: Rows(name, maps[name], problem.rank if width > 1 else 1, (rows, cols)[side])
                for name, (side, width) in squares_of(problem).items()
            },
        )

    # --- tiles ------------------------------------------------------------------------------------------------------

    def _piece(self, name: str, tile: int) -> tuple[int, NDArray[np.float32]]:
        """(first row, buffer) of one state's share of a tile."""
        file, side = self._files[name]
        if not file.rows:
            return 0, self._room[name]
        cut = (self.plan.logical.rows, self.plan.logical.cols)[side]
        first, last = self.tiles.span(cut, self.tiles.groups_of(tile)[side])
        return first, self._room[name][: last - first]

    def _fetch(self, tile: int) -> None:
        count = self.tiles.entries(tile)
        u, i, r = self._entries[tile % 2]
        self._blocks.read(self.tiles.runs(tile), (u[:count], i[:count], r[:count]))

    def enter(self, tile: int) -> None:
        """Bring a tile's entries, rows and columns into memory, and start reading the next tile's entries."""
        if self._ahead is not None and self._ahead[0] == tile:
            self._ahead[1].result()
        else:
            if self._ahead is not None:
                self._ahead[1].result()
            self._fetch(tile)
        following = (tile + 1) % len(self.tiles)
        # Two buffers take turns; an odd number of tiles is one tile, which stays where it is.
        if len(self.tiles) > 1:
            self._ahead = following, self._reader.submit(self._fetch, following)
        for name, (file, _) in self._files.items():
            first, buffer = self._piece(name, tile)
            if file.rows:
                file.read(first, buffer)
        self._inside = tile

    def flush(self) -> None:
        """Write the rows and columns now in memory back to their files."""
        if self._inside is None:
            return
        for name, (file, _) in self._files.items():
            first, buffer = self._piece(name, self._inside)
            if file.rows:
                file.write(first, buffer)

    def _leave(self) -> None:
        self.flush()
        self._inside = None

    # --- what a job does --------------------------------------------------------------------------------------------

    def steps(self, epoch: int) -> Sequence[Step]:
        """One pass for each tile."""
        return [self._tile_step(epoch, tile) for tile in range(len(self.tiles))]

    def _tile_step(self, epoch: int, tile: int) -> Step:
        tiles, logical = self.tiles, self.plan.logical
        visits = tiles.visits(tile)
        ptr = np.concatenate([[0], np.cumsum(self.plan.weight[visits])]).astype(np.int64)
        u, i, r = self._entries[tile % 2]
        row_group, col_group = tiles.groups_of(tile)
        base = tiles.local_bounds(logical.rows, row_group), tiles.local_bounds(logical.cols, col_group)
        arrays = (ptr, u, i, r, base[0][tiles.order.row_block], base[1][tiles.order.col_block])
        states = tuple(self._piece(name, tile)[1] for name in ("W", "H", "b", "c"))
        squares = tuple(self._piece(name, tile)[1] for name in self.factors.squares)
        enter: Callable[[bool], None] = lambda fresh: self.enter(tile)  # noqa: E731
        step = sgd_step(self.problem, tiles.order, epoch, self.factors.scale, self.limit, arrays, states, squares)
        return replace(step, before=enter, after=self._leave, visits=visits)

    def report(self, epoch: int, steps: Sequence[Step]) -> Report:
        """The loss met on the way through the epoch, and the held-out error after it."""
        loss = self.problem.loss
        cost = mean_cost(math.fsum(step.total() for step in steps), self.items, loss, self.factors.scale)
        metrics = named("train", cost, loss)
        if self.held is not None:
            metrics |= self.held.metrics(self.factors, loss, self.crew)
        return Report(cost, metrics)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Factors, biases and squared gradients, mapped from disk."""
        self.flush()
        return self.factors.arrays()

    # --- getting ready ----------------------------------------------------------------------------------------------

    def draw(self, seed: int, empty: tuple[NDArray[np.bool_], NDArray[np.bool_]]) -> None:
        """First factors, group by group: the same numbers as in memory. Squared gradients start at 1."""
        logical = self.plan.logical
        for axis, (name, cut) in enumerate((("W", logical.rows), ("H", logical.cols))):
            standing = np.empty(len(cut), np.int64)
            standing[cut.place] = np.arange(len(cut))
            file, nothing = self._files[name][0], empty[axis][standing]
            half = math.sqrt(3.0) * self.problem.spread
            for group in range(self.tiles.groups):
                first, last = self.tiles.span(cut, group)
                buffer = self._room[name][: last - first]
                bounds = self.tiles.local_bounds(cut, group)
                args = (bounds, standing[first:last], seed, axis, -half, half, self.problem.rank, buffer)
                self.crew.run(
                    make_step("draw", fill_worker, independent(len(bounds) - 1), np.diff(bounds), *args), "exact"
                )
                buffer[nothing[first:last]] = 0.0
                file.write(first, buffer)
        for name, state in self.factors.squares.items():
            for group in range(self.tiles.groups if len(state.array) else 0):
                first, last = self.tiles.span(state.cut, group)
                self._room[name][...] = 1.0
                self._files[name][0].write(first, self._room[name][: last - first])

    def arrange(self) -> None:
        """Put every block in visiting order, tile by tile, and count repeated pairs."""
        tiles, logical = self.tiles, self.plan.logical
        for tile in range(len(tiles)):
            self._fetch(tile)
            visits, count = tiles.visits(tile), tiles.entries(tile)
            ptr = np.concatenate([[0], np.cumsum(self.plan.weight[visits])]).astype(np.int64)
            row_group, col_group = tiles.groups_of(tile)
            rows = Cut(logical.rows.place[:0], tiles.local_bounds(logical.rows, row_group))
            cols = Cut(logical.cols.place[:0], tiles.local_bounds(logical.cols, col_group))
            u, i, r = (a[:count] for a in self._entries[tile % 2])
            self.repeats += arrange(ptr, rows, cols, tiles.order, u, i, r, self.crew)
            self._blocks.write(tiles.runs(tile), (u, i, r))

    def close(self) -> None:
        """Stop reading ahead and close the files."""
        self._reader.shutdown(wait=True)
        self._blocks.close()
        for file, _ in self._files.values():
            file.close()


def stream_sgd(
    problem: Problem, plan: Plan, source: Source, seen: Survey, folder: Path, crew: Crew, *, seed: int
) -> StreamedSgdJob:
    """Cut the entries of `source` into blocks on disk and make the job that works on them."""
    rows, cols, order = plan.logical.rows, plan.logical.cols, plan.order
    tiles = Tiles(order.rows, plan.physical.tile or order.rows, rows, cols, plan.weight)
    ptr = np.concatenate([[0], np.cumsum(plan.weight)]).astype(np.int64)
    blocks = BlockFiles(folder, ptr, index_type(rows), index_type(cols))
    mean, scale = units(problem, seen)
    for chunk in source.chunks():
        tallied = tally(chunk, rows, cols, order, crew)
        grouped_ptr, u, i, r = scatter(chunk, rows, cols, order, tallied, crew, mean, scale)
        blocks.append(grouped_ptr, (u, i, r))
    job = StreamedSgdJob(problem, plan, blocks, tiles, seen, folder, crew)
    job.arrange()
    job.draw(seed, seen.empty)
    return job
