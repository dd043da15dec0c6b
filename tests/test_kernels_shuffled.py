"""Coordinate descent in random order and conjugate gradients by rows, against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from stretto.kernels.linear import conjugate_gradients, gram, shuffled

n, p = 60, 40


def made(intercept: bool) -> dict[str, np.ndarray]:
    """A quadratic model of p sparse columns: v, d [n], its matrix H [p, p] and slopes q [p] at zero."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, p)) < 0.2, rng.standard_normal((n, p)), 0.0)
    d, v = rng.exponential(size=n), 3.0 * rng.standard_normal(n)
    if intercept:
        v -= d * v.sum() / d.sum()
    mean = d @ X / d.sum() if intercept else np.zeros(p)
    centred = X - mean
    H = centred.T @ (d[:, None] * centred) + 0.1 * np.eye(p)
    return {"X": X, "v": v, "d": d, "mean": mean, "H": H, "q": X.T @ v}


@pytest.mark.parametrize("intercept", [False, True])
def test_the_sweeps_end_at_the_minimum(intercept: bool) -> None:
    model = made(intercept)
    H, q = model["H"], model["q"]
    X = sp.csc_array(model["X"])
    b, u, lag, said = np.zeros(p), model["v"].copy(), np.zeros(1), np.zeros(4)
    for seed in range(1_000):  # a steady support ends the sweeps of one call
        shuffled.sweep_shuffled["exact"](
            np.arange(p), X.indptr, X.indices, X.data, b, np.ones(p), np.full(p, 0.1), np.ones(p), model["mean"],
            np.diag(H).copy(), u, model["d"], model["d"].sum(), lag, np.arange(p), seed, 0.0, 1e-9, 100, False, said,
        )  # fmt: skip
        if said[shuffled.WORST] <= 1e-9:
            break
    slack = q - H @ b
    on = b != 0.0
    assert 0 < np.count_nonzero(on) < p
    assert np.all(np.abs(slack[~on]) <= 1.0 + 1e-8)
    np.testing.assert_allclose(slack[on], np.sign(b[on]), atol=1e-8)
    # The pulls that are kept are those of the coefficients.
    u += model["d"] * lag[0]
    left = model["X"].T @ u - 0.1 * b
    np.testing.assert_allclose(left, slack, atol=1e-10)


def test_sweeps_depend_on_the_seed_and_end_with_all_columns() -> None:
    model = made(False)
    X = sp.csc_array(model["X"])
    found = []
    for seed in (1, 1, 2):
        b, u, said = np.zeros(p), model["v"].copy(), np.zeros(4)
        shuffled.sweep_shuffled["exact"](
            np.arange(p), X.indptr, X.indices, X.data, b, np.full(p, 2.0), np.zeros(p), np.ones(p), np.zeros(p),
            (model["d"] @ model["X"] ** 2), u, model["d"], model["d"].sum(), np.zeros(1), np.arange(p), seed,
            0.5, 0.0, 3, False, said,
        )  # fmt: skip
        found.append(b)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("largest", [0.0, 1e-3])
def test_conjugate_gradients_solve_the_system(intercept: bool, largest: float) -> None:
    model = made(intercept)
    X = sp.csc_array(model["X"])
    start, whose, value = np.empty(n + 1, np.int64), np.empty(X.nnz, np.int32), np.empty(X.nnz)
    gram.by_rows["exact"](X.indptr, X.indices, X.data, np.arange(p), p, np.arange(p), start, whose, value)
    way, product, left = np.zeros(p), np.zeros(n), model["q"].copy()
    step, back, out = np.empty(p), np.empty(p), np.empty(n)
    iterations = conjugate_gradients.conjugate["exact"](
        start, whose, value, model["d"], model["mean"], np.full(p, 0.1), np.diag(model["H"]).copy(), np.ones(p), 0.0,
        largest, 500, way, left, step, back, product, out,
    )  # fmt: skip
    assert 1 < iterations < 500
    residual = model["q"] - model["H"] @ way
    np.testing.assert_allclose(left, residual, atol=1e-9)
    assert np.abs(residual).max() <= max(largest, 1e-5)
    np.testing.assert_allclose(product, (model["X"] - model["mean"]) @ way, atol=1e-9)
