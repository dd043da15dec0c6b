"""Rotation as a schedule of programs: same numbers whatever the switches, and the switches do what they say."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hs
from numpy.typing import NDArray

from programs_made import RUNTIMES, bits
from stretto.errors import PlanError
from stretto.programs.program import Program
from stretto.programs.run import run
from stretto.runtime.runtimes import Serial, Threads
from stretto.schedule.orders.bound import bound, play, play_waves
from stretto.schedule.turns import Rotation, Turn, played, rotation

BLOCKS = 4


class Pass(Program):
    """Row p and block b each become a mixture of both, so that any job out of turn changes the outcome."""

    def __init__(self, spec: Any) -> None:
        self.schedule = spec
        self.params = {"rows": np.arange(1.0, BLOCKS + 1), "blocks": np.linspace(2.0, 3.0, BLOCKS)}
        self.seen: list[Turn] = []

    def update(self, job: Turn, data: Any, params: Any) -> tuple[Turn, float, float]:
        a, b = params["rows"][job.worker], params["blocks"][job.block]
        return job, 0.7 * a + 0.3 * b + 0.01, 0.4 * a + 0.6 * b - 0.02

    def aggregate(self, results: list[tuple[Turn, float, float]], params: Any) -> None:
        for job, a, b in results:
            params["rows"][job.worker], params["blocks"][job.block] = a, b
            self.seen.append(job)

    def objective(self, data: Any, params: Any) -> float:
        return float(params["rows"].sum())


def skewed(blocks: int = BLOCKS, seed: int = 0) -> NDArray[np.int64]:
    return (np.random.default_rng(seed).pareto(1.0, (blocks, blocks)) * 50 + 1).astype(np.int64)


def variants(ring: bool) -> list[Rotation]:
    return [
        rotation(BLOCKS, ring=ring, sync=sync, first=first, weight=weight)
        for sync in ("macro", "micro")
        for first in ("heaviest", "given")
        for weight in (None, skewed())
    ]


def by_hand(spec: Rotation, rounds: int) -> NDArray[Any]:
    made = Pass(spec)
    for _ in range(rounds):
        for turn in range(BLOCKS):
            for worker in range(BLOCKS):
                job = Turn(worker, (worker + turn) % BLOCKS if spec.ring else worker ^ turn)
                made.aggregate([made.update(job, None, made.params)], made.params)
    return np.concatenate([made.params["rows"], made.params["blocks"]])


@pytest.mark.parametrize("ring", [True, False])
def test_the_switches_change_no_number(ring: bool) -> None:
    expect = by_hand(rotation(BLOCKS, ring=ring), 3)
    found = set()
    for spec in variants(ring):
        for runtime in RUNTIMES:
            result = run(Pass(spec), rounds=3, runtime=runtime, record=True)
            assert np.array_equal(np.concatenate(list(result.params.values())), expect)
            assert [made.read for made in result.record] == [0, 1, 2]
            assert result.updates == 3 * BLOCKS * BLOCKS
            found.add(bits(result))
    assert len(found) == 1
    assert not np.array_equal(by_hand(rotation(BLOCKS, ring=not ring), 3), expect)


def test_specs_that_change_no_number_have_one_repr() -> None:
    assert {repr(spec) for spec in variants(True)} == {"Rotation(blocks=4, ring=True)"}
    assert (
        "barrier after every turn; ready jobs in the order given" in rotation(4, sync="micro", first="given").explain()
    )
    text = rotation(4, ring=False, weight=skewed()).explain()
    assert "in pairs; barrier after a full rotation; ready jobs heaviest first (weights given)" in text
    assert "  aggregate   each job as soon as it is updated" in Pass(rotation(4)).explain()


def test_macro_has_no_barrier() -> None:
    """Job (0, 0) of the first turn ends only when (1, 2) of the second has begun."""
    begun = threading.Event()

    class Wait(Pass):
        def update(self, job: Turn, data: Any, params: Any) -> tuple[Turn, float, float]:
            if job == (0, 0):
                assert begun.wait(60)
            elif job == (1, 2):
                begun.set()
            return super().update(job, data, params)

    result = run(Wait(rotation(BLOCKS)), rounds=1, runtime=Threads(2))
    assert np.array_equal(np.concatenate(list(result.params.values())), by_hand(rotation(BLOCKS), 1))


def test_micro_has_a_barrier_after_every_turn() -> None:
    for runtime in RUNTIMES:
        made = Pass(rotation(BLOCKS, sync="micro", weight=skewed()))
        run(made, rounds=2, runtime=runtime)
        turns = [(job.block - job.worker) % BLOCKS for job in made.seen]
        assert turns == [turn for _ in range(2) for turn in range(BLOCKS) for _ in range(BLOCKS)]


def test_the_heaviest_go_first() -> None:
    weight = np.arange(1, 17).reshape(4, 4)
    made = Pass(rotation(BLOCKS, sync="micro", weight=weight))
    run(made, rounds=1, runtime=Serial())
    for turn in range(4):
        taken = [int(weight[job]) for job in made.seen[4 * turn : 4 * turn + 4]]
        assert taken == sorted(taken, reverse=True)
    made = Pass(rotation(BLOCKS, first="given", weight=weight))
    run(made, rounds=1, runtime=Serial())
    assert [job.worker for job in made.seen] == [0, 1, 2, 3] * 4


@given(blocks=hs.integers(1, 9), workers=hs.integers(1, 12), seed=hs.integers(0, 10**6), micro=hs.booleans())
def test_virtual_time_agrees_with_the_bound_of_plans(blocks: int, workers: int, seed: int, micro: bool) -> None:
    spec = rotation(blocks, sync="micro" if micro else "macro", weight=skewed(blocks, seed))
    waves = spec.waiting.waves
    expect = play_waves(spec.order, spec.work, workers, waves) if micro else play(spec.order, spec.work, workers)
    found = played(spec.waiting, spec.work, workers)
    assert sorted((job, start, end) for job, _, start, end in found) == sorted((v, a, b) for v, _, a, b in expect)
    assert spec.span(workers) == bound(spec.order, spec.work, workers, waves).span
    busy: dict[int, int] = {}
    for _, worker, start, end in sorted(found, key=lambda one: one[2:]):
        assert busy.get(worker, 0) <= start, "a worker does one thing at a time"
        busy[worker] = end
    assert rotation(blocks, weight=spec.weight).span(blocks) <= rotation(blocks, sync="micro", weight=spec.weight).span(
        blocks
    ), "with a worker for each row, a barrier can only cost"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sync": "never"}, "sync='never' is not one of 'macro', 'micro'"),
        ({"first": "lightest"}, "first='lightest' is not one of 'heaviest', 'given'"),
        ({"weight": [1, 2]}, r"4 × 4 numbers of at least 0; got an array of shape \(2,\)"),
        ({"weight": -np.ones((4, 4))}, "numbers of at least 0"),
        ({"weight": np.full((4, 4), np.nan)}, "numbers of at least 0"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        rotation(BLOCKS, **arguments)


def test_orders_that_do_not_exist() -> None:
    with pytest.raises(PlanError, match="power of two"):
        run(Pass(rotation(6, ring=False)), rounds=1)
    with pytest.raises(PlanError, match="at least one block"):
        run(Pass(rotation(0)), rounds=1)
    with pytest.raises(PlanError, match=r"Pass: jobs of Rotation\(blocks=4, ring=True\) read what .* use pipeline=1"):
        run(Pass(rotation(4)), rounds=1, pipeline=2)


def test_compiled_workers_get_the_same_turns() -> None:
    spec = rotation(4, sync="micro", weight=skewed())
    numbers = np.concatenate([jobs for jobs, _ in spec.waiting.passes])
    assert np.array_equal(numbers, np.arange(16))
    for jobs, order in spec.waiting.passes:
        assert not order.row_turn.any() | order.col_turn.any(), "in a turn nobody waits"
        assert len(order) == len(jobs) == 4
    ((jobs, order),) = rotation(4).waiting.passes
    assert np.array_equal(order.col_turn, rotation(4).order.col_turn)
    assert len(jobs) == 16


def test_the_chooser_has_nothing_to_remember() -> None:
    chooser = rotation(3).start(1, 0)
    first = chooser.choose()
    chooser.learn(first, np.zeros(9))
    chooser.restore(chooser.arrays())
    assert np.array_equal(chooser.choose(), first)
    assert rotation(3).named(first)[3:6] == [Turn(0, 1), Turn(1, 2), Turn(2, 0)]
