"""Run a step whose arrays are in files, tile by tile, reading the next tile while one is processed.

What a tile needs follows from the step's spec alone: the ranges of its visits, row blocks and column blocks. So the
same code serves every model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core import claims
from stretto.plan.arrays import Ranges, StepSpec
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Plan
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.tiling import Tiling, choose_tiling

from .step import BlockStep, StepOutcome


class OneTile(Protocol):
    """Makes some visits of a step: `Crew.run_visits`."""

    def __call__(
        self, step: BlockStep, profile: str, finished: Ints, seconds: float | None, only: Ints, *, drain: bool
    ) -> StepOutcome: ...


def cut_arrays(spec: StepSpec, holds: Callable[[str], bool]) -> dict[str, Ranges]:
    """The arrays of a step that are loaded in parts: partitioned along their first axis, and in a file."""
    return {name: spec.ranges(name) for name in spec.cut() if spec.ranges(name).axis == 0 and holds(name)}


def bytes_held(order: Order, ranges: dict[str, tuple[Ranges, int]]) -> Callable[[Ints], int]:
    """function(visits) -> bytes of everything that they touch. `ranges`: by name, with the bytes of one row."""

    def held(visits: Ints) -> int:
        blocks = blocks_of(order, visits)
        total = 0
        for cut, row in ranges.values():
            which = blocks[cut.by]
            sizes = np.maximum(cut.last[which] - cut.first[which], 0)
            total += int(sizes.sum()) * row
        return total

    return held


def blocks_of(order: Order, visits: Ints) -> dict[str, Ints]:
    """The blocks that visits touch, by what arrays are partitioned by."""
    return {
        "visits": visits,
        "rows": np.unique(order.row_block[visits]),
        "cols": np.unique(order.col_block[visits]),
    }


def tiling_of(
    spec: StepSpec, order: Order, args: Mapping[str, Any], budget: int, holds: Callable[[str], bool]
) -> Tiling:
    """The tiles of a step within a budget. `args`: at least the arrays in files, with their shapes and types."""
    cuts = cut_arrays(spec, holds)
    rows = {name: (cut, _row_bytes(args[name])) for name, cut in cuts.items()}
    return choose_tiling(order, bytes_held(order, rows), budget)


def side_within(plan: Plan, budget: int, kept: int, remedy: str) -> int:
    """The side of the tiles with which a plan runs within a budget; NotEnoughMemory if not even one block fits.

    Parameters
    ----------
    plan : Plan
        The grid.
    budget : int
        Bytes.
    kept : int
        Bytes that are in memory all the time.
    remedy : str
        What to do, for the message.
    """
    sides, need = [], 0
    for step in plan.steps:
        known = {name for name, array in step.arrays.items() if array.dtype}
        found = tiling_of(step, plan.order, step.arrays, max(0, budget - kept), known.__contains__)
        sides.append(found.side)
        need = max(need, kept + found.need)
    refuse_if_over(need, budget, remedy)
    return min(sides)


def _row_bytes(array: Any) -> int:
    return int(array.nbytes) // max(1, int(array.shape[0]))


class TileWalk:
    """Runs the steps of one crew tile by tile. `close` ends its thread."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._tilings: dict[int, tuple[StepSpec, Tiling]] = {}
        self._reader: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, Future[None]] | None = None
        self.waited = 0.0  # seconds in which no visit was made because a tile was not loaded

    def applies(self, step: BlockStep) -> bool:
        """Whether some of a step's arrays are in files."""
        return step.spec is not None and any(self.disk.holds(arg) for arg in _arrays(step.args))

    def run(
        self, one: OneTile, step: BlockStep, profile: str, finished: Ints | None, seconds: float | None, *, drain: bool
    ) -> StepOutcome:
        """Make every visit that is not finished; as `Crew.run`."""
        assert step.spec is not None
        if step.before is not None:
            step.before(finished is None)
        bare = replace(step, before=None, after=None)
        args = step.spec.flat(step.args)
        tiling = self._tiling(step, args)
        cuts = cut_arrays(step.spec, lambda name: self.disk.holds(args[name]))
        held = bytes_held(step.order, {name: (cut, _row_bytes(args[name])) for name, cut in cuts.items()})

        def fit(tile: Ints, following: Ints) -> bool:
            """Whether two tiles fit together; for tiles that are not neighbours, which occurs after a resume."""
            return held(np.concatenate([tile, following])) <= self.disk.budget

        made = np.zeros(len(step.order), bool)
        if finished is not None:
            made[finished] = True
        begun, logs = time.perf_counter(), []
        done: StepOutcome | None = None
        left = [k for k, tile in enumerate(tiling.tiles) if not made[tile].all()]
        # A run that was interrupted after its last visit has none left.
        for k, after in zip(left, [*left[1:], None][: len(left)], strict=True):
            tile = tiling.tiles[k]
            self._enter(k, lambda which=tile: self._load(step.order, cuts, args, which))  # type: ignore[misc]
            if after is not None and tiling.ahead and (after == k + 1 or fit(tile, tiling.tiles[after])):
                self._read_ahead(after, lambda which=tiling.tiles[after]: self._load(step.order, cuts, args, which))  # type: ignore[misc]
            before = np.flatnonzero(made)
            only = np.union1d(before, tile)
            offset = time.perf_counter() - begun
            remaining = None if seconds is None else max(0.0, seconds - offset)
            done = one(bare, profile, before, remaining, only, drain=drain)
            log = done.log.copy()
            log[:, 2:] += int(offset * 1e9)
            logs.append(log)
            made[log[:, 0]] = True
            if done.failed is not None or done.interrupted or not made[tile].all():
                break
            self._leave(step.order, cuts, args, tile, None if after is None else tiling.tiles[after])
        self._settle()
        whole = bool(made.all()) and not (done is not None and done.interrupted)
        if whole and step.after is not None and (done is None or done.failed is None):
            step.after()
        self.disk.release_all()
        return StepOutcome(
            step,
            time.perf_counter() - begun,
            np.concatenate(logs) if logs else np.zeros((0, claims.LOG_COLUMNS), np.int64),
            finished=None if whole else np.flatnonzero(made),
            failed=None if done is None else done.failed,
            interrupted=done is not None and done.interrupted,
        )

    def _tiling(self, step: BlockStep, args: dict[str, Any]) -> Tiling:
        assert step.spec is not None
        kept = self._tilings.get(id(step.spec))
        if kept is None:
            budget, holds = self.disk.budget, lambda name: self.disk.holds(args[name])
            found = tiling_of(step.spec, step.order, args, budget, holds)
            kept = self._tilings[id(step.spec)] = (step.spec, found)
        return kept[1]

    # --- loading and releasing -------------------------------------------------------------------------------------

    def _load(self, order: Order, cuts: dict[str, Ranges], args: dict[str, Any], tile: Ints) -> None:
        blocks = blocks_of(order, tile)
        for name, cut in cuts.items():
            for first, last in cut.spans(blocks[cut.by]):
                self.disk.load(args[name], first, last)

    def _leave(
        self, order: Order, cuts: dict[str, Ranges], args: dict[str, Any], tile: Ints, following: Ints | None
    ) -> None:
        """Release what the next tile does not need."""
        mine = blocks_of(order, tile)
        needed = {} if following is None else blocks_of(order, following)
        for name, cut in cuts.items():
            which = np.setdiff1d(mine[cut.by], needed.get(cut.by, np.zeros(0, np.int64)))
            for first, last in cut.spans(which):
                self.disk.release(args[name], first, last)

    def _enter(self, tile: int, load: Callable[[], None]) -> None:
        began = time.perf_counter()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].result()
        if ahead is None or ahead[0] != tile:
            load()
        self.waited += time.perf_counter() - began

    def _read_ahead(self, tile: int, load: Callable[[], None]) -> None:
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, thread_name_prefix="stretto-read")
        self._ahead = tile, self._reader.submit(load)

    def _settle(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].result()

    def close(self) -> None:
        self._settle()
        if self._reader is not None:
            self._reader.shutdown(wait=True)


def _arrays(args: tuple[Any, ...]) -> list[NDArray[Any]]:
    found: list[NDArray[Any]] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            found.append(arg)
        elif isinstance(arg, tuple):
            found += _arrays(arg)
    return found
