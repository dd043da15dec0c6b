"""Orders of visits: turns, and that no two running visits ever share a block, in any order of finishing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import claimable
from stretto.errors import PlanError
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import PATTERNS, independent, rotation

rotations = st.one_of(
    st.builds(rotation, st.integers(1, 7), st.just("ring")),
    st.builds(rotation, st.sampled_from([1, 2, 4, 8]), st.just("exchange")),
)


@st.composite
def any_orders(draw: st.DrawFn) -> Order:
    """Visits to any blocks, in any order, some pairs twice."""
    rows, cols = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    pairs = draw(st.lists(st.tuples(st.integers(0, rows - 1), st.integers(0, cols - 1)), max_size=25))
    block = np.array(pairs, np.int64).reshape(-1, 2)
    return Order("any", rows, cols, block[:, 0].copy(), block[:, 1].copy())


@given(st.one_of(rotations, any_orders()), st.integers(1, 8), st.randoms(use_true_random=False))
def test_running_visits_never_share_a_block(order: Order, workers: int, random: object) -> None:
    """Claim and finish in random order: nothing overlaps, nothing is lost, nothing is made twice."""
    choose = random.choice  # type: ignore[attr-defined]
    finished: list[int] = []
    running: list[int] = []
    last_row, last_col = [-1] * order.rows, [-1] * order.cols
    while len(finished) < len(order):
        ready = claimable(order, finished, running)
        assert ready or running, "nobody can go on"
        if ready and len(running) < workers and (not running or choose([True, False])):
            visit = choose(ready)
            assert all(order.row_block[visit] != order.row_block[r] for r in running)
            assert all(order.col_block[visit] != order.col_block[r] for r in running)
            running.append(visit)
        else:
            visit = choose(running)
            running.remove(visit)
            # Each block sees its visits in the serial order: what makes any execution equal to the serial one.
            row, col = int(order.row_block[visit]), int(order.col_block[visit])
            assert last_row[row] < visit
            assert last_col[col] < visit
            last_row[row] = last_col[col] = visit
            finished.append(visit)
            assert order.finished_closed(np.array(finished))
    assert sorted(finished) == list(range(len(order)))


@given(rotations)
def test_every_pair_of_blocks_meets_exactly_once(order: Order) -> None:
    pairs = set(zip(order.row_block.tolist(), order.col_block.tolist(), strict=True))
    assert len(pairs) == len(order) == order.rows * order.cols
    # A step is one visit of every row block; inside it no column block appears twice.
    for step in range(order.rows):
        here = order.row_turn == step
        assert len(set(order.col_block[here].tolist())) == order.cols


@pytest.mark.parametrize("blocks", [2, 4, 8, 16, 32])
def test_exchange_keeps_aligned_groups_together(blocks: int) -> None:
    """In each aligned run of 2ᵐ steps, an aligned group of 2ᵐ row blocks meets one group of column blocks only."""
    order = rotation(blocks, "exchange")
    size = 1
    while size <= blocks:
        run, group, met = order.row_turn // size, order.row_block // size, order.col_block // size
        for r in range(blocks // size):
            for g in range(blocks // size):
                assert len(set(met[(run == r) & (group == g)].tolist())) == 1
        size *= 2


@given(st.one_of(rotations, any_orders()))
def test_turns_count_earlier_visits(order: Order) -> None:
    for v in range(len(order)):
        assert order.row_turn[v] == np.sum(order.row_block[:v] == order.row_block[v])
        assert order.col_turn[v] == np.sum(order.col_block[:v] == order.col_block[v])
    for r in range(order.rows):
        mine = order.row_visits[order.row_first[r] : order.row_first[r + 1]]
        assert mine.tolist() == np.flatnonzero(order.row_block == r).tolist()


@given(any_orders(), st.data())
def test_closed_means_no_visit_before_its_predecessors(order: Order, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, max(0, len(order) - 1)), max_size=len(order))) if len(order) else set()
    expected = all(p in chosen for v in chosen for p in order.predecessors(v))
    assert order.finished_closed(np.array(sorted(chosen), np.int64)) == expected


def test_independent_visits_wait_for_nobody() -> None:
    order = independent(5)
    assert claimable(order, [], []) == [0, 1, 2, 3, 4]
    assert not order.row_turn.any()
    assert all(order.predecessors(v) == [] for v in range(5))


def test_the_two_patterns_of_four_blocks() -> None:
    assert rotation(4, "ring").col_block.tolist() == [0, 1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2]
    assert rotation(4, "exchange").col_block.tolist() == [0, 1, 2, 3, 1, 0, 3, 2, 2, 3, 0, 1, 3, 2, 1, 0]
    assert PATTERNS == ("exchange", "ring")


def test_refusals() -> None:
    with pytest.raises(PlanError, match="power of two, got 6 blocks; use pattern='ring'"):
        rotation(6)
    with pytest.raises(PlanError, match="rotation pattern 'spiral' is not one of exchange, ring"):
        rotation(4, "spiral")
    with pytest.raises(PlanError, match="at least one block, got 0"):
        rotation(0)
    with pytest.raises(PlanError, match="names block 3 of 2"):
        Order("bad", 2, 2, np.array([0, 3]), np.array([0, 1]))
    with pytest.raises(PlanError, match="one row block and one column block"):
        Order("bad", 2, 2, np.array([0, 1]), np.array([0]))
