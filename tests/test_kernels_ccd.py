"""CCD++ sweeps against the same sweeps in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa_script import NONE, problem, swept
from kernelrun import WAYS, cut, run
from stretto.kernels.factorization import als, ccd
from stretto.kernels.numeric import lanes

f4 = np.float32


def twin(p: dict[str, Any], rank: int, epochs: int, inner: int, reg: float) -> tuple[Any, Any, Any]:
    """Dense float64 CCD++: U, V and the residual where there are ratings."""
    dense = p["dense"].astype(float)
    rated = dense != 0
    U, V = p["X"][:, :rank].T.astype(float), p["Y"][:, :rank].T.astype(float)
    residual = np.where(rated, dense - U.T @ V, 0.0)
    n_row, n_col = rated.sum(axis=1), rated.sum(axis=0)
    for _ in range(epochs):
        for t in range(rank):
            free = np.where(rated, residual + np.outer(U[t], V[t]), 0.0)
            for _ in range(inner):
                below = reg * n_row + rated @ V[t] ** 2
                U[t] = np.divide(free @ V[t], below, where=below > 0, out=np.zeros_like(below))
                below = reg * n_col + rated.T @ U[t] ** 2
                V[t] = np.divide(free.T @ U[t], below, where=below > 0, out=np.zeros_like(below))
            residual = np.where(rated, free - np.outer(U[t], V[t]), 0.0)
    return U, V, residual


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(2, 30),
    cols=st.integers(2, 60),
    rank=st.integers(1, 6),
    inner=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_sweeps_match_numpy(rows: int, cols: int, rank: int, inner: int, seed: int) -> None:
    p = problem(rows, cols, rank, seed)
    U, V, by_row, by_col, losses = swept(p, 2, inner=inner, reg=0.1)
    expected_U, expected_V, residual = twin(p, rank, 2, inner, 0.1)
    rated = p["dense"] != 0
    np.testing.assert_allclose(U, expected_U, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(V, expected_V, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(by_row, residual[rated], atol=5e-3)
    np.testing.assert_allclose(by_col, residual.T[rated.T], atol=5e-3)
    np.testing.assert_allclose(losses[-1], (by_row.astype(float) ** 2).sum(), rtol=1e-9)


def test_bits_do_not_depend_on_the_way() -> None:
    p = problem(40, 70, 9)
    found = [swept(p, 2, way=way) for way in WAYS]
    assert len({b"".join(a.tobytes() for a in arrays) for arrays in found}) == 1


def test_the_loss_falls_and_agrees_with_the_factors() -> None:
    p = problem(60, 50, 8)
    U, V, *_, losses = swept(p, 6, reg=0.01)
    assert (np.diff(losses) < 0).all()
    W, H = ccd.to_rows(U), ccd.to_rows(V)
    again = run(als.squared_worker, cut(60, 3), *p["csr"], NONE, W, H, NONE, NONE, f4(0)).sum()
    np.testing.assert_allclose(losses[-1], again, rtol=1e-4)


def test_empty_rows_get_zero() -> None:
    p = problem(10, 12, 3)
    U, V, *_ = swept(p, 1, reg=0.0)
    assert not U[:, p["dense"].any(axis=1) == 0].any()
    assert not V[:, p["dense"].any(axis=0) == 0].any()


def test_long_rows_and_wide_indices() -> None:
    """Rows longer than sixteen entries use both the vector part and the rest; int64 indices give the bits of int32."""
    p = problem(5, 333, 4)
    narrow = swept(p, 1)
    for name in ("csr", "csc"):
        ptr, idx, values = p[name]
        p[name] = (ptr, idx.astype(np.int64), values)
    wide = swept(p, 1)
    assert all((a == b).all() for a, b in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("rank", [1, 16, 17])
def test_columns_and_rows_turn_into_each_other(rank: int) -> None:
    columns = np.arange(rank * 5, dtype=f4).reshape(rank, 5)
    rows = ccd.to_rows(columns)
    assert rows.shape == (5, lanes.padded(rank))
    assert not rows[:, rank:].any()
    assert (ccd.to_columns(rows, rank) == columns).all()


def test_a_residual_that_is_not_finite_stops_the_pass() -> None:
    p = problem(8, 9, 2)
    ptr, idx, values = p["csr"]
    values[3] = np.inf
    x, y = np.ones(8, f4), np.ones(9, f4)
    run(ccd.sweep_worker, cut(8, 2), ptr, idx, values, x, y, f4(0.1), True, fails=True)
