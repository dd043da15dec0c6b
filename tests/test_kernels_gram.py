"""Inner products of columns: tiles, packed panels and shared rows give what NumPy gives, however the table grew."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kernelrun import run
from stretto.kernels.linear import gram
from stretto.kernels.numeric import tile64
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.linear.columns import ColumnPasses
from stretto.solvers.linear.gram import Gram
from working_made import Floats, Ints, columns_of, numbers

# Storage and density; the third way needs columns that are mostly zero.
WAYS: dict[str, tuple[str, float]] = {
    "dense": ("dense", 1.0),
    "dense float32": ("dense float32", 1.0),
    "packed": ("sparse", 0.5),
    "packed float32": ("sparse float32", 0.5),
    "sparse": ("sparse", 0.05),
    "sparse float32": ("sparse float32", 0.05),
}


def weights(n: int, seed: int = 1) -> Floats:
    """Some of them zero."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.1, 3.0, n))


def mean_of(X: Floats, weight: Floats) -> Floats:
    """Zeros where nothing weighs anything."""
    return weight @ X / max(float(weight.sum()), 1e-300)


def products(X: Floats, weight: Floats, mean: Floats) -> Floats:
    """What the table should hold."""
    away = X - mean
    return (away * weight[:, None]).T @ away


def check(made: Floats, X: Floats, weight: Floats, mean: Floats) -> None:
    """Right to rounding, symmetric to the bit, zero beyond the columns."""
    k = X.shape[1]
    assert made.shape == (k, -(-k // 16) * 16)
    size = np.abs(X - mean) * np.sqrt(weight)[:, None] + np.abs(mean) * np.sqrt(weight)[:, None]
    allowed = 1e-13 * (size.T @ size) + 1e-300
    assert np.all(np.abs(made[:, :k] - products(X, weight, mean)) <= allowed)
    np.testing.assert_array_equal(made[:, :k], made[:, :k].T)
    assert not made[:, k:].any()


def table(columns: ColumnPasses, weight: Floats, mean: Floats, *, centred: bool = True, limit: int = 1000) -> Gram:
    return Gram(columns, weight, mean if centred else np.zeros_like(mean), centred, limit)


# --- tiles ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_tile_adds_its_products_and_touches_nothing_else(depth: int, sign: float) -> None:
    rng = np.random.default_rng(depth)
    C, L, R = rng.normal(size=(9, 50)), rng.normal(size=(70, 11)), rng.normal(size=(70, 60))
    row, column, left, first, second = 2, 13, 5, 3, 31
    tile64.add_tile(made := C.copy(), row * 50 + column, 50, sign, L, left, 11, R, first, second, 60, depth)
    right = np.concatenate([R[:depth, first : first + 16], R[:depth, second : second + 16]], axis=1)
    expected = C.copy()
    expected[row : row + tile64.ROWS, column : column + tile64.COLUMNS] += (
        sign * L[:depth, left : left + tile64.ROWS].T @ right
    )
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-13)
    outside = np.ones_like(C, bool)
    outside[row : row + tile64.ROWS, column : column + tile64.COLUMNS] = False
    np.testing.assert_array_equal(made[outside], C[outside])


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [1, 63, 65, 512, 1030])
@pytest.mark.parametrize("k", [1, 16, 17, 70])
def test_products_are_those_of_numpy(way: str, n: int, k: int) -> None:
    storage, density = WAYS[way]
    X = numbers(n, 90, density, seed=n + k)
    weight = weights(n)
    mean = mean_of(X, weight)
    which = np.random.default_rng(k).permutation(90)[:k]
    with columns_of(X, storage) as columns:
        for centred in (True, False):
            found = table(columns, weight, mean, centred=centred)
            made = found.of(which)
            if n >= 63 and k >= 15:
                assert found._packed == (density > 0.2), "it tests the way it means to"
            check(made, X[:, which], weight, (mean if centred else np.zeros(90))[which])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("turns", [0.5, 100.0], ids=["by rows once", "by rows in parts"])
