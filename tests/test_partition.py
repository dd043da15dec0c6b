"""Cuts: every row has one place, blocks carry equal work, and nothing but counts, seed and blocks decides them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.data.partition import choose_blocks, cut, hashed, sorting_order, straight
from stretto.errors import PlanError

counts_lists = st.lists(st.integers(0, 1000), min_size=1, max_size=80)


@given(counts_lists, st.integers(1, 100), st.integers(-5, 2**63), st.integers(0, 1))
def test_a_cut_is_a_permutation_with_rising_bounds(counts: list[int], blocks: int, seed: int, axis: int) -> None:
    found = cut(np.array(counts), blocks, seed=seed, axis=axis)
    n = len(counts)
    assert sorted(found.place.tolist()) == list(range(n))
    assert found.blocks == blocks
    assert len(found) == n
    assert found.bounds[0] == 0
    assert found.bounds[-1] == n
    assert np.all(np.diff(found.bounds) >= 0)
    block_of = found.block_of()
    for row in range(n):
        assert found.bounds[block_of[row]] <= found.place[row] < found.bounds[block_of[row] + 1]


@given(counts_lists, st.integers(1, 20), st.integers(0, 2**31))
def test_blocks_carry_equal_work_up_to_one_row(counts: list[int], blocks: int, seed: int) -> None:
    found = cut(np.array(counts), blocks, seed=seed, axis=0)
    work = np.bincount(found.block_of(), weights=counts, minlength=blocks)
    # Each boundary is at most half a row away from its goal, and a row is indivisible.
    assert work.max() <= sum(counts) / blocks + max(counts) + 1e-9


@given(counts_lists, st.integers(1, 20))
def test_a_straight_cut_keeps_the_order(counts: list[int], blocks: int) -> None:
    found = straight(np.array(counts), blocks)
    assert np.array_equal(found.place, np.arange(len(counts)))
    assert found.bounds[0] == 0
    assert found.bounds[-1] == len(counts)
    assert np.all(np.diff(found.bounds) >= 0)
    work = np.bincount(found.block_of(), weights=counts, minlength=blocks)
    assert work.max() <= sum(counts) / blocks + max(counts) + 1e-9


def test_a_cut_follows_seed_and_axis_and_nothing_else() -> None:
    counts = np.arange(100)
    first = cut(counts, 8, seed=1, axis=0)
    again = cut(counts.copy(), 8, seed=1, axis=0)
    assert np.array_equal(first.place, again.place)
    assert np.array_equal(first.bounds, again.bounds)
    for other in (cut(counts, 8, seed=2, axis=0), cut(counts, 8, seed=1, axis=1)):
        assert not np.array_equal(first.place, other.place)


def test_the_places_are_pinned() -> None:
    # If these change, every fingerprint changes: bits promised to users would silently become others.
    assert [f"{x:016x}" for x in hashed(0, 0, 3)] == ["399cb48bc72e8d68", "e65c8202a38aca67", "9ff9a75b320b9098"]
    assert [f"{x:016x}" for x in hashed(5, 1, 2)] == ["ed751ed3a1507bc5", "47e1e7fdd6797436"]
    assert len({int(x) for seed in range(4) for axis in range(2) for x in hashed(seed, axis, 500)}) == 4 * 2 * 500


def test_neighbours_in_the_file_are_not_neighbours_in_a_block() -> None:
    block_of = cut(np.ones(4096, np.int64), 16, seed=0, axis=0).block_of()
    assert np.mean(block_of[1:] == block_of[:-1]) < 0.1


@pytest.mark.parametrize(
    ("entries", "shape", "width", "blocks"),
    [
        (1_000_000, (6040, 3449), 16, 32),
        (1_000_000, (6040, 3449), 1, 2),
        (1_000_000, (6040, 3449), 5, 8),
        (1_000_000, (6040, 3), 16, 2),
        (1_000_000, (1, 1_000_000), 16, 1),
        (500, (20, 20), 16, 1),
        (0, (0, 0), 16, 1),
    ],
)
def test_blocks_follow_width_shape_and_amount(entries: int, shape: tuple[int, int], width: int, blocks: int) -> None:
    assert choose_blocks(entries, shape, width) == blocks


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 64))
def test_blocks_are_a_power_of_two_within_twice_the_width(entries: int, m: int, n: int, width: int) -> None:
    blocks = choose_blocks(entries, (m, n), width)
    assert blocks & (blocks - 1) == 0
    assert 1 <= blocks <= min(2 * width, m, n)


def test_refusals() -> None:
    with pytest.raises(PlanError, match="at least one block, got 0"):
        cut(np.ones(3, np.int64), 0, seed=0, axis=0)
    with pytest.raises(PlanError, match="width must be at least 1, got 0"):
        choose_blocks(10, (3, 3), 0)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60, unique=True), st.integers(0, 62))
def test_the_order_of_keys_is_that_of_a_sort(keys: list[int], shift: int) -> None:
    # Shifted, most keys agree in their upper half, so that the second sort has work.
    given_keys = np.unique(np.array(keys, np.uint64) >> np.uint64(shift))[::-1]
    np.testing.assert_array_equal(sorting_order(given_keys), np.argsort(given_keys, kind="stable"))
