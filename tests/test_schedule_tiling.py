"""Tiles of an order, against a walker that knows nothing of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import independent, panels, rotation
from stretto.schedule.orders.tiling import choose_tiling, tiles_of
from stretto.schedule.orders.wavefront import wavefront


def brute_force_allowed(order: Order, sequence: list[int]) -> bool:
    """Whether every visit finds the earlier visits of its two blocks made."""
    rows, cols = [0] * order.rows, [0] * order.cols
    for v in sequence:
        r, c = int(order.row_block[v]), int(order.col_block[v])
        if rows[r] != order.row_turn[v] or cols[c] != order.col_turn[v]:
            return False
        rows[r], cols[c] = rows[r] + 1, cols[c] + 1
    return True


def brute_force_tiles(order: Order, side: int) -> list[list[int]]:
    """Visits by their tile, tiles by their first visit."""
    if side == 1:
        return [[v] for v in range(len(order))]
    found: dict[tuple[int, int], list[int]] = {}
    for v in range(len(order)):
        found.setdefault((int(order.row_block[v]) // side, int(order.col_block[v]) // side), []).append(v)
    return list(found.values())


@pytest.mark.parametrize("side", [1, 2, 4, 8])
@pytest.mark.parametrize("order", [rotation(8), panels(8, 3), independent(8), wavefront(8, 8)], ids=lambda o: o.name)
def test_orders_that_are_walked_in_tiles_of_any_side(order: Order, side: int) -> None:
    tiles = tiles_of(order, side)
    assert tiles is not None
    assert [tile.tolist() for tile in tiles] == brute_force_tiles(order, side)


def test_a_ring_has_no_tiles_but_single_visits() -> None:
    assert tiles_of(rotation(8, "ring"), 2) is None
    assert tiles_of(rotation(8, "ring"), 1) is not None


@st.composite
def orders(draw: st.DrawFn) -> Order:
    rows, cols, visits = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 30))
    blocks = [draw(st.lists(st.integers(0, n - 1), min_size=visits, max_size=visits)) for n in (rows, cols)]
    return Order("drawn", rows, cols, *(np.array(block, np.int64) for block in blocks))


@settings(max_examples=300, deadline=None)
@given(orders(), st.integers(1, 8))
def test_tiles_keep_the_order_or_are_refused(order: Order, side: int) -> None:
    wanted = brute_force_tiles(order, side)
    allowed = brute_force_allowed(order, [v for tile in wanted for v in tile])
    tiles = tiles_of(order, side)
    assert (tiles is not None) == allowed
    if tiles is not None:
        assert [tile.tolist() for tile in tiles] == wanted


@settings(max_examples=100, deadline=None)
@given(orders(), st.integers(0, 400))
def test_the_largest_tiles_that_fit(order: Order, budget: int) -> None:
    weight = np.arange(len(order)) % 7 + 1
    found = choose_tiling(order, lambda visits: int(weight[visits].sum()), budget)
    assert sorted(np.concatenate(found.tiles).tolist()) == list(range(len(order)))
    sums = [int(weight[tile].sum()) for tile in found.tiles]
    pairs = [a + b for a, b in pairwise(sums)] or sums
    if found.ahead:
        assert found.need == max(pairs) <= budget
    else:
        assert found.need == max(sums)
        assert found.need <= budget or found.side == 1
