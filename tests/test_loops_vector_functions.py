"""exp and log of rows: the bits of the scalar functions, for every kind of number and in both profiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.kernels.numeric import scalar

SPECIAL = [
    *(0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0, 0.5, 2.0**-0.5, 1e-20, -1e-20, 1e308, -1e308),
    *(745.1, -745.1, -745.2, -745.3, 709.7, 709.8, 709.9, 5e-324, 1e-310, 2.2250738585072014e-308),
]


@st.parallel
def of_rows(X: Any, E: Any, L: Any) -> None:
    for i in range(len(X)):
        E[i] = np.exp(X[i])
        L[i] = np.log(X[i])


@pytest.mark.parametrize("profile", ["exact", "fast"])
def test_rows_have_the_bits_of_numbers(profile: str) -> None:
    draw = np.random.default_rng(0)
    drawn = [draw.standard_normal(2000) * 300, draw.standard_normal(2000), np.exp(draw.standard_normal(2000) * 200)]
    X = np.concatenate([SPECIAL, *drawn, draw.random(2000) * 1e-308])
    X = X[: len(X) // 20 * 20].reshape(-1, 20)
    E, L = np.zeros_like(X), np.zeros_like(X)
    of_rows.using(profile=profile)(X, E, L)
    for found, function in ((E, scalar.exp), (L, scalar.log)):
        wanted = np.array([function(x) for x in X.ravel()]).reshape(X.shape)
        assert np.array_equal(found.view(np.uint64), wanted.view(np.uint64))


def test_float32_rows_are_computed_in_float64() -> None:
    X = np.random.default_rng(1).standard_normal((50, 19)).astype("f4") * 10
    E, L = np.zeros_like(X), np.zeros_like(X)
    of_rows(X, E, L)
    wide = X.astype("f8")
    F, M = np.zeros_like(wide), np.zeros_like(wide)
    of_rows(wide, F, M)
    assert np.array_equal(E, F.astype("f4"))
    assert np.array_equal(L, M.astype("f4"), equal_nan=True)
