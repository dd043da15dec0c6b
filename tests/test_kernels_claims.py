"""Claiming: compiled workers make every visit once, never two that share a block, the most urgent first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import claimable
from stretto.errors import RunError
from stretto.kernels.core import atomics, claims
from stretto.kernels.core.claims import fail, next_visit
from stretto.runtime.blocks.pass_control import logged, start
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import independent, rotation


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def watchful(
    pass_: Any,
    worker: int,
    row_block: Any,
    col_block: Any,
    row_busy: Any,
    col_busy: Any,
    clashes: Any,
    made: Any,
    spin: int,
) -> None:
    """Marks its two blocks busy while it visits and counts what it finds marked already; plain, unlocked arithmetic."""
    v = next_visit(pass_, worker)
    while v >= 0:
        r, c = row_block[v], col_block[v]
        if atomics.add(row_busy, r, 1) != 0 or atomics.add(col_busy, c, 1) != 0:
            atomics.add(clashes, 0, 1)
        for _ in range(spin):
            atomics.rest()
        made[v] += 1
        atomics.add(row_busy, r, -1)
        atomics.add(col_busy, c, -1)
        v = next_visit(pass_, worker, v)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def failing(pass_: Any, worker: int, bad: int, made: Any) -> None:
    v = next_visit(pass_, worker)
    while v >= 0:
        made[v] += 1
        if v == bad:
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def one(pass_: Any, worker: int, finished: int) -> Any:
    return next_visit(pass_, worker, finished)


def by_threads(workers: int, pass_: claims.Pass, spin: int = 20) -> tuple[Any, int]:
    sizes = (len(pass_.row_done), len(pass_.col_done), 1, len(pass_.row_block))
    counts: list[Any] = [np.zeros(n, np.int64) for n in sizes]
    blocks: list[Any] = [pass_.row_block, pass_.col_block]
    with ThreadPoolExecutor(workers) as pool:
        for future in [
            pool.submit(watchful, *(pass_.words, worker, *blocks, *counts, spin)) for worker in range(workers)
        ]:
            future.result()
    return counts[3], int(counts[2][0])


orders = st.one_of(
    st.builds(rotation, st.integers(1, 9), st.just("ring")),
    st.builds(rotation, st.sampled_from([1, 2, 4, 8, 16]), st.just("exchange")),
    st.builds(independent, st.integers(1, 40)),
)


@settings(max_examples=60)
@given(orders, st.integers(1, 8), st.integers(0, 10**6))
def test_threads_make_every_visit_once_and_never_clash(order: Order, workers: int, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(0, 5, len(order))
    pass_ = start(order, weight)
    made, clashes = by_threads(workers, pass_)
    assert made.tolist() == [1] * len(order)
    assert clashes == 0
    assert pass_.control[claims.LEFT] == 0
    log = logged(pass_)
    assert sorted(log[:, 0].tolist()) == list(range(len(order)))
    assert set(log[:, 1].tolist()) <= set(range(workers))
    assert np.all(log[:, 3] >= log[:, 2])
    # In each block the log is in turn order: the clocks agree with the rule.
    begun, ended = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    begun[log[:, 0]], ended[log[:, 0]] = log[:, 2], log[:, 3]
    for v in range(len(order)):
        assert all(ended[p] <= begun[v] for p in order.predecessors(v))


@given(orders, st.integers(0, 10**6))
def test_a_worker_stays_near_its_last_visit_then_takes_what_most_work_hangs_on(order: Order, seed: int) -> None:
    """A worker alone has visited every row block that was visited at all, so the rule is easily said again."""
    pass_ = start(order, np.random.default_rng(seed).integers(0, 100, len(order)))
    finished: list[int] = []

    def rank(v: int) -> tuple[float, int, int]:
        apart = np.inf
        if order.row_turn[v] > 0:
            last = finished[-1]
            apart = (order.row_block[v] ^ order.row_block[last]) | (order.col_block[v] ^ order.col_block[last])
        return float(apart), -int(pass_.priority[v]), int(order.row_block[v])

    v = one(pass_.words, 0, -1)
    while v >= 0:
        assert v == min(claimable(order, finished, []), key=rank)
        finished.append(v)
        v = one(pass_.words, 0, v)
    assert len(finished) == len(order)


@given(orders, st.integers(1, 5), st.randoms(use_true_random=False))
def test_claims_follow_the_rule_in_any_order_of_completion(order: Order, workers: int, random: Any) -> None:
    """The compiled rule beside its plain twin, with workers that finish in any order."""
    pass_ = start(order, np.ones(len(order), np.int64))
    finished: list[int] = []
    running: list[int] = []
    while len(finished) < len(order):
        ready = claimable(order, finished, running)
        if ready and len(running) < workers and random.random() < 0.6:
            v = one(pass_.words, 0, -1)
            assert v in ready
            running.append(v)
        elif running:
            running.remove(v := random.choice(running))
            finished.append(v)
            # A worker that reports a visit claims its next one in the same call; nobody waits, or it would not return.
            if claimable(order, finished, running) or len(finished) == len(order):
                claimed = one(pass_.words, 0, v)
                if claimed >= 0:
                    running.append(claimed)
            else:
                pass_.control[claims.STOP] = 1
                assert one(pass_.words, 0, v) == -1
                pass_.control[claims.STOP] = 0


def test_a_script_is_followed_to_the_letter() -> None:
    order = rotation(4)
    script = np.arange(16)
    pass_ = start(order, np.arange(16), script=script)
    followed = []
    v = one(pass_.words, 0, -1)
    while v >= 0:
        followed.append(v)
        v = one(pass_.words, 0, v)
    assert followed == script.tolist()
    assert logged(pass_)[:, 0].tolist() == followed


@pytest.mark.parametrize("scripted", [False, True])
def test_a_stopped_pass_ends_after_the_visit_being_made_and_goes_on_later(scripted: bool) -> None:
    order, weight = rotation(4), np.ones(16, np.int64)
    pass_ = start(order, weight, script=np.arange(16) if scripted else None)
    v = one(pass_.words, 0, -1)
    v = one(pass_.words, 0, v)
    pass_.control[claims.STOP] = 1
    assert one(pass_.words, 0, v) == -1
    made = np.sort(logged(pass_)[:, 0])
    assert len(made) == 2
    rest = start(order, weight, finished=made, script=np.setdiff1d(np.arange(16), made) if scripted else None)
    made_later, clashes = by_threads(1 if scripted else 3, rest)
    assert clashes == 0
    assert made_later.tolist() == [0 if v in made else 1 for v in range(16)]


@given(orders, st.integers(1, 4), st.randoms(use_true_random=False))
def test_going_on_from_any_closed_set(order: Order, workers: int, random: Any) -> None:
    finished: list[int] = []
    for _ in range(random.randrange(len(order) + 1)):
        finished.append(random.choice(claimable(order, finished, [])))
    pass_ = start(order, np.ones(len(order), np.int64), finished=np.array(finished, np.int64))
    made, clashes = by_threads(workers, pass_, spin=2)
    assert clashes == 0
    assert [v for v in range(len(order)) if made[v] == 0] == sorted(finished)


def test_a_set_that_is_not_closed_is_refused() -> None:
    with pytest.raises(RunError, match="not closed under the plan's order; the checkpoint is not usable"):
        start(rotation(4), np.ones(16, np.int64), finished=np.array([5]))


@pytest.mark.parametrize("workers", [1, 4])
def test_a_failure_stops_everyone_and_is_named(workers: int) -> None:
    order = rotation(8)
    pass_ = start(order, np.ones(64, np.int64))
    made = np.zeros(64, np.int64)
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(failing, pass_.words, worker, 9, made) for worker in range(workers)]:
            future.result()
    assert pass_.control[claims.FAILED] == 9 + 1
    assert pass_.control[claims.LEFT] > 0
    assert made.max() == 1
    assert not any(made[v] for v in range(64) if 9 in order.predecessors(v)) or workers > 1
