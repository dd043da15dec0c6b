"""Moments of columns: NumPy's numbers to rounding, the same bits in any order of visits, also far from zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csc_array

from kernelrun import WAYS, cut, run
from stretto.kernels.linear import moments
from working_made import Floats, numbers

SHAPES = ((1, 1), (37, 5), (64, 3), (300, 40), (1500, 2), (1100, 70))


def computed(X: Floats, y: Floats, weight: Floats, *, blocks: int, centred: bool = True, way: str = "forwards"):  # type: ignore[no-untyped-def]
    """Mass, means and products of [X, y]."""
    k = X.shape[1] + 1
    shift, rest, product = np.full((blocks, k), np.nan), np.full((blocks, k), np.nan), np.full((blocks, k, k), np.nan)
    args = (np.asfortranarray(X).T, y, weight, centred, shift, rest, product)
    mass = run(moments.moments_worker, cut(len(X), blocks), *args, way=way)
    middle, G = np.empty(k), np.zeros((k, k))
    return moments.merge.exact(mass, shift, rest, product, middle, G), middle, G


def check(X: Floats, y: Floats, weight: Floats, centred: bool, found: tuple[float, Floats, Floats]) -> None:
    w = weight if len(weight) else np.ones(len(X))
    Z = np.column_stack([X.astype(np.float64), y]).astype(np.longdouble)
    mean = w @ Z / w.sum() if centred else np.zeros(Z.shape[1])
    away = (Z - mean) * np.sqrt(w)[:, None]
    assert found[0] == pytest.approx(w.sum(), rel=1e-13)
    np.testing.assert_allclose(found[1], mean.astype(np.float64), rtol=1e-12, atol=1e-13 * float(np.abs(Z).max()))
    norm = np.sqrt((away * away).sum(axis=0))
    assert np.all(np.abs(found[2] - away.T @ away) <= 1e-13 * np.outer(norm, norm) + 1e-300)
    np.testing.assert_array_equal(found[2], found[2].T)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_moments_are_numpys(shape: tuple[int, int], weighted: bool, dtype: type) -> None:
    n, p = shape
    X: NDArray[Any] = numbers(n, p).astype(dtype)
    rng = np.random.default_rng(3)
    y = rng.normal(size=n)
    weight = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.1, 3.0, n)) if weighted else np.empty(0)
    if weighted:
        weight[0] = 1.0
    for centred in (True, False):
        check(X, y, weight, centred, computed(X, y, weight, blocks=min(n, 3), centred=centred))


@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_visits_changes_no_bit(way: str) -> None:
    X, y = numbers(700, 9), np.sin(np.arange(700.0))
    wanted = computed(X, y, np.empty(0), blocks=6)
    found = computed(X, y, np.empty(0), blocks=6, way=way)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_columns_far_from_zero_lose_no_digits() -> None:
    """Products about zero and a correction would keep none of them; the rows also drift."""
    X = numbers(900, 4, seed=2) + 2.0**30 + 1e4 * np.arange(900.0)[:, None]
    y = np.cos(np.arange(900.0)) - 2.0**28
    check(X, y, np.empty(0), True, computed(X, y, np.empty(0), blocks=5))


def test_rows_without_weight_do_not_count() -> None:
    X, y = numbers(400, 6), np.arange(400.0)
    weight = np.where(np.arange(400) < 200, 0.0, 1.0)  # a whole visit weighs nothing
    found, wanted = computed(X, y, weight, blocks=4), computed(X[200:], y[200:], np.empty(0), blocks=2)
    assert found[0] == wanted[0]
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(1, 1), (37, 5), (300, 40), (700, 3)])
def test_sparse_columns_give_the_same(shape: tuple[int, int], way: str) -> None:
    n, p = shape
    X, rng = numbers(n, p, density=0.3), np.random.default_rng(3)
    y, weight = rng.normal(size=n), rng.uniform(0.1, 3.0, n)
    form, blocks = csc_array(X), min(n, 4)
    parts = np.full((blocks, p), np.nan), np.full((blocks, p), np.nan), np.full((blocks, p, p), np.nan)
    arrays = form.indptr.astype(np.int64), form.indices.astype(np.int32), form.data
    run(moments.sparse_moments_worker, cut(n, blocks), *arrays, weight, weight * y, *parts, way=way)
    for centred in (True, False):
        mean, q, G = np.empty(p), np.empty(p), np.zeros((p, p))
        moments.merge_sparse.exact(float(weight.sum()), centred, *parts, mean, q, G)
        wanted = weight @ X / weight.sum() if centred else np.zeros(p)
        away = X - wanted
        np.testing.assert_allclose(mean, wanted, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(q, X.T @ (weight * y), rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(G, (away * weight[:, None]).T @ away, rtol=1e-11, atol=1e-10)