def test_growing_step_by_step_gives_the_bits_of_all_at_once(
    way: str, turns: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stretto.solvers.linear.gram._TURNS", turns)
    storage, density = WAYS[way]
    X = numbers(517, 300, density)
    weight = weights(517)
    mean = mean_of(X, weight)
    order = np.random.default_rng(0).permutation(300)[:250]
    with columns_of(X, storage) as columns:
        whole = table(columns, weight, mean).of(order)
        check(whole, X[:, order], weight, mean[order])
        for sizes in ([1] * 40 + [210], [16, 16, 32, 64, 122], [31, 33, 1, 100, 85], [130, 3, 117]):
            grown, bounds = table(columns, weight, mean), np.cumsum([0, *sizes])
            for first, last in pairwise(bounds):
                # Old columns among the new ones, in another order.
                asked = np.concatenate([order[first:last], order[: first // 2][::-1]])
                check(grown.of(asked), X[:, asked], weight, mean[asked])
            np.testing.assert_array_equal(grown.of(order), whole)
            if not grown._packed:
                assert (grown._all_rows is not None) == (turns < 1.0), "it tests the way it means to"


@pytest.mark.parametrize("way", WAYS)
def test_threads_change_no_bit(way: str) -> None:
    storage, density = WAYS[way]
    X = numbers(300, 150, density)
    weight = weights(300)
    mean = mean_of(X, weight)
    which = np.random.default_rng(3).permutation(150)
    found: list[Any] = []
    for runtime in (Serial(), Threads(1), Threads(3)):
        with columns_of(X, storage, runtime) as columns:
            grown = table(columns, weight, mean)
            grown.of(which[:50])
            found.append(grown.of(which))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_full_columns_may_be_joined_by_nearly_empty_ones() -> None:
    """Packed while that is worth it; what was packed stays right when it no longer is."""
    X = numbers(400, 200, 0.6)
    X[:, 40:] *= np.random.default_rng(5).random((400, 160)) < 0.02
    weight = weights(400)
    mean = mean_of(X, weight)
    with columns_of(X, "sparse") as columns:
        found = table(columns, weight, mean)
        first, everything = np.arange(40), np.arange(200)
        check(found.of(first), X[:, :40], weight, mean[:40])
        packed = [found._packed]
        check(found.of(everything), X, weight, mean)
        packed.append(found._packed)
        assert packed == [True, False]
        check(found.of(everything[::-7].copy()), X[:, ::-7], weight, mean[::-7])


@pytest.mark.parametrize("way", ["dense", "packed", "sparse"])
def test_more_columns_than_the_limit_are_forgotten_and_found_again(way: str) -> None:
    storage, density = WAYS[way]
    X = numbers(90, 120, density)
    weight = np.ones(90)
    mean = mean_of(X, weight)
    with columns_of(X, storage) as columns:
        found = table(columns, weight, mean, limit=50)
        rng = np.random.default_rng(0)
        for size in (10, 30, 20, 49, 50, 8, 60):
            which = rng.permutation(120)[:size]
            check(found.of(which), X[:, which], weight, mean[which])
            assert len(found._column) <= max(50, size)


@pytest.mark.parametrize("way", ["dense", "packed", "sparse"])
def test_new_weights_forget_the_old_ones(way: str) -> None:
    storage, density = WAYS[way]
    X = numbers(130, 60, density)
    first, second = np.ones(130), weights(130, seed=9)
    which: Ints = np.arange(5, 50)
    with columns_of(X, storage) as columns:
        found = table(columns, first, mean_of(X, first))
        found.of(which)
        found.renew(second, mean_of(X, second))
        check(found.of(which[::2]), X[:, which[::2]], second, mean_of(X, second)[which[::2]])
        check(found.of(which), X[:, which], second, mean_of(X, second)[which])


@pytest.mark.parametrize("way", ["dense", "packed", "sparse"])
def test_empty_columns_have_no_products(way: str) -> None:
    storage, density = WAYS[way]
    X = numbers(70, 40, density)
    X[:, ::3] = 0.0
    weight = weights(70)
    with columns_of(X, storage) as columns:
        made = table(columns, weight, mean_of(X, weight)).of(np.arange(40))
    assert not made[::3].any()
    assert not made[:, :40:3].any()
    check(made, X, weight, mean_of(X, weight))


def test_empty_slots_are_packed_as_zeros() -> None:
    """Panels are whole: what stands where no column is must not reach the table."""
    X = numbers(37, 5)
    column = np.full(32, -1, np.int64)
    column[[0, 3, 17]] = [4, 1, 2]
    mean, root = X.mean(axis=0), np.sqrt(weights(37))
    for storage, worker in (("dense", gram.pack_worker), ("sparse", gram.pack_sparse_worker)):
        with columns_of(X, storage) as columns:
            P = np.full((2, 37, 16), np.nan)
            run(worker, np.arange(3), *columns.parts, column, mean, root, P)
        expected = np.zeros((37, 32))
        held = column >= 0
        expected[:, held] = root[:, None] * (X - mean)[:, column[held]]
        np.testing.assert_allclose(np.concatenate(list(P), axis=1), expected, rtol=1e-15, atol=0)


def test_entries_by_rows() -> None:
    X = numbers(50, 30, 0.2)
    X[7] = 0.0
    which = np.array([4, 29, 0, 11], np.int64)
    entries = int(np.count_nonzero(X[:, which]))
    start, whose, value = np.full(51, -1, np.int64), np.full(entries, -1, np.int32), np.full(entries, np.nan)
    with columns_of(X, "sparse") as columns:
        gram.by_rows(*columns.parts, which, len(which), 100 + which, start, whose, value)
    assert (start[0], start[-1]) == (0, entries)
    for i in range(50):
        here = slice(start[i], start[i + 1])
        held = [j for j in which if X[i, j] != 0.0]
        assert whose[here].tolist() == [100 + j for j in held]
        np.testing.assert_array_equal(value[here], X[i, held])


@pytest.mark.parametrize("way", ["dense", "packed"])
def test_columns_that_are_no_longer_requested_are_dropped_and_found_again(way: str) -> None:
    storage, density = WAYS[way]
    X = numbers(130, 200, density)
    weight = weights(130)
    mean = mean_of(X, weight)
    with columns_of(X, storage) as columns:
        found = table(columns, weight, mean)
        for first in (0, 30, 60, 90, 20):
            which = np.arange(first, first + 80)[::-1].copy()
            made = found.of(which)
            check(made, X[:, which], weight, mean[which])
            np.testing.assert_array_equal(made, table(columns, weight, mean).of(which))
            # Never more than a quarter of those requested beside them.
            assert len(found._column) <= 100
