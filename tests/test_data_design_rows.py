"""CSR by columns: SciPy's arrays, zeros dropped, and the place of values that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stretto.data.design.design import Design
from stretto.errors import DataError


def drawn(p: int, dtype: Any = np.float64) -> Any:
    return sp.random_array(
        (300, p), density=40_000 / (300 * p), format="csr", dtype=dtype, rng=np.random.default_rng(p)
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", [200, 4_096, 4_097, 30_000])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_the_arrays_are_those_of_scipy(dtype: Any, p: int, zeros: bool, wide: bool) -> None:
    X = drawn(p, dtype)
    if zeros:
        X.data[::1000] = 0.0
    if wide:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    X.data.flags.writeable = False
    found = Design.of(X).csc
    there = X.tocsc()
    there.eliminate_zeros()
    assert found[2].dtype == dtype
    for one, other in zip(found, (there.indptr, there.indices, there.data), strict=True):
        assert np.array_equal(one, other)


def test_repeated_entries_are_added() -> None:
    X = drawn(5_000)
    twice = sp.csr_array((np.repeat(0.5 * X.data, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    assert np.array_equal(Design.of(twice).csc[2], Design.of(X).csc[2])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e80])
def test_values_that_are_refused_have_a_place(value: float) -> None:
    X = drawn(5_000)
    X.data[X.indptr[7] + 3] = value
    with pytest.raises(DataError, match=f"row 7, column {X.indices[X.indptr[7] + 3]}"):
        Design.of(X)
