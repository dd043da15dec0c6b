"""The list schedule and the bounds of an order, against brute force."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import claimable
from stretto.schedule.orders.bound import Bound, bound, longest_chain, play
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import independent, rotation
from test_schedule_order import any_orders, rotations


def weights_of(order: Order, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, 20, len(order))


@given(st.one_of(rotations, any_orders()), st.integers(1, 6), st.integers(0, 1000))
def test_play_is_a_valid_greedy_schedule(order: Order, workers: int, seed: int) -> None:
    weight = weights_of(order, seed)
    played = play(order, weight, workers)
    assert sorted(v for v, *_ in played) == list(range(len(order)))
    start = {v: s for v, _, s, _ in played}
    end = {v: e for v, _, _, e in played}
    assert all(end[v] - start[v] == weight[v] for v in start)
    for v, begun in start.items():
        assert all(end[p] <= begun for p in order.predecessors(v))
    by_worker: dict[int, list[tuple[int, int]]] = {}
    for _, w, s, e in played:
        assert 0 <= w < workers
        by_worker.setdefault(w, []).append((s, e))
    for spans in by_worker.values():
        spans.sort()
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
    # Greedy: whenever a worker is idle, nothing that could run is left waiting.
    for now in sorted({*start.values(), *end.values()}):
        busy = [v for v in start if start[v] <= now < end[v]]
        if len(busy) < workers and now < max(end.values()):
            finished = [v for v in start if end[v] <= now and (start[v] < now or weight[v] == 0)]
            waiting = [v for v in claimable(order, finished, busy) if start[v] > now]
            assert not waiting


@given(st.one_of(rotations, any_orders()), st.integers(0, 1000))
def test_the_longest_chain_by_recursion(order: Order, seed: int) -> None:
    weight = weights_of(order, seed)

    @functools.cache
    def ends(v: int) -> int:
        return int(weight[v]) + max((ends(p) for p in order.predecessors(v)), default=0)

    assert longest_chain(order, weight) == max((ends(v) for v in range(len(order))), default=0)


@given(st.one_of(rotations, any_orders()), st.integers(0, 1000), st.integers(1, 6))
def test_bounds_bound(order: Order, seed: int, workers: int) -> None:
    weight = weights_of(order, seed)
    found = bound(order, weight, workers)
    assert found.total == weight.sum()
    assert max(found.longest, -(-found.total // workers)) <= found.span <= found.total
    assert found.efficiency <= found.limit + 1e-12
    # Graham: a list schedule is never worse than work shared out plus the longest chain.
    assert found.span <= found.total / workers + found.longest + 1e-9


@given(st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_no_schedule_of_a_small_grid_beats_the_limit(weights: list[int]) -> None:
    """All schedules of a 2 × 2 grid on two workers, tried one by one."""
    order, weight = rotation(2), np.array(weights)
    best = min(_all_spans(order, weights, (), ((0, 0), (0, 0)), [0, 0]))
    found = bound(order, weight, 2)
    assert best <= found.span
    assert found.total / (2 * best) <= found.limit + 1e-12


def _all_spans(
    order: Order, weight: list[int], made: tuple[int, ...], blocks: tuple[tuple[int, ...], ...], free: list[int]
) -> list[int]:
    if len(made) == len(order):
        return [max(free)]
    found = []
    for v in claimable(order, made, []):
        r, c = int(order.row_block[v]), int(order.col_block[v])
        for w in range(len(free)):
            end = max(free[w], blocks[0][r], blocks[1][c]) + weight[v]
            rows = tuple(end if k == r else t for k, t in enumerate(blocks[0]))
            cols = tuple(end if k == c else t for k, t in enumerate(blocks[1]))
            found += _all_spans(
                order, weight, (*made, v), (rows, cols), [end if k == w else t for k, t in enumerate(free)]
            )
    return found


def test_one_worker_is_always_busy_and_a_hot_row_is_indivisible() -> None:
    order = rotation(8)
    assert bound(order, np.ones(64, np.int64), 1).efficiency == 1.0
    assert bound(order, np.ones(64, np.int64), 8).efficiency == 1.0
    hot = np.where(order.row_block == 0, 100, 1)
    found = bound(order, hot, 8)
    assert found.longest == 800
    assert found.limit == pytest.approx((800 + 56) / (8 * 800))


def test_nothing_to_do_is_perfect() -> None:
    assert Bound(4, 0, 0, 0).efficiency == 1.0
    assert bound(independent(3), np.zeros(3, np.int64), 2).limit == 1.0
