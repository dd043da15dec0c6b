"""Ways to run a plan of `executor_plans`: each executor, and runs that stop on one executor and go on on another."""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as some
from numpy.typing import NDArray

import stretto as st
from executor_plans import PlanCase
from executor_world import World, in_memory
from ring_fleet import InProcess, QueueHosts
from stretto.runtime.blocks.step import BlockStep, StepOutcome
from stretto.runtime.blocks.tiles import tiling_of
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order


class WatchedDisk(Disk):
    """A disk that counts which rows were asked for and not released."""

    def __init__(self, folder: Path, budget: int) -> None:
        super().__init__(folder, budget)
        self.most = 0  # bytes held at a time
        self._held: dict[int, tuple[int, NDArray[np.bool_]]] = {}  # by address: bytes of a row, and which are held
        self._lock = threading.Lock()  # the next tile is read on a thread

    def load(self, array: NDArray[Any], first: int, last: int) -> None:
        super().load(array, first, last)
        with self._lock:
            new = array.nbytes // max(1, len(array)), np.zeros(len(array), bool)
            self._held.setdefault(array.ctypes.data, new)[1][first:last] = True
            self.most = max(self.most, sum(row * int(held.sum()) for row, held in self._held.values()))

    def release(self, array: NDArray[Any], first: int = 0, last: int | None = None) -> None:
        super().release(array, first, last)
        with self._lock:
            if array.ctypes.data in self._held:
                self._held[array.ctypes.data][1][first : len(array) if last is None else last] = False

    def release_all(self) -> None:
        super().release_all()
        with self._lock:
            self._held.clear()

    def check(self, world: World) -> None:
        """No more was held than the budget allows, or than the smallest tiles need where that is more."""
        least = max(
            tiling_of(step.spec, step.order, step.spec.flat(step.args), 0, self._holder(step)).need
            for step in world.items()
            if step.spec is not None
        )
        assert self.most <= max(self.budget, least), (self.most, self.budget, least)

    def _holder(self, step: BlockStep) -> Callable[[str], bool]:
        assert step.spec is not None
        args = step.spec.flat(step.args)
        return lambda name: self.holds(args[name])


