"""Rotation schedule for programs (`st.schedule.rotation`): P blocks rotate among P logical workers.

A round is a full rotation: every worker meets every block once. In turn c, worker p has block (p + c) mod P. Blocks
move from neighbour to neighbour, as in the ring of SMPFRAME's static engine. With ring=False they are exchanged in
pairs (`orders.rotation`), which needs a power of two. A job is a `Turn(worker, block)`. It reads and writes only the
data of its worker and its block, in the state in which earlier jobs left them.

Three options decide *when* a job may start and never change a result:

    sync="micro"        a barrier after every turn
    sync="macro"        none before the round ends: a job waits for its worker's last job and its block's last job
    first="heaviest"    of the ready jobs, the one that most work depends on starts first, by `weight`
    first="given"       turn by turn, worker 0 first

With three workers and a heavy job (0, 0), `micro` makes all workers wait for it; with `macro` worker 1 continues with
block 2 as soon as worker 2 has finished with it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError

from .checks import whole
from .orders import rotation as orders
from .orders.order import Ints, Order, part_of
from .pipeline import CHOOSE, UPDATE, Pipeline
from .spec import Chooser, Schedule
from .waiting import JobOrder

SYNC, FIRST = ("macro", "micro"), ("heaviest", "given")


class Turn(NamedTuple):
    """A job of a rotation."""

    worker: int  # logical worker: its part of the data
    block: int  # block of the parameters


def rotation(
    blocks: int, *, ring: bool = True, sync: str = "macro", first: str = "heaviest", weight: ArrayLike | None = None
) -> Rotation:
    """Blocks rotate among the workers: every worker meets every block once a round. Jobs are `Turn(worker, block)`.

    Parameters
    ----------
    blocks : int
        Number of blocks, and of logical workers.
    ring : bool, default True
        Blocks move from neighbour to neighbour. False exchanges them in pairs, which needs a power of two.
    sync : {"macro", "micro"}, default "macro"
        "micro" puts a barrier after every turn. "macro" has none before the round ends: a job waits for its worker's
        and its block's last job. Changes no number.
    first : {"heaviest", "given"}, default "heaviest"
        Which ready job starts first: the one that most work depends on, or the one of worker 0. Changes no number.
    weight : array_like [blocks, blocks] or None, default None
        Work of (worker, block); None: equal.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> import stretto as st
    >>> st.schedule.rotation(3).order.col_block.tolist()
    [0, 1, 2, 1, 2, 0, 2, 0, 1]
    """
    for name, value, allowed in (("sync", sync, SYNC), ("first", first, FIRST)):
        if value not in allowed:
            raise PlanError(f"rotation: {name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    work = None
    if weight is not None:
        work = np.asarray(weight)
        if work.shape != (blocks, blocks) or work.dtype.kind not in "iuf" or not (work >= 0).all():
            raise PlanError(
                f"rotation: weight is the work of each (worker, block), {blocks} × {blocks} numbers of at least 0; "
                f"got an array of shape {work.shape}, {work.dtype}"
            )
        work = np.rint(work).astype(np.int64)
    return Rotation(blocks, ring, sync, first, work)


@dataclass(frozen=True)
class Rotation(Schedule):
    """See `rotation`. Fields that change no result are not in the `repr`, which is part of the fingerprint."""

    blocks: int
    ring: bool = True
    sync: str = field(default="macro", repr=False)
    first: str = field(default="heaviest", repr=False)
    weight: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole("blocks", self.blocks)
        if self.blocks < 1:
            raise PlanError(f"rotation needs at least one block, got blocks={self.blocks}")

    @cached_property
    def order(self) -> Order:
        """Worker p is row block p, block b column block b; job v is visit v."""
        return orders.rotation(self.blocks, "ring" if self.ring else "exchange")

    @cached_property
    def work(self) -> Ints:
        """[V] work of each job."""
        if self.weight is None:
            return np.ones(len(self.order), dtype=np.int64)
        return np.ascontiguousarray(self.weight[self.order.row_block, self.order.col_block])

    @cached_property
    def waiting(self) -> JobOrder:
        """Which jobs wait for which, and which ready job starts first."""
        order, work = self.order, self.work
        every = np.arange(len(order), dtype=np.int64)
        waves = tuple(every.reshape(self.blocks, self.blocks)) if self.sync == "micro" else ()
        if self.first == "given":
            return JobOrder(order, waves, every)
        hangs = np.zeros(len(order), dtype=np.int64)
        for part in waves or (every,):  # jobs behind a barrier all wait for it
            hangs[part] = part_of(order, part).tails(work[part]) if waves else order.tails(work)
        place = np.empty(len(order), dtype=np.int64)
        place[np.lexsort((every, -hangs))] = every
        return JobOrder(order, waves, place)

    def named(self, jobs: Ints) -> list[Any]:
        """The worker and the block of each job."""
        workers, blocks = self.order.row_block[jobs].tolist(), self.order.col_block[jobs].tolist()
        return [Turn(worker, block) for worker, block in zip(workers, blocks, strict=True)]

    def start(self, size: int, seed: int, data: Any = None) -> Chooser:
        """A chooser without state: every round is the same."""
        return _Everything(len(self.order))

    def explain(self) -> str:
        """The spec in words."""
        way = "from neighbour to neighbour" if self.ring else "in pairs"
        barrier = "every turn" if self.sync == "micro" else "a full rotation"
        by = "equal weights" if self.weight is None else "weights given"
        first = f"heaviest first ({by})" if self.first == "heaviest" else "in the order given"
        return (
            f"rotation of {self.blocks} blocks over {self.blocks} logical workers, {way}; barrier after {barrier}; "
            f"ready jobs {first}"
        )

    def span(self, workers: int) -> int:
        """Time of a round on n workers, in units of `weight`."""
        return max((end for *_, end in played(self.waiting, self.work, workers)), default=0)


class _Everything(Chooser):
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def choose(self) -> Ints:
        return np.arange(self._jobs, dtype=np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Nothing to do: there is no state."""


def played(turns: JobOrder, weight: Ints, workers: int) -> list[tuple[int, int, int, int]]:
    """Simulate one round as the runtime runs it, where a job takes its weight: (job, worker, start, end)."""
    pipeline = Pipeline(1, rounds=1)
    running: list[tuple[int, int, Any]] = []
    idle = list(range(workers - 1, -1, -1))
    now, log = 0, []
    while True:
        while idle and (task := pipeline.take()) is not None:
            if task.stage == CHOOSE:
                pipeline.chosen(task, len(turns), turns)
            elif task.stage == UPDATE:
                worker, end = idle.pop(), now + int(weight[task.job])
                log.append((task.job, worker, now, end))
                heapq.heappush(running, (end, worker, task))
            else:
                pipeline.aggregated(task)
        if not running:
            return log
        now, worker, task = heapq.heappop(running)
        idle.append(worker)
        pipeline.updated(task)
