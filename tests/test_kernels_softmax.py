"""The kernels of softmax regression beside their NumPy twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, softmax

from stretto.kernels.linear import softmax as kernels
from stretto.kernels.linear.softmax_tiles import strips
from stretto.runtime.runtimes import Serial, Threads
from stretto.solvers.softmax.metric import SampledGram
from stretto.solvers.softmax.passes import Passes
from stretto.solvers.softmax.point import SoftmaxProblem
from stretto.solvers.softmax.rows import DesignRows

softmax_gradient: Any = kernels.softmax_gradient
SHAPES = [(1, 1, 2), (70, 5, 3), (203, 37, 10), (150, 20, 33), (300, 8, 20)]


def made(n: int, p: int, k: int, sparse: bool, dtype: Any = np.float64) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(n + p + k)
    X = rng.normal(size=(n, p)).astype(dtype)
    if sparse:
        X *= rng.random((n, p)) < 0.4
        X[n // 2] = 0.0  # an empty row
    return X, rng.integers(0, k, n), rng.uniform(0.0, 2.0, n), rng.normal(size=(p + 1, k))


def twin(X: Any, y: Any, weight: Any, W: Any) -> tuple[float, Any, Any]:
    """(loss, gradient [p + 1, k], probabilities [n, k])."""
    z = X.astype(np.float64) @ W[:-1] + W[-1]
    P = softmax(z, axis=1)
    R = weight[:, None] * (P - np.eye(W.shape[1])[y])
    loss = -(weight * log_softmax(z, axis=1)[np.arange(len(y)), y]).sum()
    return float(loss), np.vstack([X.T.astype(np.float64) @ R, R.sum(axis=0)]), P


def packed(W: Any, dtype: Any = np.float64) -> Any:
    made = np.zeros((len(W), strips(W.shape[1])[0]), dtype)
    made[:, : W.shape[1]] = W
    return made


# Each width is compiled anew, so the other profile has only one of a single strip and one of several.
QUICK = [
    (*shape, profile) for profile in ("exact", "fast") for shape in SHAPES if profile == "exact" or shape[2] in (10, 33)
]
SLOW = [pytest.param(*shape, "fast", marks=pytest.mark.slow) for shape in SHAPES if shape[2] not in (10, 33)]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("n", "p", "k", "profile"), [*QUICK, *SLOW])
def test_loss_gradient_and_curvature(n: int, p: int, k: int, sparse: bool, profile: str) -> None:
    X, y, weight, W = made(n, p, k, sparse)
    loss, gradient, P = twin(X, y, weight, W)
    rng = np.random.default_rng(1)
    V = rng.normal(size=W.shape)
    A = X @ V[:-1] + V[-1]
    U = weight[:, None] * P * (A - (P * A).sum(axis=1, keepdims=True))
    bent = np.vstack([X.T @ U, U.sum(axis=0)])
    with Threads(2).open() as crew:
        passes = Passes(DesignRows.of(sp.csr_array(X) if sparse else X), y, weight, k, crew, profile)
        assert passes.look(packed(W)) == pytest.approx(loss, rel=1e-12)
        np.testing.assert_allclose(passes.gradient()[:, :k], gradient, rtol=1e-10, atol=1e-11)
        assert passes.entropy() == pytest.approx(-(weight[:, None] * P * np.log(P)).sum(), rel=1e-11)
        mixed = 0.3 * P + 0.7 * np.eye(k)[y]
        assert passes.entropy(0.3) == pytest.approx(-(weight[:, None] * mixed * np.log(mixed)).sum(), rel=1e-9)
        np.testing.assert_allclose(passes.curve(packed(V))[:, :k], bent, rtol=1e-10, atol=1e-11)
        assert not passes.gradient()[:, k:].any()
        np.testing.assert_allclose(passes.squares()[:-1], (weight[:, None] * X**2).sum(axis=0), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(passes.sums()[:-1], (weight[:, None] * X).sum(axis=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("data", [np.float32, np.float64])
def test_float32_arithmetic_is_good_to_six_digits(data: Any, sparse: bool) -> None:
    X, y, weight, W = made(500, 40, 7, sparse, data)
    loss, gradient, _ = twin(X, y, weight, W)
    with Serial().open() as crew:
        passes = Passes(DesignRows.of(sp.csr_array(X) if sparse else X), y, weight, 7, crew, "exact")
        assert passes.look(packed(W, np.float32)) == pytest.approx(loss, rel=1e-6)
        np.testing.assert_allclose(passes.gradient()[:, :7], gradient, atol=2e-5 * np.abs(gradient).max())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_any_number_of_threads_gives_the_same_bits(sparse: bool) -> None:
    X, y, weight, W = made(4000, 60, 10, sparse)  # a width that is compiled above
    rows = DesignRows.of(sp.csr_array(X) if sparse else X)
    found = []
    for runtime in (Serial(), Threads(1), Threads(2), Threads(3)):
        with runtime.open() as crew:
            passes = Passes(rows, y, weight, 10, crew, "exact")
            loss = passes.look(packed(W))
            found.append((loss, passes.gradient().tobytes(), passes.curve(packed(W)).tobytes()))
    assert all(one == found[0] for one in found)


def test_scores_far_apart_stay_finite() -> None:
    X = np.array([[1e3], [-1e3], [0.0]])
    W = np.array([[5.0, -5.0, 0.0], [0.0, 0.0, 0.0]])
    with Serial().open() as crew:
        passes = Passes(DesignRows.of(X), np.array([1, 1, 2]), np.ones(3), 3, crew, "exact")
        assert passes.look(packed(W)) == pytest.approx(1e4 + np.log(3), rel=1e-12)
        assert np.isfinite(passes.gradient()).all()
        assert np.isfinite(passes.entropy(0.5))


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        *((form, np.float64) for form in ("dense", "csr", "csr_matrix", "int64", "tuple")),
        *((form, np.float32) for form in ("dense", "csr", "csr_matrix", "tuple")),
        pytest.param("int64", np.float32, marks=pytest.mark.slow),
    ],
)
def test_the_gradient_of_a_batch(form: str, dtype: Any) -> None:
    X, y, weight, W = made(130, 11, 6, True, dtype)
    loss, gradient, _ = twin(X, y, weight, W)
    batch: Any = X if form == "dense" else sp.csr_matrix(X) if form == "csr_matrix" else sp.csr_array(X)
    if form == "int64":
        batch.indices, batch.indptr = batch.indices.astype(np.int64), batch.indptr.astype(np.int64)
    if form == "tuple":
        batch = batch.indptr, batch.indices, batch.data
    close: Any = {"rtol": 1e-10, "atol": 1e-11} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-4}
    said, slope, bias = softmax_gradient(batch, y, W[:-1].astype(dtype), W[-1].astype(dtype), weight)
    assert said == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(slope, gradient[:-1], **close)
    np.testing.assert_allclose(bias, gradient[-1], **close)
    assert softmax_gradient(batch, y, W[:-1], W[-1])[0] == pytest.approx(twin(X, y, np.ones(130), W)[0], rel=1e-9)


def test_mixed_entropy_at_its_ends() -> None:
    wrong, spread, weight = np.array([0.0, 1.0, 0.5]), np.array([0.0, 0.0, np.log(2)]), np.ones(3)
    assert kernels.mixed_entropy(wrong, spread, weight, 1.0) == pytest.approx(np.log(2))
    half = 2 * np.log(2) / 2 + 0.25 * np.log(4) + 0.75 * np.log(4 / 3)
    assert kernels.mixed_entropy(wrong, spread, weight, 0.5) == pytest.approx(half)


@pytest.mark.parametrize("size", [16, 20, 70_004])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_vectors(size: int, dtype: Any) -> None:
    rng = np.random.default_rng(size)
    H = rng.normal(size=(6, size)).astype(dtype)
    vectors, factor = rng.normal(size=(3, size)), rng.normal(size=5)
    with Threads(2).open() as crew:
        passes = Passes(DesignRows.of(np.ones((3, 2))), np.arange(3), np.ones(3), 3, crew, "exact")
        np.testing.assert_allclose(passes.products(H, 5, vectors), H[:5].astype(np.float64) @ vectors.T, atol=1e-9)
        mixed = passes.mix(H, factor, 0.5, vectors[0])
    np.testing.assert_allclose(mixed, 0.5 * vectors[0] + factor @ H[:5].astype(np.float64), atol=1e-12)


@pytest.mark.parametrize("l1", [0.0, 1.0], ids=["one factor", "a factor for each class"])
def test_the_table_solves_its_own_system(l1: float) -> None:
    X, y, weight, _ = made(300, 70, 4, False)
    pen = np.append(np.ones(70), 0.0)
    problem = SoftmaxProblem(DesignRows.of(X), y, 4, weight, True, l1 * pen, (1 - l1) * pen)
    ones = np.hstack([X, np.ones((300, 1))])
    r = np.zeros((71, 4))
    r[:, :4] = np.random.default_rng(0).normal(size=(71, 4))
    bent = np.abs(r) + 0.1
    with Threads(2).open() as crew:
        passes = Passes(problem.rows, y, weight, 4, crew, "exact")
        table = SampledGram(problem, passes, seed=0)
        table.renew(0.5, bent if l1 else None)
        found = table.solve(r)
        pushed = table.push(r)
        turned = np.stack([r, r, r])
        table.pull(turned)
    curved = 0.5 * 3 / 16 * (ones.T * weight) @ ones
    for c in range(4):
        A = curved + np.diag(0.5 * 1e-9 * np.diag(curved).max() * 2 + problem.ridge + (bent[:, c] if l1 else 0.0))
        np.testing.assert_allclose(found[:, c], np.linalg.solve(A, r[:, c]), rtol=1e-6, atol=1e-8)
    # U⁻¹ and U⁻ᵀ belong together: ⟨U⁻ᵀr, U⁻ᵀr⟩ = ⟨r, A⁻¹r⟩, and U⁻¹U⁻ᵀr = A⁻¹r.
    assert np.sum(turned[1] ** 2) == pytest.approx(np.sum(r * found), rel=1e-9)
    assert np.isfinite(pushed).all()
    np.testing.assert_array_equal(turned[0], r)