@dataclass(frozen=True)
class Executor:
    """kind: "memory", "disk", "cluster" or "simulated".

    workers : threads, of each node where there are several
    budget : of memory where arrays are in files, as a share of them; of a cluster's node, as a share of all arrays
    files : every how many-th array that is cut is in a file
    seed : of faults; 0: none
    """

    kind: str
    workers: int = 1
    nodes: int = 1
    budget: float = 1.0
    files: int = 1
    seed: int = 0
    serial: bool = False

    @contextlib.contextmanager
    def open(self, case: PlanCase, fails: int = -1) -> Iterator[tuple[World, Any]]:
        """The arrays of a plan where this executor wants them, and a crew."""
        if self.kind == "disk":
            with tempfile.TemporaryDirectory() as folder, self._runtime().crew() as crew:
                disk, count = WatchedDisk(Path(folder), 0), 0

                def allocate(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
                    nonlocal count
                    count += 1
                    return disk.array(name, shape, dtype) if count % self.files == 0 else in_memory(name, shape, dtype)

                world = World(case, self.workers, allocate, fails)
                disk.budget = int(self.budget * disk.nbytes)
                crew.stream(disk)
                yield world, crew
                disk.check(world)
                del world  # its arrays refer to the files
                disk.close()
            return
        with self._runtime().crew() as crew, tempfile.TemporaryDirectory() as folder:
            world = World(case, crew.workers, fails=fails)
            if self.budget < 1.0:  # of every node
                crew.stream(Disk(Path(folder), int(self.budget * sum(array.nbytes for array in world.arrays.values()))))
            yield world, crew

    def _runtime(self) -> Any:
        if self.serial:
            return st.Serial()
        if self.kind in ("memory", "disk"):
            return st.Threads(self.workers)
        if self.kind == "cluster":
            return _cluster(self.nodes, self.workers, self.seed)
        return _simulated(self.nodes, self.workers, self.seed)


def _cluster(nodes: int, threads: int, seed: int) -> InProcess:
    draw = random.Random(seed)
    made = InProcess(nodes, threads, **({"lose": 0.1, "twice": 0.1, "seed": seed} if seed % 5 == 1 else {}))

    def prepare(hosts: QueueHosts) -> None:
        calls, at, victim = 0, draw.randint(1, 30), draw.randrange(nodes)

        def before(what: str) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                hosts.kill(victim)

        hosts.before = before

    if seed > 1:
        made.prepare = prepare
    return made


def _simulated(nodes: int, threads: int, seed: int) -> st.Simulated:
    draw = random.Random(seed)
    faults: list[Any] = []
    if seed:
        for _ in range(draw.randint(1, 2)):
            faults.append(st.faults.Crash(draw.randrange(nodes), draw.uniform(0.0, 0.06), draw.choice([0.0, 0.01])))
        a, b = draw.sample(range(nodes), 2)
        faults.append(st.faults.Reset(a, b, draw.uniform(0.0, 0.03), draw.choice([1, 10**9]), draw.choice([0, 1])))
    return st.Simulated(
        nodes=nodes, threads=threads, seconds_per_item=1e-5, link="20Mbit", faults=faults, detect=0.01, seed=seed
    )


SERIAL = Executor("memory", serial=True)
IN_MEMORY = some.builds(Executor, some.just("memory"), some.integers(2, 3))
ON_DISK = some.builds(
    Executor,
    some.just("disk"),
    some.integers(1, 3),
    budget=some.sampled_from([0.0, 0.15, 0.25, 0.35, 0.5, 0.7, 0.9, 1.0]),
    files=some.sampled_from([1, 1, 2]),
    serial=some.booleans(),
).map(lambda made: Executor(**{**made.__dict__, "workers": 1}) if made.serial else made)
ON_CLUSTER = some.builds(
    Executor,
    some.just("cluster"),
    some.integers(1, 2),
    some.integers(2, 4),
    budget=some.sampled_from([1.0, 1.0, 0.0, 0.1, 0.3]),
    seed=some.integers(0, 20),
)
ON_SIMULATED = some.builds(
    Executor, some.just("simulated"), some.integers(1, 2), some.integers(2, 6), seed=some.integers(0, 30)
)
EXECUTORS = {"memory": IN_MEMORY, "disk": ON_DISK, "cluster": ON_CLUSTER, "simulated": ON_SIMULATED}


@dataclass(frozen=True)
class Leg:
    """A part of a run. until: the step in which it ends, counted over all epochs. seconds: it ends there so soon.

    ahead: whether the crew receives the next step in advance. share: instead of stopping by time, make about this share
    of the visits of the last step, no matter which (in memory, one after the other).
    """

    executor: Executor
    until: int
    seconds: float = 0.0
    ahead: bool = False
    share: float | None = None


def legs(executors: some.SearchStrategy[Executor], least: int, most: int) -> some.SearchStrategy[list[Leg]]:
    """What comes before the last part of a run."""
    leg = some.builds(
        Leg,
        executors,
        some.integers(0, 3),
        some.sampled_from([1e-4, 0.0, 3e-4, 1e-3, 5e-3]),
        some.booleans(),
        some.one_of(some.none(), some.none(), some.floats(0.0, 1.0)),
    )
    return some.lists(leg, min_size=least, max_size=most)


def run(case: PlanCase, before: Sequence[Leg], last: Executor, *, ahead: bool = False) -> dict[str, str]:
    """What is learned when parts of the run are made by one executor after the other."""
    at, finished, saved = 0, None, None
    for number, leg in enumerate([*before, None]):
        executor = last if leg is None else leg.executor
        if leg is not None and leg.share is not None:
            executor = SERIAL
        with executor.open(case) as (world, crew):
            if saved is not None:
                world.restore(saved)
            items = world.items()
            end = len(items) if leg is None else min(leg.until, len(items))
            told = ahead if leg is None else leg.ahead
            while at < len(items):
                stops = leg is not None and at >= end
                if stops and leg is not None and leg.share is not None:
                    done = _some_visits(crew, items[at], finished, leg.share, seed=case.seed + number)
                else:
                    seconds = leg.seconds if stops and leg is not None else None
                    then = items[at + 1] if told and at + 1 < len(items) and not stops else None
                    done = crew.run(items[at], "exact", finished, seconds, then=then)
                assert done.failed is None
                at, finished = (at + 1, None) if done.finished is None else (at, done.finished)
                if stops:
                    break
                # A simulated node that crashes reports what it has made: see test_a_crash_is_no_stop.
                assert finished is None or executor.kind == "simulated"
            crew.gather()
            if leg is None:
                return world.digest()
            saved = world.saved()
    raise AssertionError("a run has a last part")


def expected(case: PlanCase) -> dict[str, str]:
    """What the serial executor learns."""
    return run(case, [], SERIAL)


def _some_visits(crew: Any, step: BlockStep, finished: Ints | None, share: float, seed: int) -> StepOutcome:
    """Make some of the visits of a step that may be made, in memory."""
    if step.before is not None:
        step.before(finished is None)
    only = _closed(step.order, finished, share, np.random.default_rng(seed))
    done: StepOutcome = crew._visits(step, "exact", finished, None, only, drain=False)
    return done


def _closed(order: Order, finished: Ints | None, share: float, draw: np.random.Generator) -> Ints:
    """A set of visits that is closed under the order and has the finished ones among it."""
    made = np.zeros(len(order), bool)
    if finished is not None:
        made[finished] = True
    rows = np.bincount(order.row_block[made], minlength=order.rows)
    cols = np.bincount(order.col_block[made], minlength=order.cols)
    for _ in range(int(share * int((~made).sum()))):
        ready = np.flatnonzero(
            ~made & (rows[order.row_block] == order.row_turn) & (cols[order.col_block] == order.col_turn)
        )
        v = int(draw.choice(ready))
        made[v] = True
        rows[order.row_block[v]] += 1
        cols[order.col_block[v]] += 1
    return np.flatnonzero(made)
