"""Finding things among sixteen lanes, each against its NumPy twin."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto.kernels.numeric.lane_search import bits, collect, count_bits, lane, lowest_bit, running, shift_right
from stretto.kernels.numeric.vector import less_equal, load, splat, store

Array = NDArray[Any]


@numba.njit  # type: ignore[untyped-decorator]
def _collect(A: Any, rows: Any, at: Any, shift: Any, out: Any) -> None:
    store(out, 0, collect(A, rows, at, shift))


@numba.njit  # type: ignore[untyped-decorator]
def _shift_right(x: Any, n: Any, out: Any) -> None:
    store(out, 0, shift_right(load(x, 0), n))


@numba.njit  # type: ignore[untyped-decorator]
def _running(x: Any, out: Any) -> None:
    store(out, 0, running(load(x, 0)))


@numba.njit  # type: ignore[untyped-decorator]
def _lane(x: Any, place: Any) -> Any:
    return lane(load(x, 0), place)


@numba.njit  # type: ignore[untyped-decorator]
def _at_most(x: Any, bound: Any) -> Any:
    return bits(less_equal(load(x, 0), splat(bound)))


@numba.njit  # type: ignore[untyped-decorator]
def _bit_facts(n: Any) -> Any:
    return count_bits(n), lowest_bit(n)


@pytest.mark.parametrize(("dtype", "shift"), [(np.uint32, 20), (np.uint32, 0), (np.uint16, 7), (np.uint64, 40)])
@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_collected_elements_are_those_that_the_entries_name(dtype: Any, shift: int, kind: Any) -> None:
    random = np.random.default_rng(shift)
    A = random.integers(-99, 99, 300).astype(kind)
    index = random.integers(0, 300, 64)
    low = random.integers(0, 1 << shift, 64)  # what lies below the index must not matter
    rows = ((index << shift) | low).astype(dtype)
    for at in (0, 16, 37):
        out = np.zeros(16, kind)
        _collect(A, rows, at, shift, out)
        assert np.array_equal(out, A[rows[at : at + 16].astype(np.int64) >> shift])


def test_the_highest_entry_that_fits_is_no_negative_index() -> None:
    A = np.arange(1 << 9, dtype=np.float32)
    out = np.zeros(16, np.float32)
    _collect(A, np.full(16, 0xFFFFFFFF, np.uint32), 0, 23, out)
    assert np.all(out == 511)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, np.int32])
def test_zeros_come_in_from_the_left(dtype: Any) -> None:
    x = np.full(16, -1 if dtype is np.int32 else np.iinfo(dtype).max, dtype)
    x[3] = 5
    width = x.dtype.itemsize * 8
    for n in (0, 1, width - 1):
        out = np.zeros(16, dtype)
        _shift_right(x, n, out)
        unsigned = x.view(f"u{x.dtype.itemsize}")
        assert np.array_equal(out.view(unsigned.dtype), unsigned >> unsigned.dtype.type(n))


@settings(max_examples=40)
@given(st.lists(st.integers(-(2**26), 2**26), min_size=16, max_size=16))
def test_running_sums_of_whole_numbers_are_exact(values: list[int]) -> None:
    x = np.array(values, np.int32)
    out = np.zeros(16, np.int32)
    _running(x, out)
    assert np.array_equal(out, np.cumsum(x, dtype=np.int32))


def _tree(x: Array) -> Array:
    """The fixed tree: every lane adds the one 1, 2, 4 and 8 places to its left."""
    for distance in (1, 2, 4, 8):
        moved = np.concatenate([np.zeros(distance, np.float32), x[:-distance]])
        x = (x + moved).astype(np.float32)
    return x


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_running_sums_are_added_by_one_tree_and_never_fall(seed: int) -> None:
    """Weights are not negative, so a search for the first lane that passes a number finds one place."""
    random = np.random.default_rng(seed)
    x = (random.random(16) * 10.0 ** random.integers(-6, 6, 16)).astype(np.float32)
    x[random.random(16) < 0.3] = 0
    out = np.zeros(16, np.float32)
    _running(x, out)
    assert np.array_equal(out, _tree(x))
    np.testing.assert_allclose(out, np.cumsum(x, dtype=np.float64), rtol=1e-6)


def test_lanes_come_out_one_by_one() -> None:
    for dtype in (np.float32, np.int32, np.uint32):
        x = np.arange(100, 116).astype(dtype)
        assert [int(_lane(x, place)) for place in range(16)] == list(range(100, 116))


def test_a_mask_is_a_number_whose_bit_l_is_lane_l() -> None:
    x = np.arange(16, dtype=np.float32)
    assert _at_most(x, np.float32(-1)) == 0
    assert _at_most(x, np.float32(0)) == 1
    assert _at_most(x, np.float32(4.5)) == 0b11111
    assert _at_most(x, np.float32(99)) == 0xFFFF
    assert _at_most(x[::-1].copy(), np.float32(0)) == 1 << 15


@pytest.mark.parametrize("n", [0, 1, 2, 0b1010_0000, 0xFFFF, 1 << 15, 1 << 62])
def test_bits_are_counted_and_the_lowest_found(n: int) -> None:
    expected = 64 if n == 0 else (n & -n).bit_length() - 1
    assert _bit_facts(np.int64(n)) == (n.bit_count(), expected)
