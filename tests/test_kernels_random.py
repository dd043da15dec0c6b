"""Keyed random numbers: evenly spread, independent between keys, the same for the same key wherever they are asked."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto.data.partition import cut
from stretto.kernels.numeric.random import entry_hash, fill_worker, mix, uniform
from stretto.runtime.blocks.step import make_step
from stretto.runtime.runtimes import Serial, Threads
from stretto.schedule.orders.rotation import independent


@numba.njit  # type: ignore[untyped-decorator]
def uniforms(a: NDArray[np.int64], b: NDArray[np.int64], c: NDArray[np.int64], d: NDArray[np.int64]) -> Any:
    out = np.empty(len(a))
    for t in range(len(a)):
        out[t] = uniform(a[t], b[t], c[t], d[t])
    return out


@numba.njit  # type: ignore[untyped-decorator]
def mix_(a: int, b: int, c: int, d: int) -> Any:
    return mix(a, b, c, d)


@numba.njit  # type: ignore[untyped-decorator]
def entry_(row: int, col: int, bits: int) -> Any:
    return entry_hash(row, col, bits)


def python_mix(*key: int) -> int:
    """The same in plain integers."""

    def scramble(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    x = 0
    for part in key:
        x = scramble(x ^ ((part + 0x9E3779B97F4A7C15) % 2**64))
    return x


@given(*[st.integers(-(2**62), 2**62)] * 4)
def test_mix_is_what_it_says(a: int, b: int, c: int, d: int) -> None:
    assert int(mix_(a, b, c, d)) == python_mix(a, b, c, d)


N = 200_000


@pytest.mark.parametrize("moving", range(4))
def test_one_moving_part_of_the_key_is_enough(moving: int) -> None:
    key = [np.full(N, 7, np.int64) for _ in range(4)]
    key[moving] = np.arange(N)
    u = uniforms(*key)
    assert 0.0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1.0
    assert u.mean() == pytest.approx(0.5, abs=4 * (1 / 12 / N) ** 0.5)
    assert u.var() == pytest.approx(1 / 12, rel=0.02)
    # Sixteen equal bins: chi-square with 15 degrees of freedom is above 44.3 once in ten thousand.
    counts = np.histogram(u, 16, (0, 1))[0]
    assert np.sum((counts - N / 16) ** 2 / (N / 16)) < 44.3
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / N**0.5
    assert len(np.unique(u)) == N


def test_keys_do_not_share_streams() -> None:
    where = np.arange(20_000)
    base = [np.full(20_000, k, np.int64) for k in (1, 2, 3)]
    streams = [uniforms(*(part + (k == which) for k, part in enumerate(base)), where) for which in range(4)]
    # Exchanging two parts of a key makes another key.
    streams.append(uniforms(base[1], base[0], base[2], where))
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 5 / 20_000**0.5


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1), st.integers(0, 63))
def test_an_entry_hash_notices_every_bit(row: int, col: int, bits: int, flip: int) -> None:
    base = int(entry_(row, col, bits))
    if flip < 32:
        assert int(entry_(row, col, bits ^ (1 << flip))) != base
    assert int(entry_(row, col ^ (1 << flip % 31), bits)) != base
    assert int(entry_(row ^ (1 << flip % 31), col, bits)) != base


def test_factors_are_keyed_by_row_not_by_place() -> None:
    """Two cuts of the same rows, filled by different numbers of threads, give each row the same numbers."""
    n, width = 50, 20
    found = []
    for blocks, seed, runtime in ((1, 0, Serial()), (5, 3, Threads(2)), (64, 9, Threads(4))):
        rows = cut(np.arange(n), blocks, seed=seed, axis=0)
        standing = np.argsort(rows.place)
        standing[rows.place[7]] = -1  # a row of zeros
        W = np.zeros((n, 32), np.float32)
        args = (rows.bounds, standing, 11, 0, -0.5, 0.5, width, W)
        with runtime.open() as crew:
            crew.run(make_step("draw", fill_worker, independent(blocks), rows.sizes, *args), "exact")
        assert not W[:, width:].any()
        assert np.flatnonzero(~W[rows.place].any(axis=1)).tolist() == [7]
        found.append(W[rows.place])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    inside = found[0][:, :width]
    assert -0.5 <= inside.min() < -0.45
    assert 0.45 < inside.max() < 0.5
