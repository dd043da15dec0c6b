"""Panels of documents that come one after the other, and words dealt out to blocks of equal weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import claimable
from stretto.data.partition import cut, cut_evenly
from stretto.errors import PlanError
from stretto.schedule.orders.rotation import panels, rotation

sizes = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 5))


@given(sizes)
def test_every_pair_of_blocks_is_visited_once(size: tuple[int, int]) -> None:
    blocks, count = size
    order = panels(blocks, count)
    assert (order.rows, order.cols, len(order)) == (blocks * count, blocks, blocks * blocks * count)
    pairs = set(zip(order.row_block.tolist(), order.col_block.tolist(), strict=True))
    assert pairs == {(r, c) for r in range(blocks * count) for c in range(blocks)}


@given(sizes)
def test_a_column_block_meets_panel_after_panel(size: tuple[int, int]) -> None:
    """Its turns run through the panels in order, so the documents of a panel are needed in one stretch alone."""
    blocks, count = size
    order = panels(blocks, count)
    panel = order.row_block // blocks
    assert np.all(np.diff(panel) >= 0)
    for c in range(blocks):
        mine = np.flatnonzero(order.col_block == c)
        assert np.array_equal(order.col_turn[mine], np.arange(blocks * count))
        assert np.array_equal(panel[mine], np.repeat(np.arange(count), blocks))
    for r in range(blocks * count):
        assert np.array_equal(order.row_turn[order.row_block == r], np.arange(blocks))


@given(sizes)
def test_inside_a_panel_it_is_a_rotation(size: tuple[int, int]) -> None:
    blocks, count = size
    order, one = panels(blocks, count), rotation(blocks)
    for p in range(count):
        part = slice(p * len(one), (p + 1) * len(one))
        assert np.array_equal(order.row_block[part] - p * blocks, one.row_block)
        assert np.array_equal(order.col_block[part], one.col_block)


@settings(max_examples=30)
@given(sizes, st.integers(1, 6), st.randoms(use_true_random=False))
def test_running_visits_share_no_block_and_what_is_finished_is_closed(
    size: tuple[int, int], workers: int, random: object
) -> None:
    choose = random.choice  # type: ignore[attr-defined]
    order = panels(*size)
    finished: list[int] = []
    running: list[int] = []
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
            finished.append(visit)
            assert order.finished_closed(np.array(finished))
    # A visit of the second turn without the first is not closed.
    if size[0] > 1:
        assert not order.finished_closed(np.array([size[0]]))


def test_one_panel_has_the_name_of_its_rotation_and_more_are_told() -> None:
    assert panels(4, 1).name == rotation(4).name
    assert panels(4, 3).name == "rotation/exchange, 3 panels"
    with pytest.raises(PlanError, match="at least one panel, got 0"):
        panels(4, 0)


# --- words dealt out evenly -----------------------------------------------------------------------------------------


def loads(counts: np.ndarray, blocks: int, seed: int = 0) -> np.ndarray:
    found = cut_evenly(counts, blocks, seed=seed, axis=1)
    return np.bincount(found.block_of(), weights=counts, minlength=blocks)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=80), st.integers(1, 40), st.integers(0, 2**31))
def test_a_cut_is_a_permutation_with_rising_bounds(values: list[int], blocks: int, seed: int) -> None:
    counts = np.array(values)
    found = cut_evenly(counts, blocks, seed=seed, axis=1)
    assert sorted(found.place.tolist()) == list(range(len(counts)))
    assert (found.blocks, found.bounds[0], found.bounds[-1]) == (blocks, 0, len(counts))
    assert np.all(np.diff(found.bounds) >= 0)
    block = found.block_of()
    assert np.all((found.bounds[block] <= found.place) & (found.place < found.bounds[block + 1]))
    # A light row is at most a sixteenth of a block, and what a block gets is off by at most one such row at each end.
    heaviest, share = loads(counts, blocks, seed).max(), counts.sum() / blocks
    assert heaviest <= max(1.25 * share + 1e-9, counts.max() + 1.25 * share)


@pytest.mark.parametrize("power", [0.8, 1.0, 1.2])
@pytest.mark.parametrize(("words", "blocks"), [(5_000, 8), (50_000, 32), (200_000, 64)])
def test_words_by_zipf_are_balanced(power: float, words: int, blocks: int) -> None:
    counts = np.maximum(1, 5e6 / np.arange(1, words + 1) ** power).astype(np.int64)
    counts = counts[np.random.default_rng(0).permutation(words)]
    for seed in range(3):
        work = loads(counts, blocks, seed)
        assert work.max() <= max(1.1 * work.mean(), counts.max())


def test_words_by_zipf_tear_a_cut_of_neighbours_apart() -> None:
    """Why there is a second way to cut."""
    counts = np.maximum(1, 1e5 / np.arange(1, 20_001)).astype(np.int64)
    plain = np.bincount(cut(counts, 8, seed=0, axis=1).block_of(), weights=counts, minlength=8)
    assert plain.max() > 1.3 * plain.mean()
    assert loads(counts, 8).max() < 1.03 * plain.mean()


def test_a_word_heavier_than_a_block_stands_nearly_alone() -> None:
    counts = np.array([1000] + [1] * 600)
    found = cut_evenly(counts, 4, seed=1, axis=1)
    block = found.block_of()
    assert np.count_nonzero(block == block[0]) == 1
    work = np.bincount(block, weights=counts)
    assert np.delete(work, block[0]).tolist() == pytest.approx([200] * 3, abs=2)


def test_no_two_heavy_rows_share_a_block_that_could_be_apart() -> None:
    counts = np.array([8, 8, 8, 8, 1, 1, 1, 1])
    for seed in range(8):
        assert len(set(cut_evenly(counts, 4, seed=seed, axis=1).block_of()[:4].tolist())) == 4


def test_nothing_but_counts_seed_and_axis_decides() -> None:
    counts = np.random.default_rng(1).integers(0, 50, 300)
    first = cut_evenly(counts, 8, seed=1, axis=1)
    again = cut_evenly(counts.copy(), 8, seed=1, axis=1)
    assert np.array_equal(first.place, again.place)
    assert np.array_equal(first.bounds, again.bounds)
    for other in (cut_evenly(counts, 8, seed=2, axis=1), cut_evenly(counts, 8, seed=1, axis=0)):
        assert not np.array_equal(first.place, other.place)


def test_edges() -> None:
    nothing = cut_evenly(np.zeros(5, np.int64), 3, seed=0, axis=1)
    assert nothing.sizes.sum() == 5
    assert cut_evenly(np.zeros(0, np.int64), 3, seed=0, axis=1).sizes.tolist() == [0, 0, 0]
    assert sorted(cut_evenly(np.array([5]), 4, seed=0, axis=1).sizes.tolist()) == [0, 0, 0, 1]
    with pytest.raises(PlanError, match="at least one block, got 0"):
        cut_evenly(np.ones(3, np.int64), 0, seed=0, axis=1)
