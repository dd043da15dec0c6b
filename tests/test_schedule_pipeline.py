"""Rounds in flight, played in thousands of random ways: who may begin, what is read, where a run ends."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from stretto.errors import PlanError, RunError
from stretto.programs.params import Versions
from stretto.schedule.orders.order import Order
from stretto.schedule.pipeline import AGGREGATE, CHOOSE, UPDATE, WHOLE, Pipeline, StageTask
from stretto.schedule.waiting import JobOrder

GAMES = 1500


class Game:
    """A run with `workers` hands, in which chance says who ends next. Every rule is checked as it is played.

    jobs[t − 1]: jobs of round t; the schedule has nothing left after the last. The parameters are one number, the
    version, kept in a real ring.
    """

    def __init__(self, chance: random.Random, depth: int, jobs: list[int], *, turns: JobOrder | None = None) -> None:
        self.chance, self.depth, self.jobs, self.turns = chance, depth, jobs, turns
        self.pipeline = Pipeline(depth)
        self.array: NDArray[np.int64] = np.zeros(1, np.int64)
        self.versions = Versions({"version": self.array}, depth)
        self.log: list[StageTask] = []  # as they ended
        self.bad: set[StageTask] = set()  # tasks that will fail
        self.failed: list[StageTask] = []
        self.stop_at = len(jobs) + 1  # the round that turns out to be the last when it is aggregated

    def check_begins(self, task: StageTask) -> None:
        t, ended = task.round, set(self.log)
        assert task not in ended, "everything is done once"
        if task.stage == CHOOSE:
            assert t == 1 or StageTask(CHOOSE, t - 1) in ended
            assert self.pipeline.done >= t - self.depth
            assert t - self.pipeline.done <= self.depth, "no more rounds in flight than that"
        elif task.stage == UPDATE:
            assert StageTask(CHOOSE, t) in ended
            if self.turns is not None:
                for before in self.turns.order.predecessors(task.job):
                    assert StageTask(AGGREGATE, t, before) in ended
                wave = self.turns.wave_of[task.job]
                early = [job for job in range(self.jobs[t - 1]) if self.turns.waves and self.turns.wave_of[job] < wave]
                assert all(StageTask(AGGREGATE, t, job) in ended for job in early)
        else:
            assert self.pipeline.done == t - 1, "rounds are aggregated in order"
            needed = range(self.jobs[t - 1]) if task.job == WHOLE else [task.job]
            assert all(StageTask(UPDATE, t, job) in ended for job in needed)
            if task.job == WHOLE:
                self.versions.begin(t)["version"][0] = t
        self.check_reads(task)

    def check_reads(self, task: StageTask) -> None:
        """Before and after: nobody has written to what the task reads."""
        if task.stage != AGGREGATE:
            read = self.pipeline.reads(task.round)
            assert read == max(0, task.round - self.depth)
            assert self.versions.stamp(read) == read
            if self.turns is None:
                assert self.versions.read(read)["version"][0] == read

    def end(self, task: StageTask) -> None:
        self.check_reads(task)
        if task in self.bad:
            self.failed.append(task)
            self.pipeline.failed(task)
            return
        self.log.append(task)
        if task.stage == CHOOSE:
            more = task.round <= len(self.jobs)
            self.pipeline.chosen(task, self.jobs[task.round - 1] if more else 0, self.turns)
        elif task.stage == UPDATE:
            self.pipeline.updated(task)
        else:
            last = self.pipeline.last_job(task)
            if task.round == self.stop_at:
                self.pipeline.stop(after=self.stop_at)
            self.pipeline.aggregated(task)
            if last:
                self.versions.end(task.round)
                assert self.pipeline.done == task.round

    def play(self, workers: int) -> None:
        running: list[StageTask] = []
        while True:
            while len(running) < workers and self.chance.random() < 0.7:
                ready = self.pipeline.ready
                task = self.pipeline.take()
                assert ready == (task is not None)
                if task is None:
                    break
                self.check_begins(task)
                running.append(task)
            if running:
                self.end(running.pop(self.chance.randrange(len(running))))
            elif self.pipeline.over:
                return


def some(seed: int) -> tuple[random.Random, int, int, list[int]]:
    chance = random.Random(seed)
    jobs = [chance.randrange(1, 6) for _ in range(chance.randrange(1, 9))]
    return chance, chance.randrange(1, 6), chance.randrange(1, 6), jobs


def every_task(jobs: list[int], turns: JobOrder | None = None) -> list[StageTask]:
    """In the serial order; without the choice that finds nothing left."""
    found = []
    for t, count in enumerate(jobs, start=1):
        found.append(StageTask(CHOOSE, t))
        for job in range(count):
            found += [StageTask(UPDATE, t, job), *([StageTask(AGGREGATE, t, job)] if turns is not None else [])]
        found += [StageTask(AGGREGATE, t)] if turns is None else []
    return found


def test_every_way_to_play_keeps_the_rules_and_does_everything_once() -> None:
    for seed in range(GAMES):
        chance, depth, workers, jobs = some(seed)
        game = Game(chance, depth, jobs)
        game.play(workers)
        assert game.pipeline.done == len(jobs)
        assert sorted(game.log) == sorted([*every_task(jobs), StageTask(CHOOSE, len(jobs) + 1)])
        game.versions.put_back()
        assert game.array[0] == len(jobs)


def test_keys_follow_the_serial_order() -> None:
    jobs = [3, 1, 2]
    for turns in (None, JobOrder(Order("o", 3, 3, np.arange(3), np.arange(3)), (), np.arange(3))):
        keys = [task.key for task in every_task(jobs, turns)]
        assert keys == sorted(keys)


def test_a_failure_ends_the_run_where_the_serial_run_would_have_ended() -> None:
    """Whatever else fails or runs: all before the first bad task is done, and that one is among those reported."""
    for seed in range(GAMES):
        chance, depth, workers, jobs = some(seed)
        game = Game(chance, depth, jobs)
        serial = every_task(jobs)
        game.bad = set(chance.sample(serial, min(len(serial), chance.randrange(1, 4))))
        game.play(workers)
        first = min(game.bad, key=lambda task: task.key)
        assert min(game.failed, key=lambda task: task.key) == first
        assert set(serial[: serial.index(first)]) <= set(game.log)
        assert game.pipeline.done == first.round - 1
        assert game.pipeline.reached(first)


def test_a_failure_beyond_the_last_round_does_not_count() -> None:
    """The schedule had nothing left, and only something that ran ahead of it has failed, or the other way round."""
    for seed in range(GAMES):
        chance, depth, workers, jobs = some(seed)
        game, last = Game(chance, depth, jobs), chance.randrange(1, len(jobs) + 1)
        bad = chance.choice(every_task(jobs))
        game.bad = {bad}
        game.stop_at = last
        game.play(workers)
        met = bad.round <= last
        assert game.pipeline.done == (bad.round - 1 if met else last)
        assert game.pipeline.reached(bad) == met
        assert bad in game.failed or not met


def test_a_last_round_is_the_last_however_far_others_have_got() -> None:
    for seed in range(GAMES):
        chance, depth, workers, jobs = some(seed)
        game, last = Game(chance, depth, jobs), chance.randrange(0, len(jobs) + 1)
        game.stop_at = last
        if last == 0:
            game.pipeline.stop(after=0)
        game.play(workers)
        assert game.pipeline.done == last
        game.versions.put_back()
        assert game.array[0] == last


def test_depth_one_is_no_pipelining() -> None:
    """One task after another, as they would be written down."""
    game = Game(random.Random(0), 1, [2, 3])
    game.play(workers=1)
    assert [task for task in game.log if task.round <= 2] == every_task([2, 3])


def test_the_schedule_runs_ahead_and_the_most_urgent_go_first() -> None:
    pipeline = Pipeline(3)
    for t in (1, 2, 3):
        task = pipeline.take()
        assert task == StageTask(CHOOSE, t)
        pipeline.chosen(task, 2)
    taken = [pipeline.take() for _ in range(3)]
    assert taken == [StageTask(UPDATE, 1, 0), StageTask(UPDATE, 1, 1), StageTask(UPDATE, 2, 0)], (
        "old rounds first, then by urgency"
    )
    for task in taken[:2]:
        assert task is not None
        pipeline.updated(task)
    task = pipeline.take()
    assert task == StageTask(AGGREGATE, 1), "others wait for it"
    pipeline.aggregated(task)
    assert pipeline.take() == StageTask(CHOOSE, 4)


def random_turns(chance: random.Random) -> JobOrder:
    """An order over a small grid, with or without waves, in a random queue."""
    rows, cols, jobs = chance.randrange(1, 5), chance.randrange(1, 5), chance.randrange(1, 14)
    at = [np.array([chance.randrange(n) for _ in range(jobs)], dtype=np.int64) for n in (rows, cols)]
    cuts = sorted(chance.sample(range(1, jobs), chance.randrange(0, jobs))) if jobs > 1 else []
    waves = tuple(np.split(np.arange(jobs), cuts)) if chance.random() < 0.5 else ()
    place = np.array(chance.sample(range(jobs), jobs), dtype=np.int64)
    return JobOrder(Order("random", rows, cols, *at), waves, place)


def test_jobs_that_wait_for_each_other() -> None:
    for seed in range(GAMES):
        chance = random.Random(seed)
        turns = random_turns(chance)
        game = Game(chance, 1, [len(turns)] * 2, turns=turns)
        game.play(chance.randrange(1, 6))
        assert sorted(game.log) == sorted([*every_task(game.jobs, turns), StageTask(CHOOSE, 3)])


def test_a_failure_among_jobs_that_wait() -> None:
    for seed in range(GAMES):
        chance = random.Random(seed)
        turns = random_turns(chance)
        game = Game(chance, 1, [len(turns)] * 2, turns=turns)
        serial = every_task(game.jobs, turns)
        game.bad = set(chance.sample(serial, min(len(serial), 2)))
        game.play(chance.randrange(1, 6))
        first = min(game.bad, key=lambda task: task.key)
        assert min(game.failed, key=lambda task: task.key) == first
        assert set(serial[: serial.index(first)]) <= set(game.log)


def test_halting_leaves_the_parameters_whole() -> None:
    for seed in range(GAMES):
        chance, depth, workers, jobs = some(seed)
        turns = random_turns(chance) if seed % 2 else None
        game = Game(chance, 1 if turns else depth, [len(turns)] * 3 if turns else jobs, turns=turns)
        after = chance.randrange(0, 30)
        real = game.end

        def end(task: StageTask, game: Game = game, real: object = real, after: int = after) -> None:
            real(task)  # type: ignore[operator]
            if len(game.log) >= after:
                game.pipeline.halt()

        game.end = end  # type: ignore[method-assign]
        game.play(workers)
        done = game.pipeline.done
        applied = [task for task in game.log if task.stage == AGGREGATE]
        assert {task.round for task in applied} == set(range(1, done + 1))
        assert len(applied) == (sum(game.jobs[:done]) if turns else done)


def test_what_is_refused() -> None:
    with pytest.raises(PlanError, match="pipeline=0: at least one round is in flight"):
        Pipeline(0)
    pipeline = Pipeline(2)
    task = pipeline.take()
    assert task is not None
    with pytest.raises(PlanError, match="use pipeline=1"):
        pipeline.chosen(
            task, 1, JobOrder(Order("o", 1, 1, np.zeros(1, np.int64), np.zeros(1, np.int64)), (), np.arange(1))
        )
    with pytest.raises(RunError, match="update of round 1, job 0 was not under way"):
        pipeline.updated(StageTask(UPDATE, 1, 0))
    order = Order("o", 1, 2, np.zeros(2, np.int64), np.arange(2))
    with pytest.raises(PlanError, match="exactly one wave"):
        JobOrder(order, (np.array([0]),), np.arange(2))
    with pytest.raises(PlanError, match="as many places"):
        JobOrder(order, (), np.arange(3))
